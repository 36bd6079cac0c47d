// Package eventlog keeps the newest events of a database in memory, so that readers that are up to date
// need no SQL.
package eventlog

import (
	"slices"
	"sync"

	"comet/models"
)

// The limits of the events in memory. When one is exceeded, the older half is dropped.
const (
	maxEvents = 4000
	maxBytes  = 8 << 20 // of data
)

// Log holds the newest events of a database. The zero value is empty; it is safe for concurrent use.
type Log struct {
	mu        sync.RWMutex
	head      int64          // the newest position
	delivered int64          // all deliveries of the events up to this position are written
	start     int64          // events contains every event after this position
	events    []models.Event // with consecutive positions; elements are never modified
	bytes     int            // size of their data
}

// Reset drops all events and sets the newest position.
func (l *Log) Reset(head int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.head, l.start, l.events, l.bytes = head, head, nil, 0
}

// Add adds committed events, except those that it has.
func (l *Log) Add(events []models.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(events) > 0 && events[0].Position <= l.head {
		events = events[1:]
	}
	if len(events) == 0 {
		return
	}
	if before := events[0].Position - 1; before != l.head {
		l.start, l.events, l.bytes = before, nil, 0
	}
	l.events, l.head = append(l.events, events...), events[len(events)-1].Position
	for _, e := range events {
		l.bytes += len(e.Data)
	}
	for len(l.events) > maxEvents || len(l.events) > 1 && l.bytes > maxBytes {
		l.events = slices.Clone(l.events[len(l.events)/2:])
		l.start, l.bytes = l.events[0].Position-1, 0
		for _, e := range l.events {
			l.bytes += len(e.Data)
		}
	}
}

// followBatch is how many events Follow reads together.
const followBatch = 1000

// Follow adds the events that read returns after the newest known position, and returns the newest
// position. At first it only sets the position that newest returns.
func (l *Log) Follow(newest func() (int64, error), read func(after int64, limit int) ([]models.Event, error)) (head int64, err error) {
	if head, _ = l.Positions(); head == 0 {
		if head, err = newest(); err == nil {
			l.Reset(head)
		}
		return head, err
	}
	for {
		next, err := read(head, followBatch)
		if err != nil {
			return head, err
		}
		if len(next) == 0 {
			at, err := newest()
			if err == nil && at < head { // the database has lost commits
				l.Reset(at)
			}
			return min(at, head), err
		}
		if last := next[len(next)-1].Position; last-next[0].Position == int64(len(next)-1) {
			l.Add(next)
		} else { // some are purged already
			l.Reset(last)
		}
		if head, _ = l.Positions(); len(next) < followBatch {
			return head, nil
		}
	}
}

// Positions returns the newest position and the one up to which deliveries are written.
func (l *Log) Positions() (head, delivered int64) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.head, l.delivered
}

// Deliver advances the position up to which deliveries are written.
func (l *Log) Deliver(upTo int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delivered = max(l.delivered, upTo)
}

// Between returns up to limit events of the types, nil for all, with a position in (after, upTo]. ok
// is false if they must be read with SQL.
func (l *Log) Between(after, upTo int64, types []models.EventType, limit int) (out []models.Event, ok bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if after < l.start {
		return nil, false
	}
	out = []models.Event{}
	for _, e := range l.events[min(int(after-l.start), len(l.events)):] {
		if len(out) == limit || e.Position > upTo {
			break
		}
		if types == nil || slices.Contains(types, e.Type) {
			out = append(out, e)
		}
	}
	return out, true
}
