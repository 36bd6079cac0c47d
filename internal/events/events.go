// Package events turns the events that transactions write into one ordered stream. The Relay
// assigns positions to committed events; the Feed serves them from any position. Both read SQL
// only, so every committed event reaches every subscriber even if the process ends in between.
package events

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"comet/store"
)

// Options configures NewRelay and NewFeed; nil means defaults.
type Options struct {
	// Poll is the interval at which the relay looks for events without a wake-up, committed or
	// numbered by other replicas; default 500 ms.
	Poll time.Duration
	// OnNumbered writes what must exist exactly once per event. It is called in the transaction
	// that gave events the positions (after, upTo] and may run again like any write; its error
	// rolls the numbering back, which is then retried. Default none.
	OnNumbered func(tx *store.Tx, after, upTo int64) error
	// PerEvent returns how many rows OnNumbered writes per event at most. It is called in the
	// same transaction, which numbers at least one event and otherwise as many as produce 5,000
	// rows. Default 1.
	PerEvent func(tx *store.Tx) (int, error)
	// Logger receives the loss and return of the database; default discards.
	Logger *slog.Logger
}

func (o *Options) orDefaults() Options {
	var out Options
	if o != nil {
		out = *o
	}
	out.Poll = cmp.Or(out.Poll, 500*time.Millisecond)
	if out.OnNumbered == nil {
		out.OnNumbered = func(*store.Tx, int64, int64) error { return nil }
	}
	if out.PerEvent == nil {
		out.PerEvent = func(*store.Tx) (int, error) { return 1, nil }
	}
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

// Purge returns a job that deletes numbered events older than retention. Positions are never
// reused; a subscriber that returns later than retention misses deleted events.
func Purge(s *store.Store, retention time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := s.InBatches(ctx, func(tx *store.Tx, limit int) (int64, error) {
			return tx.Events().Purge(tx.Now().Add(-retention), limit)
		})
		return err
	}
}
