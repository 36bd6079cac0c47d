// Package events turns the events that transactions write into one ordered stream. On SQLite they
// have positions from the start; on PostgreSQL the Relay assigns them after the commit. The Feed
// serves events from any position. Both read only committed events, so every event reaches every
// subscriber even if the process ends after the commit.
package events

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"comet/models"
	"comet/store"
)

// Options configures NewRelay and NewFeed; nil means defaults.
type Options struct {
	// Poll is the interval at which the relay looks for events without a wake-up, committed or
	// numbered by other replicas; default 500 ms.
	Poll time.Duration
	// Deliveries writes the deliveries of each event exactly once, on PostgreSQL in the transaction
	// that assigns its position; default none.
	Deliveries Deliveries
	// Logger receives the loss and return of the database; default discards.
	Logger *slog.Logger
}

func (o *Options) orDefaults() Options {
	out := *cmp.Or(o, &Options{})
	out.Poll = cmp.Or(out.Poll, 500*time.Millisecond)
	out.Logger = cmp.Or(out.Logger, slog.New(slog.DiscardHandler))
	return out
}

// Missed reports whether a returning reader missed events: events above its position were purged,
// or this database has not reached the position. resume is the position from which it continues,
// after itself if it missed nothing.
func (f *Feed) Missed(ctx context.Context, after int64) (resume int64, missed bool, err error) {
	head, err := f.store.Events(ctx).LastPosition()
	if err != nil || after == head {
		return after, false, err
	}
	if after > head {
		return head, true, nil
	}
	oldest, err := f.store.Events(ctx).After(after, 1)
	switch {
	case err != nil:
		return after, false, err
	case len(oldest) == 0:
		return head, true, nil
	case oldest[0].Position > after+1:
		return oldest[0].Position - 1, true, nil
	}
	return after, false, nil
}

// Bounds returns the positions of the oldest retained and of the newest event, 0 without one.
func (f *Feed) Bounds(ctx context.Context) (oldest, newest int64, err error) {
	reader := f.store.Events(ctx)
	if newest, err = reader.LastPosition(); err != nil {
		return 0, 0, err
	}
	first, err := reader.After(0, 1)
	for _, e := range first {
		oldest = e.Position
	}
	return oldest, newest, err
}

// Between returns up to limit events of the types with a position in (after, upTo], in order.
func (f *Feed) Between(ctx context.Context, after, upTo int64, types []models.EventType, limit int) ([]models.Event, error) {
	return f.store.Events(ctx).Between(after, upTo, types, limit)
}

// Purge returns a job that deletes numbered events older than retention. Positions are never
// reused; a subscriber that returns later than retention misses deleted events.
func Purge(s *store.Store, retention time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		before := s.Now().Add(-retention)
		return s.InBatches(ctx, func(tx *store.Tx, limit int) (int64, error) { return tx.Events().Purge(before, limit) })
	}
}
