package sandbox_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/sandbox"
)

// long is a timeout that no test reaches.
const long = 90 * time.Second

// started returns a sandbox that is started and stops with the test.
func started(t testing.TB, opts *sandbox.Options) *sandbox.Sandbox {
	t.Helper()
	var o sandbox.Options
	if opts != nil {
		o = *opts
	}
	if o.Timeout == 0 {
		o.Timeout = long
	}
	if o.Warm == 0 {
		o.Warm = -1 // a test ends before ready children help
	}
	o.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	s, err := sandbox.New(&o)
	require.NoError(t, err)
	require.NoError(t, s.Start(t.Context()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), long)
		defer cancel()
		require.NoError(t, s.Stop(ctx))
	})
	return s
}

// run runs code that must succeed and returns its result.
func run(t testing.TB, s *sandbox.Sandbox, code string) string {
	t.Helper()
	got, err := s.Run(t.Context(), sandbox.Request{Code: code})
	require.NoError(t, err)
	return string(got.Value)
}

// fails runs code that must fail and returns the failure.
func fails(t testing.TB, s *sandbox.Sandbox, req sandbox.Request) *sandbox.Failure {
	t.Helper()
	got, err := s.Run(t.Context(), req)
	var f *sandbox.Failure
	require.ErrorAs(t, err, &f, "%s", got.Value)
	return f
}
