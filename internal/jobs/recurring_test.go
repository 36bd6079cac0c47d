package jobs_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/jobs"
	"comet/internal/testkit"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

func TestEvery(t *testing.T) {
	t.Parallel()

	rule(t, "RunsOnceAnIntervalOverAllReplicas", func(t *testing.T, db *storetest.DB) {
		ran := make(chan jobs.Job, 100)
		for range 3 {
			r := jobs.New(db.Store, often())
			r.Every("sweep", time.Hour, func(context.Context) error { ran <- jobs.Job{}; return nil })
			r.Handle("work", done(ran), jobs.Policy{})
			start(t, r)
		}
		for range 4 {
			testkit.Receive(t, ran)
			require.Eventually(t, func() bool {
				at, found, err := db.Jobs(context.Background()).NextAt([]string{"sweep"})
				return err == nil && found && at.Equal(db.Now().Add(time.Hour))
			}, time.Minute, 5*time.Millisecond)
			requireRunning(t, db.Store, ran) // and none of the three has swept again
			db.Clock.Advance(time.Hour)
		}
	})

	rule(t, "TheNextRunIsDueAnIntervalAfterTheStart", func(t *testing.T, db *storetest.DB) {
		begun, end := make(chan jobs.Job, 100), make(chan bool)
		opts := often()
		opts.Lease = time.Hour
		r := jobs.New(db.Store, opts)
		r.Every("sweep", time.Minute, func(context.Context) error { begun <- jobs.Job{}; <-end; return nil })
		start(t, r)
		for range 3 {
			testkit.Receive(t, begun)
			db.Clock.Advance(time.Minute) // a run does not see what became due after its start
			end <- true
		}
		testkit.Receive(t, begun)
		close(end)
	})

	rule(t, "ARestartDoesNotRunItEarly", func(t *testing.T, db *storetest.DB) {
		ran := make(chan jobs.Job, 100)
		for i := range 3 {
			r := jobs.New(db.Store, often())
			r.Every("sweep", time.Hour, func(context.Context) error { ran <- jobs.Job{}; return nil })
			r.Handle("work", done(ran), jobs.Policy{})
			require.NoError(t, r.Start(t.Context()))
			if i == 0 {
				testkit.Receive(t, ran)
			}
			requireRunning(t, db.Store, ran)
			require.NoError(t, r.Stop(t.Context()))
		}
	})

	rule(t, "AFailureIsTriedAgainAtTheLatestAfterTheInterval", func(t *testing.T, db *storetest.DB) {
		attempts := make(chan bool, 100)
		r := jobs.New(db.Store, often())
		r.Every("sweep", time.Second, func(context.Context) error { attempts <- true; return errBoom })
		start(t, r)
		for range 12 {
			testkit.Receive(t, attempts)
			require.Eventually(t, func() bool {
				at, found, err := db.Jobs(context.Background()).NextAt([]string{"sweep"})
				return err == nil && found && at.After(db.Now()) && !at.After(db.Now().Add(time.Second))
			}, time.Minute, 5*time.Millisecond)
			db.Clock.Advance(time.Second)
		}
	})
}

