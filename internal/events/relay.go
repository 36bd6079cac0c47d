package events

import (
	"context"
	"sync/atomic"
	"time"

	"comet/internal/errs"
	"comet/internal/lifecycle"
	"comet/store"
)

// Relay numbers committed events and wakes the feed. Every replica runs one; the row that they
// lock serialises numbering.
type Relay struct {
	*lifecycle.Loop
	store  *store.Store
	feed   *Feed
	opts   Options
	health health
	// running is true while the loop runs.
	running atomic.Bool
	head    int64 // the newest position for which the feed was woken
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
	r := &Relay{store: s, feed: feed, opts: o, health: health{log: o.Logger, what: "numbering events"}}
	r.Loop = lifecycle.NewLoop(r.run)
	return r
}

// Check returns errs.Unavailable unless the relay runs and its last read succeeded.
func (r *Relay) Check(context.Context) error {
	switch {
	case !r.running.Load():
		return errs.New(errs.Unavailable, "the event relay does not run")
	case r.health.failing.Load():
		return errs.New(errs.Unavailable, "numbering events fails")
	}
	return nil
}

func (r *Relay) run(ctx context.Context) {
	r.running.Store(true)
	defer r.running.Store(false)
	poll := time.NewTicker(r.opts.Poll)
	defer poll.Stop()
	wait := newBackoff()
	for ctx.Err() == nil {
		err := r.round(ctx)
		r.health.report(ctx, err)
		if err != nil {
			sleep(ctx, wait.NextBackOff())
			continue
		}
		wait.Reset()
		select {
		case <-ctx.Done():
		case <-r.store.EventsWritten():
		case <-poll.C:
		}
	}
}

// round numbers waiting events and wakes the feed for all new ones, including those that other
// replicas numbered. It only reads when there is nothing to do.
func (r *Relay) round(ctx context.Context) error {
	for {
		waiting, err := r.store.EventsUnnumbered(ctx)
		if err != nil {
			return err
		}
		if waiting {
			if err := r.number(ctx); err != nil {
				return err
			}
		}
		head, err := r.store.LastPosition(ctx)
		if err != nil {
			return err
		}
		if head != r.head {
			r.head = head
			r.feed.Wake()
		}
		if !waiting {
			return nil
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
		after, upTo, err := tx.NumberAtMost(batch(rows))
		if err != nil || upTo == after {
			return err
		}
		return r.opts.OnNumbered(tx, after, upTo)
	})
}

// batch returns how many events one transaction numbers if each causes that many rows.
func batch(rows int) int { return min(maxBatch, max(1, maxRows/max(1, rows))) }
