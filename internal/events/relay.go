package events

import (
	"context"
	"time"

	"comet/internal/background"
	"comet/models"
	"comet/store"
)

// Relay wakes the feed for committed events and writes their deliveries. On PostgreSQL it numbers the
// events first. Every replica runs a relay; a row that they lock serialises the numbering.
type Relay struct {
	*background.Loop
	store *store.Store
	feed  *Feed
	opts  Options
	poll  *background.PollLoop
	head  int64     // the newest position for which the feed was woken
	next  time.Time // when the next events may be numbered
}

// numberingInterval is the minimum time between the starts of two transactions of a relay that number events. Without it,
// numbering the events of small transactions would cost more than the transactions themselves. The first event after a
// pause does not wait.
const numberingInterval = 5 * time.Millisecond

// Deliveries writes the rows that must exist exactly once per event.
type Deliveries interface {
	// Types returns the types of events that currently cause rows.
	Types(ctx context.Context) ([]models.EventType, error)
	// PerEvent returns the maximum number of rows that Numbered writes per event. A transaction handles
	// as many events as cause 5,000 rows, but at least one.
	PerEvent(tx *store.Tx) (int, error)
	// Numbered writes the rows of the events with the positions (after, upTo]. It may run again
	// like any write; its error rolls the transaction back, which is then retried.
	Numbered(tx *store.Tx, after, upTo int64) error
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

// Check returns errs.Unavailable unless the relay runs and its last run succeeded.
func (r *Relay) Check(context.Context) error { return r.poll.Check() }

// round wakes the feed for new events, including those that other replicas numbered, and handles
// pending events. If there are none it only reads, on SQLite from memory.
func (r *Relay) round(ctx context.Context) (time.Duration, error) {
	for {
		events := r.store.Events(ctx)
		head, err := events.Follow()
		if err != nil {
			return 0, err
		}
		if head != r.head {
			r.head = head
			r.feed.Wake()
		}
		waiting, err := events.Pending()
		if err == nil && waiting && r.store.Alone() {
			waiting, err = r.skip(ctx)
		}
		if err != nil || !waiting {
			return r.opts.Poll, err
		}
		if err := background.Sleep(ctx, time.Until(r.next)); err != nil {
			return 0, err
		}
		r.next = time.Now().Add(numberingInterval)
		if err := r.number(ctx); err != nil {
			return 0, err
		}
	}
}

// skip skips events that cause no deliveries, which needs no transaction on SQLite. It reports
// whether an event that causes deliveries is pending.
func (r *Relay) skip(ctx context.Context) (waiting bool, err error) {
	var types []models.EventType
	if r.opts.Deliveries != nil {
		if types, err = r.opts.Deliveries.Types(ctx); err != nil {
			return false, err
		}
	}
	all, err := r.store.Events(ctx).SkipDeliveries(r.head, types)
	return !all, err
}

// number assigns positions to the next events, unless they have them, and writes their deliveries
// in the same transaction.
func (r *Relay) number(ctx context.Context) error {
	return r.store.Write(ctx, func(tx *store.Tx) error {
		rows := 0
		if r.opts.Deliveries != nil {
			var err error
			if rows, err = r.opts.Deliveries.PerEvent(tx); err != nil {
				return err
			}
		}
		after, upTo, err := tx.Events().Number(min(maxBatch, max(1, maxRows/max(1, rows))))
		if err != nil || upTo == after || r.opts.Deliveries == nil {
			return err
		}
		return r.opts.Deliveries.Numbered(tx, after, upTo)
	})
}
