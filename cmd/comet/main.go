// Command comet is a control plane for AI agents: server, client and tools in one binary. It is a
// thin layer: server commands call package app, client commands call the REST API. All commands are
// rows of one table (commands.yaml, command.go).
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"comet/internal/background"
	"comet/internal/sandbox"
	"comet/internal/telemetry"
)

// version is set by release builds: -ldflags "-X main.version=v1.2.3". The linker can set only a
// variable.
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
	cmd, err := root.ExecuteContextC(ctx)
	form := "" // of the error
	if s, invalid := newSession(cmd); invalid == nil {
		form = s.out.format
	}
	if err != nil && !*started {
		err, form = usageError{err}, cmp.Or(formatIn(os.Args[1:]), form)
	}
	code := report(root.ErrOrStderr(), form, interrupted(ctx, err))
	if code != exitOK && cmd.Name() == "send" && !errors.As(err, new(*endedError)) {
		code += exitSend
	}
	return code
}

// collectGarbageLess lets the heap of a server grow to five times its live size before a collection,
// instead of twice: decoding JSON makes much garbage, and collecting it takes a third of the
// processor time otherwise (docs/performance.md, “Tools”). GOGC overrides it.
// The heap stays below 90 % of the memory limit of the container. Without such a limit it stays below
// 320 MiB or twice its live size, whichever is more. GOMEMLIMIT overrides both.
func collectGarbageLess() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	limit, isSet := background.MemoryLimit(), os.Getenv("GOMEMLIMIT") != ""
	switch {
	case isSet:
	case limit > 0:
		debug.SetMemoryLimit(limit / 10 * 9)
	default:
		background.LimitGarbage(320 << 20)
	}
}

// sandboxChild runs "comet sandbox-child": it runs untrusted code for the comet process that
// started it. It is handled before everything else, so that it starts fast and the code has
// nothing of a normal command in reach.
func sandboxChild() (code int, asked bool) {
	if len(os.Args) != 2 || os.Args[1] != sandbox.ChildArgument {
		return 0, false
	}
	return sandbox.Child(os.Stdin, os.Stdout), true
}

// A command that is ended by a signal has the exit code that shells use: 128 and the signal's
// number.
const bySignal = 128

// interruption is a signal that ended the program. It is the cause of a cancelled context, and
// counts as context.Canceled.
type interruption struct{ signal syscall.Signal }

func (e *interruption) Error() string { return "interrupted" }

// Is reports whether target is context.Canceled.
func (e *interruption) Is(target error) bool { return target == context.Canceled }

