package storetest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/store"
	"comet/store/storetest"
)

func enqueue(t *testing.T, db *storetest.DB, jobs ...store.Job) {
	t.Helper()
	write(t, db, func(tx *store.Tx) error {
		for _, j := range jobs {
			written, err := tx.Jobs().Enqueue(j)
			if err != nil {
				return err
			}
			require.True(t, written)
		}
		return nil
	})
}

// claim leases up to limit jobs of the kind "work" for a minute.
func claim(t *testing.T, db *storetest.DB, limit int) []store.Job {
	t.Helper()
	var out []store.Job
	write(t, db, func(tx *store.Tx) (err error) {
		out, err = tx.Jobs().Claim([]string{"work"}, limit, time.Minute)
		return err
	})
	return out
}

func jobKeys(jobs []store.Job) []string {
	out := []string{}
	for _, j := range jobs {
		out = append(out, j.Key)
	}
	return out
}

func TestEnqueue(t *testing.T) {
	t.Parallel()

	rule(t, "KeepsEveryField", func(t *testing.T, db *storetest.DB) {
		enqueue(t, db, store.Job{Kind: "work", Key: "clé", Payload: json.RawMessage(`{"é": "<\u0000>"}`)}, store.Job{Kind: "other"})
		got := claim(t, db, 10)
		require.Len(t, got, 1)
		require.Len(t, got[0].ID, 36)
		require.NotEmpty(t, got[0].Lease)
		require.Equal(t, store.Job{
			ID: got[0].ID, Kind: "work", Key: "clé", Payload: json.RawMessage(`{"é": "<\u0000>"}`), Attempt: 1,
			Lease: got[0].Lease, LeaseUntil: db.Now().Add(time.Minute),
		}, got[0])
	})

	rule(t, "WritesAKeyOnceAKindWhileItIsNotFinished", func(t *testing.T, db *storetest.DB) {
		add := func(kind, key string) (written bool) {
			t.Helper()
			write(t, db, func(tx *store.Tx) (err error) {
				written, err = tx.Jobs().Enqueue(store.Job{Kind: kind, Key: key})
				return err
			})
			return written
		}
		require.True(t, add("work", "a"))
		require.False(t, add("work", "a"))
		require.True(t, add("work", "b"))
		require.True(t, add("other", "a"))
		require.True(t, add("work", ""), "no key, no limit")
		require.True(t, add("work", ""))
		claimed := claim(t, db, 10)
		require.Len(t, claimed, 4)
		require.False(t, add("work", "a"), "a claimed job is not finished")
		write(t, db, func(tx *store.Tx) error {
			for _, j := range claimed {
				if err := tx.Jobs().Finish(j); err != nil {
					return err
				}
			}
			return nil
		})
		require.True(t, add("work", "a"))
	})

	rule(t, "WritesOneOfManyConcurrentJobsWithOneKey", func(t *testing.T, db *storetest.DB) {
		const callers = 8
		written := make(chan bool, callers)
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				var one bool
				err := db.Write(context.Background(), func(tx *store.Tx) (err error) {
					one, err = tx.Jobs().Enqueue(store.Job{Kind: "work", Key: "a"})
					return err
				})
				written <- one && err == nil
			})
		}
		wg.Wait()
		close(written)
		n := 0
		for one := range written {
			if one {
				n++
			}
		}
		require.Equal(t, 1, n)
		require.Len(t, claim(t, db, 10), 1)
	})

	rule(t, "CommitsWithTheStateAndIsSignalledAfterwards", func(t *testing.T, db *storetest.DB) {
		err := db.Write(t.Context(), func(tx *store.Tx) error {
			_, err := tx.Jobs().Enqueue(store.Job{Kind: "work"})
			return errors.Join(err, errStop)
		})
		require.ErrorIs(t, err, errStop)
		require.Empty(t, db.JobsWritten())
		require.Empty(t, claim(t, db, 10))
		enqueue(t, db, store.Job{Kind: "work"})
		require.Len(t, db.JobsWritten(), 1)
	})
}

