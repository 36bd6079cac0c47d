package store

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/models"
	"comet/store/filter"
)

func emitKeys(keys ...string) func(*Tx) error {
	return func(tx *Tx) error {
		for _, key := range keys {
			if err := tx.Events().Emit("agent.updated", key, map[string]string{"key": key}); err != nil {
				return err
			}
		}
		return nil
	}
}

// storedEvents reads the events from SQL.
func storedEvents(t *testing.T, s *Store) []models.Event {
	t.Helper()
	all, err := list[models.Event](s.on(t.Context()), selectEvents+"ORDER BY position")
	require.NoError(t, err)
	return all
}

// requireEvents requires that the events in SQL and in memory have these keys, at positions without a gap.
func requireEvents(t *testing.T, s *Store, keys ...string) {
	t.Helper()
	stored, got := storedEvents(t, s), []string{}
	for i, e := range stored {
		require.EqualValues(t, i+1, e.Position)
		got = append(got, e.Key)
	}
	require.Equal(t, keys, got)
	held, err := s.Events(t.Context()).After(0, len(stored)+1)
	require.NoError(t, err)
	require.Equal(t, stored, held)
}

func TestPositionsAreGivenInTheCommit(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")

	t.Run("OfMembersThatSucceed", func(t *testing.T) {
		t.Parallel()
		modes(t, func(t *testing.T, savepoints int) {
			s, w := openSQLiteForTest(t)
			w.savepoints = savepoints
			out := oneBatch(t, w, emitKeys("a", "b"),
				func(tx *Tx) error { return errors.Join(emitKeys("lost")(tx), boom) },
				func(*Tx) error { return boom },
				func(tx *Tx) error { _ = emitKeys("lost")(tx); panic("boom") },
				emitKeys("c"))
			require.Equal(t, []error{nil, nil}, []error{out[0], out[4]})
			require.NoError(t, s.Write(t.Context(), emitKeys("d")))
			requireEvents(t, s, "a", "b", "c", "d")
		})
	})

	t.Run("AfterAControlStatementFailed", func(t *testing.T) {
		t.Parallel()
		for _, statement := range []string{begin, commit} {
			s, w := openSQLiteForTest(t)
			failures := 2 // of the batch without and of that with savepoints
			w.conn.FailControl = func(st string) error {
				if st != statement || failures == 0 {
					return nil
				}
				failures--
				return errors.New("disk I/O error")
			}
			out := oneBatch(t, w, emitKeys("a"), emitKeys("b"))
			require.Equal(t, []error{nil, nil}, out)
			requireEvents(t, s, "a", "b")
		}
	})

	t.Run("AfterACommitThatSucceededUnnoticed", func(t *testing.T) {
		t.Parallel()
		s, w := openSQLiteForTest(t)
		ended := false
		w.conn.FailControl = func(st string) error {
			if st != commit || ended {
				return nil
			}
			ended = true
			_, err := w.conn.ExecContext(t.Context(), commit)
			return errors.Join(err, errors.New("disk I/O error"))
		}
		require.NoError(t, s.Write(t.Context(), emitKeys("a"))) // stored twice, because it is run again
		require.NoError(t, s.Write(t.Context(), emitKeys("b")))
		requireEvents(t, s, "a", "a", "b")
	})

	t.Run("AndSurviveAPurgeOfAllEvents", func(t *testing.T) {
		t.Parallel()
		opts := Options{Dir: t.TempDir()}
		s, err := Open(t.Context(), opts)
		require.NoError(t, err)
		require.NoError(t, s.Write(t.Context(), emitKeys("a", "b", "c")))
		purge := func(want int64) {
			require.NoError(t, s.Write(t.Context(), func(tx *Tx) error {
				n, err := tx.Events().Purge(time.Now().Add(time.Hour), 10)
				require.Equal(t, want, n)
				return err
			}))
		}
		purge(0) // their deliveries are not written
		all, err := s.Events(t.Context()).SkipDeliveries(3, nil)
		require.NoError(t, err)
		require.True(t, all)
		purge(3)
		require.Empty(t, storedEvents(t, s))
		require.NoError(t, s.Close())
		s, err = Open(t.Context(), opts)
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		require.NoError(t, s.Write(t.Context(), emitKeys("d")))
		last, err := s.Events(t.Context()).LastPosition()
		require.NoError(t, err)
		require.EqualValues(t, 4, last)
		next, err := s.Events(t.Context()).After(0, 10)
		require.NoError(t, err)
		require.Equal(t, storedEvents(t, s), next)
	})
}

