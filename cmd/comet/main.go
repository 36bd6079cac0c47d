// Command comet is a control plane for AI agents: server, client and tools in
// one binary. A subcommand is one file and a thin layer: the server's commands
// call app, the client's commands call the generated client.
package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"comet/internal/sandbox"
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

// collectLess lets the heap of a server grow to five times what is in use before it is
// collected, in the place of twice: reading JSON leaves much behind, and a third of the
// processor's time goes there otherwise (docs/performance.md, “Tools”). GOGC, where it is set,
// decides instead.
func collectLess() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}

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

// A command that a signal ends has the code that shells give it: 128 and the signal's number.
const bySignal = 128

// interruption is a signal that asked the program to end. It is the cause of a cancelled
// context, and counts as context.Canceled.
type interruption struct{ signal syscall.Signal }

func (e *interruption) Error() string { return "interrupted" }

// Is reports whether target is what a context says that was cancelled.
func (e *interruption) Is(target error) bool { return target == context.Canceled }

// untilSignal returns a context that SIGINT or SIGTERM ends, with an *interruption as its
// cause; a second signal ends the program at once. stop gives the signals back.
func untilSignal(parent context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() { // it ends with ctx, which stop ends
		select {
		case s := <-signals:
			signal.Stop(signals)
			number, _ := s.(syscall.Signal) // it is one on every system
			cancel(&interruption{number})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
	}
}

// interrupted gives an error the exit code of the signal that it is due to. A command that
// a signal ends in order, as it does a server, has no error.
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

// readerFunc is a reader that is one function.
type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// untilDone reads from r until ctx ends: whoever waits for a terminal waits no longer. What
// is read then is lost, which is all the same to a program that ends.
func untilDone(ctx context.Context, r io.Reader) io.Reader {
	type piece struct {
		data []byte
		err  error
	}
	return readerFunc(func(p []byte) (int, error) {
		read := make(chan piece, 1)
		go func() { // it ends with what it waits for, or with the program
			data := make([]byte, len(p))
			n, err := r.Read(data)
			read <- piece{data[:n], err}
		}()
		select {
		case got := <-read:
			return copy(p, got.data), got.err
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	})
}
