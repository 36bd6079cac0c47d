package storetest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/events"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// numberAll numbers what has been committed.
func numberAll(t *testing.T, db *storetest.DB) {
	t.Helper()
	for more := true; more; {
		write(t, db, func(tx *store.Tx) error {
			after, upTo, err := tx.Events().Number(1000)
			more = upTo > after
			return err
		})
	}
}

// pending requires that committed events wait for Number, or that none does.
func pending(t *testing.T, db *storetest.DB, want bool) {
	t.Helper()
	waiting, err := db.Events(t.Context()).Pending()
	require.NoError(t, err)
	require.Equal(t, want, waiting)
}

func emit(t *testing.T, db *storetest.DB, keys ...string) {
	t.Helper()
	write(t, db, func(tx *store.Tx) error { return emitAll(tx, keys...) })
}

func emitAll(tx *store.Tx, keys ...string) error {
	for _, key := range keys {
		if err := tx.Events().Emit(events.AgentUpdated, key, map[string]any{"key": key}); err != nil {
			return err
		}
	}
	return nil
}

// allEvents reads everything that has a position, in small pages.
func allEvents(t *testing.T, db *storetest.DB) []models.Event {
	t.Helper()
	var all []models.Event
	after := int64(0)
	for {
		page, err := db.Events(t.Context()).After(after, 100)
		require.NoError(t, err)
		if len(page) == 0 {
			return all
		}
		all = append(all, page...)
		after = all[len(all)-1].Position
	}
}

func keysOf(events []models.Event) []string {
	out := make([]string, 0, len(events))
	for _, e := range events {
		out = append(out, e.Key)
	}
	return out
}

func requireGapless(t *testing.T, events []models.Event) {
	t.Helper()
	for i, e := range events {
		require.EqualValues(t, i+1, e.Position)
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()

	rule(t, "KeepEveryField", func(t *testing.T, db *storetest.DB) {
		write(t, db, func(tx *store.Tx) error {
			return tx.Events().Emit(events.TokenCreated, "clé", map[string]any{"é": nil, "n": 1, "s": "<\x00>"})
		})
		numberAll(t, db)
		got := allEvents(t, db)
		require.Len(t, got, 1)
		require.Len(t, got[0].ID, 36)
		want := models.Event{ID: got[0].ID, Position: 1, Type: events.TokenCreated, Key: "clé", At: db.Now()}
		require.JSONEq(t, `{"é": null, "n": 1, "s": "<\u0000>"}`, string(got[0].Data))
		got[0].Data = nil
		require.Equal(t, want, got[0])
	})

	overlapping(t, "AreInvisibleUntilNumbered", func(t *testing.T, db *storetest.DB) {
		emit(t, db, "a", "b")
		require.Empty(t, allEvents(t, db))
		pending(t, db, true)
		numberAll(t, db)
		require.Equal(t, []string{"a", "b"}, keysOf(allEvents(t, db)))
		pending(t, db, false)
	})

	rule(t, "WaitForNumberOnce", func(t *testing.T, db *storetest.DB) {
		pending(t, db, false)
		emit(t, db, "a", "b")
		pending(t, db, true)
		numberAll(t, db)
		pending(t, db, false)
	})

	rule(t, "OfAFailedTransactionLeaveNoGap", func(t *testing.T, db *storetest.DB) {
		boom := errors.New("boom")
		for i := range 10 {
			emit(t, db, fmt.Sprint("kept-", i))
			require.ErrorIs(t, db.Write(t.Context(), func(tx *store.Tx) error { return errors.Join(emitAll(tx, "lost"), boom) }), boom)
			if i%3 == 0 {
				numberAll(t, db)
			}
		}
		numberAll(t, db)
		got := allEvents(t, db)
		require.Len(t, got, 10)
		requireGapless(t, got)
		require.NotContains(t, keysOf(got), "lost")
	})

	rule(t, "AreNumberedUpToALimitAtATime", func(t *testing.T, db *storetest.DB) {
		write(t, db, func(tx *store.Tx) error {
			for i := range 1500 {
				if err := emitAll(tx, fmt.Sprintf("%04d", i)); err != nil {
					return err
				}
			}
			return nil
		})
		for _, want := range []struct{ after, upTo int64 }{{0, 1000}, {1000, 1500}, {1500, 1500}} {
			write(t, db, func(tx *store.Tx) error {
				after, upTo, err := tx.Events().Number(1000)
				require.Equal(t, want.after, after)
				require.Equal(t, want.upTo, upTo)
				return err
			})
		}
		got := allEvents(t, db)
		require.Len(t, got, 1500)
		requireGapless(t, got)
		require.IsIncreasing(t, keysOf(got))
	})

	rule(t, "AreSignalledAfterTheirCommit", func(t *testing.T, db *storetest.DB) {
		require.ErrorIs(t, db.Write(t.Context(), func(tx *store.Tx) error { return errors.Join(emitAll(tx, "lost"), errStop) }), errStop)
		require.Empty(t, db.EventsWritten(), "nothing was committed")
		write(t, db, func(*store.Tx) error { return nil })
		require.Empty(t, db.EventsWritten(), "nothing of interest was committed")
		emit(t, db, "a")
		emit(t, db, "b")
		<-db.EventsWritten()
		require.Empty(t, db.EventsWritten(), "one signal tells of any number")
	})

	rule(t, "OfOneKeyAreInTheOrderOfItsChanges", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		const writers, rounds = 8, 25
		agents := []string{"finance", "health", "bills"}
		var wg sync.WaitGroup
		failures := make(chan error, writers)
		for w := range writers {
			wg.Go(func() {
				for i := range rounds {
					if err := bump(db, agents[(w+i)%len(agents)]); err != nil {
						failures <- err
						return
					}
				}
			})
		}
		stopped := make(chan struct{})
		var numbering sync.WaitGroup
		for range 2 { // relays of two replicas
			numbering.Go(func() {
				for {
					select {
					case <-stopped:
						return
					default:
						_ = db.Write(context.Background(), func(tx *store.Tx) error { _, _, err := tx.Events().Number(1000); return err })
					}
				}
			})
		}
		wg.Wait()
		close(stopped)
		numbering.Wait()
		require.Empty(t, failures)
		numberAll(t, db)
		got := allEvents(t, db)
		require.Len(t, got, writers*rounds)
		requireGapless(t, got)
		version := map[string]int64{"finance": 1, "health": 1, "bills": 1}
		for _, e := range got {
			var next int64
			require.NoError(t, json.Unmarshal(e.Data, &next))
			require.Equal(t, version[e.Key]+1, next, "at position %d", e.Position)
			version[e.Key] = next
		}
	})
}

