// Command comet is a control plane for AI agents: server, client and tools in
// one binary.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	root := &cobra.Command{Use: "comet", Short: "A control plane for AI agents", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(newServeCommand(), newMigrateCommand(), newHealthcheckCommand())
	if err := root.ExecuteContext(ctx); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "comet:", err)
		return 1
	}
	return 0
}
