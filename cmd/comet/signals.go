package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"
)

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
