package storetest_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// held is a transaction that stays open after its work until it is let go.
type held struct {
	release func()
	result  chan error
}

// hold runs fn and returns once it has run, its transaction still open.
func hold(t *testing.T, db *storetest.DB, fn func(*store.Tx) error) *held {
	t.Helper()
	release, ran := make(chan struct{}), make(chan struct{})
	h := &held{release: sync.OnceFunc(func() { close(release) }), result: make(chan error, 1)}
	t.Cleanup(h.release)
	go func() {
		h.result <- db.Write(context.Background(), func(tx *store.Tx) error {
			err := fn(tx)
			close(ran)
			<-release
			return err
		})
	}()
	<-ran
	return h
}

// commit lets the transaction go and waits for its end.
func (h *held) commit(t *testing.T) {
	t.Helper()
	h.release()
	require.NoError(t, <-h.result)
}

// behind starts fn and returns once it waits for a lock, or has ended.
func behind(t *testing.T, db *storetest.DB, fn func(*store.Tx) error) <-chan error {
	t.Helper()
	watch, err := sql.Open("pgx", db.Options.DatabaseURL)
	require.NoError(t, err)
	defer func() { require.NoError(t, watch.Close()) }()
	result := make(chan error, 1)
	go func() { result <- db.Write(context.Background(), fn) }()
	require.Eventually(t, func() bool {
		var waiting int
		err := watch.QueryRowContext(context.Background(),
			"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&waiting)
		return err == nil && (waiting > 0 || len(result) > 0)
	}, time.Minute, 5*time.Millisecond)
	return result
}

func TestOverlappingEvents(t *testing.T) {
	t.Parallel()
	number := func(tx *store.Tx) error { _, _, err := tx.Events().Number(1000); return err }

	overlapping(t, "AreNumberedInCommitOrder", func(t *testing.T, db *storetest.DB) {
		slow := hold(t, db, func(tx *store.Tx) error { return emitAll(tx, "slow") })
		emit(t, db, "quick")
		numberAll(t, db)
		require.Equal(t, []string{"quick"}, keysOf(allEvents(t, db)))
		slow.commit(t)
		numberAll(t, db)
		got := allEvents(t, db)
		require.Equal(t, []string{"quick", "slow"}, keysOf(got))
		requireGapless(t, got)
	})

	overlapping(t, "AreNumberedByOneRelayAtATime", func(t *testing.T, db *storetest.DB) {
		slow := hold(t, db, func(tx *store.Tx) error { return emitAll(tx, "slow") })
		emit(t, db, "quick")
		first := hold(t, db, number) // sees the quick one only
		slow.commit(t)
		second := behind(t, db, number)
		first.commit(t)
		require.NoError(t, <-second)
		got := allEvents(t, db)
		require.Equal(t, []string{"quick", "slow"}, keysOf(got))
		requireGapless(t, got)
	})
}

func TestOverlappingClaims(t *testing.T) {
	t.Parallel()
	overlapping(t, "PassEachOther", func(t *testing.T, db *storetest.DB) {
		enqueue(t, db, store.Job{Kind: "work", Key: "a"}, store.Job{Kind: "work", Key: "b"}, store.Job{Kind: "work", Key: "c"})
		var got []store.Job
		first := hold(t, db, func(tx *store.Tx) (err error) {
			got, err = tx.Jobs().Claim([]string{"work"}, 2, time.Minute)
			return err
		})
		require.Equal(t, []string{"c"}, jobKeys(claim(t, db, 2)), "without waiting for the first")
		first.commit(t)
		require.ElementsMatch(t, []string{"a", "b"}, jobKeys(got))
		require.Empty(t, claim(t, db, 2))
	})
}

func TestOverlappingRevocations(t *testing.T) {
	t.Parallel()
	overlapping(t, "CannotEachSpareTheOthersToken", func(t *testing.T, db *storetest.DB) {
		errLast := errors.New("the last one")
		save(t, db, token(db, "a", models.ScopeAdmin), token(db, "b", models.ScopeAdmin))
		revoke := func(id string) func(*store.Tx) error {
			return func(tx *store.Tx) error {
				admins, err := tx.Tokens().LockAdmins()
				if err != nil {
					return err
				}
				if len(admins) < 2 {
					return errLast
				}
				victim := token(db, id, models.ScopeAdmin)
				victim.RevokedAt = new(tx.Now())
				return tx.Tokens().Save(victim)
			}
		}
		first := hold(t, db, revoke("a"))
		second := behind(t, db, revoke("b"))
		first.commit(t)
		require.ErrorIs(t, <-second, errLast)
	})
}

func TestOverlappingAgents(t *testing.T) {
	t.Parallel()

	overlapping(t, "AChildWaitsForTheDeactivationOfItsParent", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		retired := specialist(db, "health", "orch-a")
		retired.IsActive = false
		first := hold(t, db, func(tx *store.Tx) error {
			before, err := tx.Agents().Lock("health")
			return errors.Join(err, tx.Agents().Update(before, retired))
		})
		second := behind(t, db, func(tx *store.Tx) error {
			parent, err := tx.Agents().LockShared("health")
			if err == nil && !parent.IsActive {
				return errStop
			}
			return errors.Join(err, tx.Agents().Insert(assistant(db, "late", "health")))
		})
		first.commit(t)
		require.ErrorIs(t, <-second, errStop)
	})

	overlapping(t, "ChildrenOfOneParentDoNotWaitForEachOther", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		add := func(id string) func(*store.Tx) error {
			return func(tx *store.Tx) error {
				_, err := tx.Agents().LockShared("health")
				return errors.Join(err, tx.Agents().Insert(assistant(db, id, "health")))
			}
		}
		first := hold(t, db, add("one"))
		write(t, db, add("two"))
		first.commit(t)
	})
}

func TestADeadlockIsRunAgain(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"Returned", "Swallowed"} {
		overlapping(t, how, func(t *testing.T, db *storetest.DB) {
			smallTree(t, db)
			var runs atomic.Int32
			var bothHoldOne sync.WaitGroup
			bothHoldOne.Add(2)
			lockBoth := func(first, second string) error {
				meet := sync.OnceFunc(func() { bothHoldOne.Done(); bothHoldOne.Wait() })
				return db.Write(context.Background(), func(tx *store.Tx) error {
					runs.Add(1)
					if _, err := tx.Agents().Lock(first); err != nil {
						return err
					}
					meet()
					_, err := tx.Agents().Lock(second)
					if how == "Swallowed" {
						return nil
					}
					return err
				})
			}
			results := make(chan error, 2)
			go func() { results <- lockBoth("finance", "health") }()
			go func() { results <- lockBoth("health", "finance") }()
			require.NoError(t, errors.Join(<-results, <-results))
			require.GreaterOrEqual(t, runs.Load(), int32(3), "the victim ran again")
		})
	}
}