func TestClaimJobs(t *testing.T) {
	t.Parallel()

	rule(t, "TakesTheEarliestDueOfItsKinds", func(t *testing.T, db *storetest.DB) {
		for i, key := range []string{"third", "first", "second"} {
			enqueue(t, db, store.Job{Kind: "work", Key: key, RunAt: db.Now().Add(-time.Duration([]int{1, 3, 2}[i]) * time.Second)})
		}
		enqueue(t, db, store.Job{Kind: "work", Key: "later", RunAt: db.Now().Add(time.Microsecond)},
			store.Job{Kind: "unknown", RunAt: db.Now().Add(-time.Hour)})
		require.ElementsMatch(t, []string{"first", "second"}, jobKeys(claim(t, db, 2)))
		require.Equal(t, []string{"third"}, jobKeys(claim(t, db, 2)))
		require.Empty(t, claim(t, db, 2))
		db.Clock.Advance(time.Microsecond)
		require.Equal(t, []string{"later"}, jobKeys(claim(t, db, 2)))
	})

	rule(t, "TakesNothingForNoKinds", func(t *testing.T, db *storetest.DB) {
		enqueue(t, db, store.Job{Kind: "work"})
		write(t, db, func(tx *store.Tx) error {
			got, err := tx.Jobs().Claim(nil, 10, time.Minute)
			require.Empty(t, got)
			return err
		})
	})

	rule(t, "TakesAJobOverWhenItsLeaseRanOut", func(t *testing.T, db *storetest.DB) {
		enqueue(t, db, store.Job{Kind: "work", Key: "a"})
		first := claim(t, db, 10)[0]
		db.Clock.Advance(time.Minute - time.Microsecond)
		require.Empty(t, claim(t, db, 10))
		db.Clock.Advance(time.Microsecond)
		second := claim(t, db, 10)[0]
		require.Equal(t, first.ID, second.ID)
		require.Equal(t, 2, second.Attempt)
		require.NotEqual(t, first.Lease, second.Lease)
	})

	rule(t, "NeverSharesAJobBetweenConcurrentClaimers", func(t *testing.T, db *storetest.DB) {
		const jobs, claimers = 200, 8
		for i := range jobs {
			enqueue(t, db, store.Job{Kind: "work", Key: fmt.Sprint(i)})
		}
		var mu sync.Mutex
		claimed := map[string]int{}
		failures := make(chan error, claimers)
		var wg sync.WaitGroup
		for range claimers {
			wg.Go(func() {
				for total := 0; total < jobs; {
					var got []store.Job
					err := db.Write(context.Background(), func(tx *store.Tx) (err error) {
						got, err = tx.Jobs().Claim([]string{"work"}, 7, time.Minute)
						return err
					})
					if err != nil || len(got) > 7 {
						failures <- fmt.Errorf("%d jobs: %w", len(got), err)
						return
					}
					mu.Lock()
					for _, j := range got {
						claimed[j.Key]++
					}
					total = len(claimed)
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		require.Empty(t, failures)
		require.Len(t, claimed, jobs)
		for key, n := range claimed {
			require.Equal(t, 1, n, key)
		}
	})
}

func TestClaimedJobs(t *testing.T) {
	t.Parallel()
	operations := map[string]func(tx *store.Tx, j store.Job) error{
		"Finish":  func(tx *store.Tx, j store.Job) error { return tx.Jobs().Finish(j) },
		"Retry":   func(tx *store.Tx, j store.Job) error { return tx.Jobs().Retry(j, tx.Now(), "x") },
		"Release": func(tx *store.Tx, j store.Job) error { return tx.Jobs().Release(j) },
	}
	for name, do := range operations {
		rule(t, name+"ReturnsErrLeaseLostOnceAnotherHasTheJob", func(t *testing.T, db *storetest.DB) {
			enqueue(t, db, store.Job{Kind: "work"})
			first := claim(t, db, 10)[0]
			db.Clock.Advance(time.Minute)
			second := claim(t, db, 10)[0]
			try := func(j store.Job) error {
				return db.Write(t.Context(), func(tx *store.Tx) error { return do(tx, j) })
			}
			require.ErrorIs(t, try(first), store.ErrLeaseLost)
			require.NoError(t, try(second))
			require.ErrorIs(t, try(second), store.ErrLeaseLost, "it is over")
		})

		rule(t, name+"WorksAfterTheLeaseUntilAnotherWorkerClaims", func(t *testing.T, db *storetest.DB) {
			enqueue(t, db, store.Job{Kind: "work"})
			j := claim(t, db, 10)[0]
			db.Clock.Advance(time.Hour)
			write(t, db, func(tx *store.Tx) error { return do(tx, j) })
		})
	}

	rule(t, "AreDueAgainWhenRetried", func(t *testing.T, db *storetest.DB) {
		enqueue(t, db, store.Job{Kind: "work", Key: "a"})
		j := claim(t, db, 10)[0]
		<-db.JobsWritten()
		write(t, db, func(tx *store.Tx) error { return tx.Jobs().Retry(j, db.Now().Add(5*time.Second), "boom") })
		require.Len(t, db.JobsWritten(), 1, "a waiting worker must look again")
		require.Empty(t, claim(t, db, 10))
		db.Clock.Advance(5 * time.Second)
		require.Equal(t, 2, claim(t, db, 10)[0].Attempt)
	})

	rule(t, "AreDueAtOnceWhenReleasedAndTheAttemptIsNotCounted", func(t *testing.T, db *storetest.DB) {
		enqueue(t, db, store.Job{Kind: "work", Key: "a"})
		j := claim(t, db, 10)[0]
		<-db.JobsWritten()
		write(t, db, func(tx *store.Tx) error { return tx.Jobs().Release(j) })
		require.Len(t, db.JobsWritten(), 1)
		require.Equal(t, 1, claim(t, db, 10)[0].Attempt)
	})

	rule(t, "StoreAnyReasonForAFailure", func(t *testing.T, db *storetest.DB) {
		for _, reason := range []string{"", strings.Repeat("é", 900), "nul\x00", "\xff\xfe not UTF-8", strings.Repeat("日", 400)} {
			enqueue(t, db, store.Job{Kind: "work"})
			j := claim(t, db, 1)[0]
			write(t, db, func(tx *store.Tx) error { return tx.Jobs().Retry(j, tx.Now(), reason) })
			j = claim(t, db, 1)[0]
			write(t, db, func(tx *store.Tx) error { return tx.Jobs().Finish(j) })
		}
	})
}

func TestNextJobAt(t *testing.T) {
	t.Parallel()
	rule(t, "IsTheNextDueTimeOrTheEndOfALease", func(t *testing.T, db *storetest.DB) {
		next := func() time.Time {
			t.Helper()
			at, ok, err := db.Jobs(t.Context()).NextAt([]string{"work", "more"})
			require.NoError(t, err)
			require.Equal(t, ok, at != time.Time{})
			return at
		}
		require.Zero(t, next())
		enqueue(t, db, store.Job{Kind: "unknown"})
		require.Zero(t, next())
		enqueue(t, db, store.Job{Kind: "more", RunAt: db.Now().Add(time.Hour)})
		require.Equal(t, db.Now().Add(time.Hour), next())
		enqueue(t, db, store.Job{Kind: "work"})
		require.Equal(t, db.Now(), next())
		claim(t, db, 1)
		require.Equal(t, db.Now().Add(time.Minute), next())
	})

	rule(t, "ReportsDueJobsOfOtherKinds", func(t *testing.T, db *storetest.DB) {
		enqueue(t, db, store.Job{Kind: "work"}, store.Job{Kind: "later", RunAt: db.Now().Add(time.Hour)},
			store.Job{Kind: "b", RunAt: db.Now().Add(-1 * time.Second)}, store.Job{Kind: "a", RunAt: db.Now().Add(-2 * time.Second)})
		known := []string{}
		for _, want := range []string{"a", "b", "work"} {
			kind, ok, err := db.Jobs(t.Context()).OtherDue(known)
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, want, kind)
			known = append(known, kind)
		}
		_, ok, err := db.Jobs(t.Context()).OtherDue(known)
		require.NoError(t, err)
		require.False(t, ok)
	})
}
