package stats_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/stats"
	"comet/store"
	"comet/store/storetest"
)

// TestComputationsAreShared checks that a computation does not end with the request that started it, and serves the others.
func TestComputationsAreShared(t *testing.T) {
	t.Parallel()
	for _, name := range storetest.Databases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var computations atomic.Int32
			reached, proceed := make(chan struct{}), make(chan struct{})
			opts := storetest.Migrated(t, name)
			opts.Connector = storetest.Statements(func(s storetest.Statement) {
				if strings.Contains(s.Query, "FROM tool_calls") && strings.Contains(s.Query, "count(*)") && computations.Add(1) == 1 {
					close(reached)
					<-proceed
				}
			})
			s, err := store.Open(t.Context(), opts)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			of := stats.New(s)
			get := func(ctx context.Context, done chan<- error) {
				_, err := of.Get(ctx, stats.Windows()[0], stats.Filter{Root: "nova"})
				done <- err
			}

			first, others := make(chan error, 1), make(chan error, 3)
			ctx, leave := context.WithCancel(t.Context())
			go get(ctx, first)
			<-reached
			for range cap(others) {
				go get(t.Context(), others)
			}
			leave()
			require.ErrorIs(t, <-first, context.Canceled, "it ends with its own request")
			close(proceed)
			for range cap(others) {
				require.NoError(t, <-others)
			}
			require.EqualValues(t, 1, computations.Load())
		})
	}
}

// TestStop checks that Stop waits for the computations, and that none succeeds afterwards.
func TestStop(t *testing.T) {
	t.Parallel()
	opts := storetest.Migrated(t, "sqlite")
	var first, read atomic.Bool
	reached, proceed := make(chan struct{}), make(chan struct{})
	opts.Connector = storetest.Statements(func(s storetest.Statement) {
		if strings.Contains(s.Query, "FROM tool_calls") && !first.Swap(true) {
			close(reached)
			<-proceed
			read.Store(true)
		}
	})
	s, err := store.Open(t.Context(), opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	of := stats.New(s)
	computed := make(chan struct{})
	go func() {
		defer close(computed)
		_, _ = of.Get(t.Context(), stats.Windows()[0], stats.Filter{})
	}()
	<-reached
	stopped := make(chan error, 1)
	go func() { stopped <- of.Stop(t.Context()) }()
	require.Empty(t, stopped)
	close(proceed)
	require.NoError(t, <-stopped)
	require.True(t, read.Load())
	<-computed
	_, err = of.Get(t.Context(), stats.Windows()[1], stats.Filter{})
	require.Error(t, err)
}