func TestEventLog(t *testing.T) {
	t.Parallel()

	t.Run("AnswersLikeSQL", func(t *testing.T) {
		t.Parallel()
		s, _ := openSQLiteForTest(t)
		types := []models.EventType{"a", "b", "c"}
		for i := range 60 {
			drafts := []EventDraft{}
			for n := range 100 {
				drafts = append(drafts, EventDraft{types[n*i%7%2], fmt.Sprint(i, n), n})
			}
			require.NoError(t, s.Write(t.Context(), func(tx *Tx) error { return tx.Events().EmitAll(drafts) }))
		}
		const head = 6000
		_, recent := s.Events(t.Context()).recent(0, head, nil, 1)
		require.False(t, recent, "older events were dropped")
		for _, after := range []int64{0, 1999, 2000, 3999, 4000, 4001, head - 2, head, head + 5} {
			for _, wanted := range [][]models.EventType{nil, {"a"}, {"b", "c"}, {"c"}} {
				for _, upTo := range []int64{after - 1, after + 10, head} {
					in, args := filter.In(append([]models.EventType{"-"}, wanted...))
					args = append([]any{after, upTo, wanted == nil}, args...)
					want, err := list[models.Event](s.on(t.Context()), selectEvents+"WHERE position > ? AND position <= ? AND (? OR type IN "+in+") ORDER BY position LIMIT 7", args...)
					require.NoError(t, err)
					got, err := s.Events(t.Context()).Between(after, upTo, wanted, 7)
					if wanted == nil {
						got, err = s.Events(t.Context()).After(after, 7)
						if upTo != head {
							continue
						}
					}
					require.NoError(t, err)
					require.Equal(t, want, got, "%d to %d of %v", after, upTo, wanted)
				}
			}
		}
	})
}

func TestDeliveriesAreNotSkippedOnceTheyAreStored(t *testing.T) {
	t.Parallel()
	opts := Options{Dir: t.TempDir()}
	s, err := Open(t.Context(), opts)
	require.NoError(t, err)
	ctx := t.Context()
	require.NoError(t, s.Write(ctx, emitKeys("a", "b", "c")))
	reopen := func(wantDelivered int64) {
		require.NoError(t, s.Close())
		s, err = Open(ctx, opts)
		require.NoError(t, err)
		head, delivered := s.events.Positions()
		require.Equal(t, []int64{3, wantDelivered}, []int64{head, delivered})
	}
	all, err := s.Events(ctx).SkipDeliveries(3, []models.EventType{"other"})
	require.NoError(t, err)
	require.True(t, all)
	reopen(0) // skipped in memory only
	all, err = s.Events(ctx).SkipDeliveries(3, []models.EventType{"agent.updated"})
	require.NoError(t, err)
	require.False(t, all)
	all, err = s.Events(ctx).SkipDeliveries(2, nil)
	require.NoError(t, err)
	require.True(t, all)
	changes := s.WebhookChanges()
	hook := models.Webhook{ID: "w", URL: "https://example.com", Ordering: models.OrderingNone, Enabled: true, Keys: models.WebhookKeys{Secret: []byte("s")}, CreatedAt: s.Now(), UpdatedAt: s.Now()}
	require.NoError(t, s.Write(ctx, func(tx *Tx) error { return tx.Webhooks().Insert(hook) }))
	require.Equal(t, changes+1, s.WebhookChanges())
	reopen(2) // the webhook gets no event from before
	require.NoError(t, s.Write(ctx, func(tx *Tx) error {
		after, upTo, err := tx.Events().Number(10)
		require.Equal(t, []int64{2, 3}, []int64{after, upTo})
		return err
	}))
	reopen(3)
	require.NoError(t, s.Close())
	require.Equal(t, errs.Unavailable, errs.CodeOf(func() error { _, err := s.Events(ctx).Pending(); return err }()))
}
