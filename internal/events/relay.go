package events

import (
	"context"
	"time"

	"comet/internal/background"
	"comet/store"
)

// Relay numbers committed events and wakes the feed. Every replica runs one; the row that they
// lock serialises numbering.
type Relay struct {
	*background.Loop
	store *store.Store
	feed  *Feed
	opts  Options
	poll  *background.PollLoop
	head  int64 // the newest position for which the feed was woken
}

// Limits of the relay's transaction, which makes other writers wait; an event may cause a row for
// each of a thousand subscribers.
const (
	maxBatch = 1000 // events
	maxRows  = 5000 // rows caused by them
)

// NewRelay returns a relay that wakes feed. It must be the only receiver of the store's
// EventsWritten.
func NewRelay(s *store.Store, feed *Feed, opts *Options) *Relay {
	o := opts.orDefaults()
	r := &Relay{store: s, feed: feed, opts: o}
	r.poll = background.NewPollLoop(background.PollOptions{Task: "numbering events", Logger: o.Logger, Signal: s.EventsWritten()}, r.round)
	r.Loop = background.NewLoop(r.poll.Run)
	return r
}

// Check returns errs.Unavailable unless the relay runs and its last read succeeded.
func (r *Relay) Check(context.Context) error { return r.poll.Check() }

// round numbers waiting events and wakes the feed for all new ones, including those that other
// replicas numbered. It only reads when there is nothing to do.
func (r *Relay) round(ctx context.Context) (time.Duration, error) {
	for {
		waiting, err := r.store.Events(ctx).Unnumbered()
		if err != nil {
			return 0, err
		}
		if waiting {
			if err := r.number(ctx); err != nil {
				return 0, err
			}
		}
		head, err := r.store.Events(ctx).LastPosition()
		if err != nil {
			return 0, err
		}
		if head != r.head {
			r.head = head
			r.feed.Wake()
		}
		if !waiting {
			return r.opts.Poll, nil
		}
	}
}

// number assigns positions to the next events. What must exist exactly once per event is written
// in the same transaction.
func (r *Relay) number(ctx context.Context) error {
	return r.store.Write(ctx, func(tx *store.Tx) error {
		rows, err := r.opts.PerEvent(tx)
		if err != nil {
			return err
		}
		after, upTo, err := tx.Events().Number(batch(rows))
		if err != nil || upTo == after {
			return err
		}
		return r.opts.OnNumbered(tx, after, upTo)
	})
}

// batch returns how many events one transaction numbers if each causes that many rows.
func batch(rows int) int { return min(maxBatch, max(1, maxRows/max(1, rows))) }
