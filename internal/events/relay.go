package events

import (
	"context"
	"sync/atomic"
	"time"

	"comet/internal/errs"
	"comet/internal/lifecycle"
	"comet/store"
)

// Relay numbers committed events and wakes the feed. Every replica runs one; the
// row they lock keeps their numbering in one line.
type Relay struct {
	*lifecycle.Loop
	store  *store.Store
	feed   *Feed
	opts   Options
	health health
	// running is set while the loop runs.
	running atomic.Bool
	head    int64 // the newest position the feed was woken for
}

// The relay's transaction keeps other writers waiting, and what follows from an event
// may be a row for each of a thousand subscribers; so both are bounded.
const (
	maxBatch = 1000 // events
	maxRows  = 5000 // what follows from them
)

// NewRelay returns a relay that wakes feed. It is the only one that may listen to
// the store's EventsWritten.
func NewRelay(s *store.Store, feed *Feed, opts *Options) *Relay {
	o := opts.orDefaults()
	r := &Relay{store: s, feed: feed, opts: o, health: health{log: o.Logger, what: "numbering events"}}
	r.Loop = lifecycle.NewLoop(r.run)
	return r
}

// Check returns errs.Unavailable unless the relay runs and its last look for events
// went well.
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

// round numbers what waits and wakes the feed for whatever is new, whoever
// numbered it. It only reads when there is nothing to do.
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

// number gives the next events their positions. Whatever must exist exactly once
// for each event is written here, in the transaction that numbers it.
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

// batch is how many events one transaction numbers at most, from each of which follow
// so many rows.
func batch(rows int) int { return min(maxBatch, max(1, maxRows/max(1, rows))) }
