package background_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"comet/internal/background"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLoop(t *testing.T) {
	t.Parallel()

	t.Run("Start and Stop may be repeated and called concurrently", func(t *testing.T) {
		t.Parallel()
		ended := make(chan struct{}, 10)
		l := background.NewLoop(func(ctx context.Context) { <-ctx.Done(); ended <- struct{}{} })
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() { require.NoError(t, l.Start(t.Context())) })
		}
		wg.Wait()
		for range 8 {
			wg.Go(func() { require.NoError(t, l.Stop(t.Context())) })
		}
		wg.Wait()
		require.Len(t, ended, 1, "the function ran once")
	})

	t.Run("Stop returns when its context ends", func(t *testing.T) {
		t.Parallel()
		release := make(chan struct{})
		l := background.NewLoop(func(context.Context) { <-release })
		require.NoError(t, l.Start(t.Context()))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, l.Stop(ctx), context.Canceled)
		close(release)
		require.NoError(t, l.Stop(t.Context()))
	})

	t.Run("Stop without Start does nothing", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, background.NewLoop(func(context.Context) {}).Stop(t.Context()))
	})
}

type recorder struct {
	name string
	fail error
	log  *[]string
}

func (r recorder) Start(context.Context) error {
	*r.log = append(*r.log, "start "+r.name)
	return r.fail
}
func (r recorder) Stop(context.Context) error { *r.log = append(*r.log, "stop "+r.name); return nil }

// stopper is a service that does nothing until Stop.
type stopper func(context.Context) error

func (stopper) Start(context.Context) error      { return nil }
func (s stopper) Stop(ctx context.Context) error { return s(ctx) }

func TestGroup(t *testing.T) {
	t.Parallel()

	t.Run("Stop gives each service time even if earlier services used it up", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithTimeout(t.Context(), 0)
		defer cancel()
		var g background.Group
		g.Add("a service", stopper(func(ctx context.Context) error { return ctx.Err() }))
		require.NoError(t, g.Start(t.Context()))
		require.NoError(t, g.Stop(ctx))
	})

	t.Run("stops in reverse order", func(t *testing.T) {
		t.Parallel()
		var log []string
		var g background.Group
		g.Add("a", recorder{"a", nil, &log})
		g.Add("b", recorder{"b", nil, &log})
		require.NoError(t, g.Start(t.Context()))
		require.NoError(t, g.Stop(t.Context()))
		require.NoError(t, g.Stop(t.Context()))
		require.Equal(t, []string{"start a", "start b", "stop b", "stop a"}, log)
	})

	t.Run("a failed start stops the services that were started", func(t *testing.T) {
		t.Parallel()
		var log []string
		var g background.Group
		g.Add("a", recorder{"a", nil, &log})
		g.Add("b", recorder{"b", errors.New("boom"), &log})
		require.ErrorContains(t, g.Start(t.Context()), "start b: boom")
		require.Equal(t, []string{"start a", "start b", "stop a"}, log)
	})
}