// TestTime lets the runner's timers run on a clock that jumps whenever every goroutine
// waits. PostgreSQL's network would keep it from jumping.
func TestTime(t *testing.T) {
	t.Parallel()

	// world opens a store whose time is the bubble's.
	world := func(t *testing.T) *store.Store {
		t.Helper()
		s, err := store.Open(t.Context(), store.Options{Dir: t.TempDir()})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s
	}

	t.Run("ARunnerSleepsUntilTheNextJobIsDue", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := world(t)
			ran := make(chan time.Time, 1)
			r := jobs.New(s, &jobs.Options{Poll: 24 * time.Hour})
			r.Handle("work", func(context.Context, *jobs.Job) error { ran <- time.Now(); return nil }, jobs.Policy{})
			start(t, r)
			begun := time.Now()
			enqueue(t, s, store.Job{Kind: "work", RunAt: begun.Add(90 * time.Minute)})
			require.Equal(t, 90*time.Minute, (<-ran).Sub(begun))
		})
	})

	t.Run("ARecurringJobRecurs", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := world(t)
			ran := make(chan time.Time)
			r := jobs.New(s, &jobs.Options{Poll: 24 * time.Hour})
			r.Every("sweep", time.Hour, func(context.Context) error { ran <- time.Now(); return nil })
			start(t, r)
			begun := <-ran
			for i := range 24 {
				require.Equal(t, time.Duration(i+1)*time.Hour, (<-ran).Sub(begun).Round(time.Minute))
			}
		})
	})

	t.Run("FailuresAreTriedAgainLessAndLessOften", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := world(t)
			ran := make(chan time.Time)
			r := jobs.New(s, &jobs.Options{Poll: 24 * time.Hour})
			r.Handle("work", func(context.Context, *jobs.Job) error { ran <- time.Now(); return errBoom },
				jobs.Policy{MaxAttempts: 14, Backoff: time.Second, MaxBackoff: 10 * time.Minute})
			start(t, r)
			enqueue(t, s, store.Job{Kind: "work"})
			last := <-ran
			for i := range 13 {
				at := <-ran
				base := min(time.Second<<i, 10*time.Minute)
				require.GreaterOrEqual(t, at.Sub(last), base/2, "after attempt %d", i+1)
				require.LessOrEqual(t, at.Sub(last), min(base*3/2, 10*time.Minute)+time.Second, "after attempt %d", i+1)
				last = at
			}
		})
	})

	t.Run("LongRecurringWorkGoesOnWithTheNextLease", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r, begun := jobs.New(world(t), &jobs.Options{Lease: 10 * time.Minute}), make(chan time.Time)
			r.Every("sweep", time.Hour, func(ctx context.Context) error { begun <- time.Now(); <-ctx.Done(); return ctx.Err() })
			start(t, r)
			first := <-begun
			require.Equal(t, 9*time.Minute, (<-begun).Sub(first).Round(time.Second))
			require.Equal(t, 18*time.Minute, (<-begun).Sub(first).Round(time.Second))
		})
	})

	t.Run("AHandlersContextEndsBeforeItsLease", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := world(t)
			took := make(chan time.Duration)
			r := jobs.New(s, &jobs.Options{Lease: 10 * time.Minute, Poll: 24 * time.Hour})
			r.Handle("work", func(ctx context.Context, j *jobs.Job) error {
				begun := time.Now()
				<-ctx.Done()
				require.True(t, time.Now().Before(j.LeaseUntil))
				took <- time.Since(begun)
				return ctx.Err()
			}, jobs.Policy{MaxAttempts: 2})
			start(t, r)
			enqueue(t, s, store.Job{Kind: "work"})
			require.Equal(t, 9*time.Minute, (<-took).Round(time.Second))
			require.Equal(t, 9*time.Minute, (<-took).Round(time.Second))
		})
	})
}

func TestPurgeAnswers(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		ask := func(key string) (replayed bool) {
			t.Helper()
			once := &models.Idempotency{
				Principal: "token", Key: key, RequestHash: sha256.Sum256(nil),
				Render: func(any) (models.StoredResponse, error) { return models.StoredResponse{Status: 201}, nil },
			}
			require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error {
				return tx.Idempotent(once, func() (any, error) { return nil, nil })
			}))
			return once.Replay != nil
		}
		require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error {
			for i := range 2100 {
				once := &models.Idempotency{
					Principal: "token", Key: fmt.Sprint("old-", i),
					Render: func(any) (models.StoredResponse, error) { return models.StoredResponse{Status: 201}, nil },
				}
				if err := tx.Idempotent(once, func() (any, error) { return nil, nil }); err != nil {
					return err
				}
			}
			return nil
		}))
		db.Clock.Advance(time.Microsecond)
		require.False(t, ask("young"))
		db.Clock.Advance(store.IdempotencyRetention)
		require.NoError(t, jobs.PurgeStoredResponses(db.Store)(t.Context()))
		require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error {
			n, err := tx.PurgeStoredResponses(db.Now().Add(-time.Hour), 5000)
			require.EqualValues(t, 1, n, "all but the young one were gone")
			return err
		}))
	})
}
