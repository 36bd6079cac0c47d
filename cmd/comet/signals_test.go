package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
)

// aside runs a command in the background until "interrupt" or the end of the script: aside comet
// tools call demo:slow. Its output goes to aside.out and aside.err.
func aside(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: aside command [args...]")
	}
	startAside(ts, "aside", args[0], args[1:]...)
}

func TestInterruption(t *testing.T) {
	t.Parallel()
	by := func(s syscall.Signal) context.Context {
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(&interruption{s})
		return ctx
	}

	t.Run("a signal has the exit code that shells use", func(t *testing.T) {
		t.Parallel()
		for _, err := range []error{context.Canceled, fmt.Errorf("x: %w", context.Cause(by(syscall.SIGINT))), &endedError{exitInterrupted, "the task continues"}} {
			require.Equal(t, 130, exitCode(interrupted(by(syscall.SIGINT), err)), err)
			require.Equal(t, 143, exitCode(interrupted(by(syscall.SIGTERM), err)), err)
		}
	})

	t.Run("an error before the signal keeps its exit code", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, exitOK, exitCode(interrupted(by(syscall.SIGTERM), nil)))
		require.Equal(t, exitFailure, exitCode(interrupted(by(syscall.SIGTERM), errors.New("the drain took too long"))))
		require.Equal(t, exitFailure, exitCode(interrupted(context.Background(), context.Canceled)))
		require.Equal(t, 7, exitCode(interrupted(by(syscall.SIGINT), &endedError{7, "the work failed"})))
	})

	t.Run("an interruption ends a read", func(t *testing.T) {
		t.Parallel()
		silent, writer := io.Pipe()
		defer writer.Close()
		_, err := readUntilDone(by(syscall.SIGINT), silent)
		require.ErrorIs(t, err, context.Canceled)
	})

	t.Run("reads complete input without an interruption", func(t *testing.T) {
		t.Parallel()
		input := strings.Repeat("comet ", 10_000)
		got, err := readUntilDone(context.Background(), strings.NewReader(input))
		require.NoError(t, err)
		require.Equal(t, input, string(got))
	})
}
