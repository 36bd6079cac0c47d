// Command comet is a control plane for AI agents: server, client and tools in one binary. It is a
// thin layer: server commands call package app, client commands call the REST API. Most client
// commands are rows of one table (command.go).
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
	err := root.ExecuteContext(ctx)
	if err != nil && !*started {
		err = usageError{err}
	}
	return report(root.ErrOrStderr(), interrupted(ctx, err))
}

// collectGarbageLess lets the heap of a server grow to five times its live size before a collection,
// instead of twice: decoding JSON makes much garbage, and collecting it takes a third of the
// processor time otherwise (docs/performance.md, “Tools”). GOGC overrides it.
func collectGarbageLess() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
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

// readerFunc is a reader made of a function.
type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// untilDone reads from r until ctx ends, even if a read from a terminal blocks. Input that
// arrives after that is lost, as the program ends.
func untilDone(ctx context.Context, r io.Reader) io.Reader {
	type piece struct {
		data []byte
		err  error
	}
	return readerFunc(func(p []byte) (int, error) {
		read := make(chan piece, 1)
		go func() { // ends with the read, or with the program
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