// bump counts an agent's version up and tells of it.
func bump(db *storetest.DB, id string) error {
	return db.Write(context.Background(), func(tx *store.Tx) error {
		before, err := tx.Agents().Lock(id)
		if err != nil {
			return err
		}
		after := before
		after.Version++
		if err := tx.Agents().Update(before, after); err != nil {
			return err
		}
		return tx.Events().Emit(events.AgentUpdated, id, after.Version)
	})
}

func TestPurgeEvents(t *testing.T) {
	t.Parallel()
	rule(t, "DeletesTheOldestNumberedOnesAndNeverReusesAPosition", func(t *testing.T, db *storetest.DB) {
		start := db.Now()
		for i := range 5 {
			emit(t, db, fmt.Sprint(i))
			db.Clock.Advance(time.Second)
		}
		purge := func(before time.Time, limit int, want int64) {
			t.Helper()
			write(t, db, func(tx *store.Tx) error {
				n, err := tx.Events().Purge(before, limit)
				require.Equal(t, want, n)
				return err
			})
		}
		purge(db.Now().Add(time.Hour), 10, 0) // none has a position yet
		numberAll(t, db)
		purge(start.Add(3*time.Second), 2, 2)
		purge(start.Add(3*time.Second), 2, 1)
		require.Equal(t, []string{"3", "4"}, keysOf(allEvents(t, db)))
		purge(db.Now().Add(time.Hour), 10, 2)
		last, err := db.Events(t.Context()).LastPosition()
		require.NoError(t, err)
		require.EqualValues(t, 5, last)
		emit(t, db, "next")
		numberAll(t, db)
		require.EqualValues(t, 6, allEvents(t, db)[0].Position)
	})

	rule(t, "PassesEventsThatWereEmittedWithAClockAhead", func(t *testing.T, db *storetest.DB) {
		db.Clock.Advance(time.Hour)
		emit(t, db, "ahead")
		db.Clock.Advance(-time.Hour)
		for i := range 3 {
			emit(t, db, fmt.Sprint(i))
		}
		numberAll(t, db)
		for _, want := range []int64{2, 1, 0} {
			write(t, db, func(tx *store.Tx) error {
				n, err := tx.Events().Purge(db.Now().Add(time.Second), 2)
				require.Equal(t, want, n)
				return err
			})
		}
		require.Equal(t, []string{"ahead"}, keysOf(allEvents(t, db)))
	})
}
