package api

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/events"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

func TestRecentEvents(t *testing.T) {
	t.Parallel()
	numbered := func(from, n int64) (batch []models.Event) {
		for i := range n {
			batch = append(batch, models.Event{Position: from + i})
		}
		return batch
	}
	kept := &recentEvents{start: 10, added: make(chan struct{})}
	_, fresh, ok := kept.after(10, 5)
	require.True(t, ok)
	kept.add(numbered(11, 20))
	<-fresh // waiting readers are woken
	batch, _, ok := kept.after(12, 5)
	require.True(t, ok)
	require.Equal(t, numbered(13, 5), batch)
	batch, _, _ = kept.after(28, 5)
	require.Equal(t, numbered(29, 2), batch)
	_, _, ok = kept.after(9, 5)
	require.False(t, ok, "what came before is not there")

	before := batch
	for i := range int64(2 * maxRecentEvents) {
		kept.add(numbered(31+i, 1))
	}
	require.LessOrEqual(t, len(kept.events), 2*maxRecentEvents)
	require.Equal(t, numbered(29, 2), before, "what was handed out stays")
	_, _, ok = kept.after(30, 5)
	require.False(t, ok)
	batch, _, ok = kept.after(kept.start, 5)
	require.True(t, ok)
	require.Equal(t, numbered(kept.start+1, 5), batch)
}

// TestSlowStreamsReadFromTheDatabase: what is not kept comes from the database,
// and what follows from what is kept.
func TestSlowStreamsReadFromTheDatabase(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		emit := func(n int) {
			require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error {
				for range n {
					if err := tx.Events().Emit(events.WorkerChanged, "x", nil); err != nil {
						return err
					}
				}
				return nil
			}))
		}
		feed := events.NewFeed(db.Store, nil)
		relay := events.NewRelay(db.Store, feed, &events.Options{Poll: 10 * time.Millisecond})
		require.NoError(t, relay.Start(t.Context()))
		defer func() { require.NoError(t, relay.Stop(context.Background())) }()
		emit(10)
		_, err := feed.Subscribe(9).Next(t.Context(), 1)
		require.NoError(t, err)

		s := &Server{core: Services{Feed: feed}, eventCache: &eventCache{feed: feed}}
		kept, leave, err := s.eventCache.join(t.Context())
		require.NoError(t, err)
		again, leaveToo, err := s.eventCache.join(t.Context())
		require.NoError(t, err)
		require.Same(t, kept, again, "one reads for both")
		emit(5)
		at := int64(0)
		for at < 15 {
			batch, err := s.nextEvents(t.Context(), kept, at, 4)
			require.NoError(t, err)
			require.Equal(t, at+1, batch[0].Position)
			at = batch[len(batch)-1].Position
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = s.nextEvents(ctx, kept, at, 4)
		require.ErrorIs(t, err, context.Canceled)
		leave()
		require.NotNil(t, s.eventCache.recent)
		leaveToo()
		require.Nil(t, s.eventCache.recent, "the reader has stopped")
	})
}
