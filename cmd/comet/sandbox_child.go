package main

import (
	"os"

	"comet/internal/sandbox"
)

// sandboxChild is what "comet sandbox-child" does: it runs code that somebody else wrote, for
// the comet that started it. It is not a command like the others, which people call: it is
// asked for before anything of theirs is made ready, so that it is fast, and has none of it
// in reach.
func sandboxChild() (code int, asked bool) {
	if len(os.Args) != 2 || os.Args[1] != sandbox.ChildArgument {
		return 0, false
	}
	return sandbox.Child(os.Stdin, os.Stdout), true
}
