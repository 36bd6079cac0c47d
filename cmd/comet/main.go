// Command comet is a control plane for AI agents: server, client and tools in
// one binary. A subcommand is one file and a thin layer: the server's commands
// call app, the client's commands call the generated client.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// version is set by release builds: -ldflags "-X main.version=v1.2.3".
// The linker can set nothing but a variable.
var version string

func main() {
	if code, asked := sandboxChild(); asked {
		os.Exit(code)
	}
	os.Exit(run())
}

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	root, started := newRootCommand()
	err := root.ExecuteContext(ctx)
	if err != nil && !*started {
		err = usageError{err}
	}
	return report(root.ErrOrStderr(), err)
}
