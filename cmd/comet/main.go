// Command comet is a control plane for AI agents: server, client and tools in
// one binary. A subcommand is one file and a thin layer: the server's commands
// call app, the client's commands call the generated client.
package main

import (
	"context"
	"os"
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
	ctx, stop := untilSignal(context.Background())
	defer stop()
	root, started := newRootCommand()
	err := root.ExecuteContext(ctx)
	if err != nil && !*started {
		err = usageError{err}
	}
	return report(root.ErrOrStderr(), interrupted(ctx, err))
}
