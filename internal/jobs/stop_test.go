package jobs_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/jobs"
	"comet/internal/testkit"
	"comet/store"
	"comet/store/storetest"
)

// watchedContext reports when a caller begins to wait for its end.
type watchedContext struct {
	context.Context
	once   sync.Once
	waited chan struct{}
}

func (c *watchedContext) Done() <-chan struct{} {
	c.once.Do(func() { close(c.waited) })
	return c.Context.Done()
}

func TestStop(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(context.Background())
	cancel()

	rule(t, "LetsARunningHandlerFinishAndClaimsNothingMore", func(t *testing.T, db *storetest.DB) {
		began, release := make(chan struct{}, 10), make(chan struct{})
		r := jobs.New(db.Store, &jobs.Options{Workers: 1, Poll: time.Millisecond})
		r.Handle("work", func(ctx context.Context, _ *jobs.Job) error {
			began <- struct{}{}
			<-release
			return ctx.Err()
		}, jobs.Policy{})
		require.NoError(t, r.Start(t.Context()))
		require.NoError(t, r.Start(t.Context()), "twice is fine")
		enqueue(t, db.Store, store.Job{Kind: "work", Key: "first"}, store.Job{Kind: "work", Key: "second"})
		testkit.Receive(t, began)
		stopped := make(chan error, 2)
		for range cap(stopped) {
			patience := &watchedContext{Context: context.Background(), waited: make(chan struct{})}
			go func() { stopped <- r.Stop(patience) }()
			testkit.Receive(t, patience.waited) // so the runner has been told
		}
		require.Empty(t, stopped)
		close(release)
		require.NoError(t, testkit.Receive(t, stopped))
		require.NoError(t, testkit.Receive(t, stopped))
		left := claimAll(t, db.Store, "work")
		require.Len(t, left, 1, "one was finished")
		require.Equal(t, 1, left[0].Attempt, "the other was never claimed")
		require.Empty(t, began)
	})

	rule(t, "EndsTheHandlersContextInTheEndAndPutsTheJobBack", func(t *testing.T, db *storetest.DB) {
		began := make(chan struct{}, 1)
		r := jobs.New(db.Store, often())
		r.Handle("work", func(ctx context.Context, _ *jobs.Job) error {
			began <- struct{}{}
			<-ctx.Done()
			return errors.New("cut off")
		}, jobs.Policy{MaxAttempts: 1})
		require.NoError(t, r.Start(t.Context()))
		enqueue(t, db.Store, store.Job{Kind: "work"})
		testkit.Receive(t, began)
		require.NoError(t, r.Stop(ended), "everything has ended")
		left := claimAll(t, db.Store, "work")
		require.Len(t, left, 1, "due at once, for another replica")
		require.Equal(t, 1, left[0].Attempt, "being stopped is not a failure")
	})

	rule(t, "KeepsWhatAHandlerAchievedAfterItsContextEnded", func(t *testing.T, db *storetest.DB) {
		began := make(chan struct{}, 1)
		r := jobs.New(db.Store, often())
		r.Handle("work", func(ctx context.Context, _ *jobs.Job) error {
			began <- struct{}{}
			<-ctx.Done()
			return nil
		}, jobs.Policy{})
		require.NoError(t, r.Start(t.Context()))
		enqueue(t, db.Store, store.Job{Kind: "work"})
		testkit.Receive(t, began)
		require.NoError(t, r.Stop(ended))
		requireGone(t, db.Store, "work")
	})

	rule(t, "GivesUpOnAHandlerThatDoesNotReturn", func(t *testing.T, db *storetest.DB) {
		began, release := make(chan struct{}, 1), make(chan struct{})
		opts := often()
		opts.Grace = 10 * time.Millisecond
		r := jobs.New(db.Store, opts)
		r.Handle("work", func(context.Context, *jobs.Job) error {
			began <- struct{}{}
			<-release
			return nil
		}, jobs.Policy{})
		require.NoError(t, r.Start(t.Context()))
		enqueue(t, db.Store, store.Job{Kind: "work"})
		testkit.Receive(t, began)
		require.ErrorIs(t, r.Stop(ended), context.Canceled)
		require.Empty(t, claimAll(t, db.Store, "work"), "it still runs, so it cannot be claimed")
		close(release)
		require.NoError(t, r.Stop(context.Background()))
		requireGone(t, db.Store, "work")
	})

	rule(t, "UnderLoadLosesNoJob", func(t *testing.T, db *storetest.DB) {
		const n = 120
		for range n {
			enqueue(t, db.Store, store.Job{Kind: "work"})
		}
		ran := make(chan jobs.Job, 10*n)
		for range 6 { // each is stopped after a few jobs, without patience
			r := jobs.New(db.Store, often())
			r.Handle("work", done(ran), jobs.Policy{})
			require.NoError(t, r.Start(t.Context()))
			testkit.Receive(t, ran)
			require.NoError(t, r.Stop(ended))
		}
		first := len(ran) + 6
		rest := claimAll(t, db.Store, "work")
		require.Equal(t, n, first+len(rest), "each was finished or is due at once")
	})

	t.Run("WithoutStartIsFine", func(t *testing.T) {
		t.Parallel()
		db := storetest.Open(t, "sqlite")
		require.NoError(t, jobs.New(db.Store, nil).Stop(t.Context()))
	})
}