// untilSignal returns a context that SIGINT or SIGTERM ends, with an *interruption as its cause;
// a second signal ends the program at once. stop restores the default handling of signals.
func untilSignal(parent context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() { // ends with ctx, which stop ends
		select {
		case s := <-signals:
			signal.Stop(signals)
			number, _ := s.(syscall.Signal) // true on every system
			cancel(&interruption{number})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
	}
}

// interrupted gives an error the exit code of the signal that caused it. A command that a signal
// ends in good order, such as a server, has no error.
func interrupted(ctx context.Context, err error) error {
	var (
		by    *interruption
		ended *endedError
	)
	switch {
	case err == nil || !errors.As(context.Cause(ctx), &by):
		return err
	case errors.As(err, &ended) && ended.code == exitInterrupted:
		return &endedError{bySignal + int(by.signal), ended.text}
	case errors.Is(err, context.Canceled):
		return &endedError{bySignal + int(by.signal), by.Error()}
	}
	return err
}

const rootLong = `comet is a control plane for AI agents: a registry of agents, their budgets, their tasks and
the tools that they call.

"comet serve" runs the server; without configuration it stores everything in ./comet-data.
The other commands send requests to a server, by default http://127.0.0.1:8080. Set its
address and your token by flags, environment variables (COMET_SERVER, COMET_TOKEN) or in
~/.config/comet/client.yaml.`

const rootExitCodes = `
Exit codes:
  0  success
  1  any other error
  2  invalid usage or configuration
  3  not authenticated or not allowed
  4  not found
  5  conflict with the current state, or a failed precondition
  6  invalid request or document
  7  the server cannot be reached, is not ready, or limits the rate
  8  the budget does not cover the request
  101-108  errors of comet send itself: the codes above plus 100; its codes 1 to 99 are those of the work
  124  a time limit of comet send has passed
  130  interrupted by Ctrl-C (SIGINT)
  143  ended by SIGTERM
`

// The groups of commands; those of groupOther come last in "comet --help".
const (
	groupServer = "server"
	groupClient = "client"
	groupOther  = "other"
)

// newRootCommand returns the command tree, and whether a command has started to run: an error before
// that is a usage error.
func newRootCommand() (root *cobra.Command, started *bool) {
	root = &cobra.Command{
		Use:           "comet",
		Short:         "A control plane for AI agents",
		Long:          rootLong,
		Version:       telemetry.ReadBuild(version).Version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddGroup(
		&cobra.Group{ID: groupClient, Title: "Client commands:"},
		&cobra.Group{ID: groupServer, Title: "Server commands:"},
	)
	addTable(root, commandGroups(), commandTable())
	root.SetHelpCommand(newHelpCommand(root))
	root.InitDefaultCompletionCmd()
	root.SetFlagErrorFunc(flagError)
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) { // SetHelpTemplate would link text/template
		help(cmd, args)
		if cmd == root {
			fmt.Fprint(cmd.OutOrStdout(), rootExitCodes)
		}
	})
	started = new(false)
	prepare(root, started)
	return root, started
}

// newHelpCommand is "comet help", which fails for a command that does not exist.
func newHelpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND...]", Short: "Show the help of a command", Args: cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err == nil && len(rest) > 0 {
				err = unknownCommand(cmd, rest[0])
			}
			if err != nil {
				return usageError{err}
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
	}
}

// prepare makes every command note that it has started, checks arguments by the usage line, and
// makes commands that only hold others reject unknown words.
func prepare(c *cobra.Command, started *bool) {
	if run := c.RunE; run != nil {
		if c.Args == nil {
			c.Args = checkArguments
		}
		c.RunE = func(cmd *cobra.Command, args []string) error {
			*started = true
			return run(cmd, args)
		}
	} else if c.HasSubCommands() {
		c.Args = func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return unknownCommand(cmd, args[0])
		}
		c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	for _, sub := range c.Commands() {
		prepare(sub, started)
	}
}

// checkArguments compares arguments with the usage line, such as "get ID [TOOL]".
func checkArguments(cmd *cobra.Command, args []string) error {
	_, arguments := splitUse(cmd.Use)
	names := slices.DeleteFunc(strings.Fields(arguments), func(name string) bool { return name == "--" || name == "[flags]" })
	for i, name := range names {
		if strings.HasPrefix(name, "[") {
			break // no argument after an optional one is required
		}
		if i >= len(args) {
			return fmt.Errorf("missing %s; usage: %s", strings.TrimSuffix(name, "..."), cmd.UseLine())
		}
	}
	if len(args) > len(names) && !strings.Contains(arguments, "...") {
		return fmt.Errorf("unexpected argument %q; usage: %s", args[len(names)], cmd.UseLine())
	}
	return nil
}

// splitUse splits a command line into its words and its arguments.
func splitUse(use string) (words, arguments string) {
	at := regexp.MustCompile(` [\[A-Z]`).FindStringIndex(use)
	if at == nil {
		return use, ""
	}
	return use[:at[0]], use[at[0]+1:]
}

func cutLast(words string) (above, last string) {
	i := strings.LastIndexByte(words, ' ')
	return words[:max(i, 0)], words[i+1:]
}

// argumentNames are the names of the arguments in a usage line, without brackets and dots.
func argumentNames(use string) (names []string) {
	_, arguments := splitUse(use)
	for _, name := range strings.Fields(arguments) {
		names = append(names, strings.Trim(name, "[].|"))
	}
	return names
}
