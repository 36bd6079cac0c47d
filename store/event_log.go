package store

import (
	"errors"
	"slices"
	"sync"

	"comet/models"
)

// The limits of the events in memory. When one is exceeded, the older half is dropped.
const (
	maxLogEvents = 4000
	maxLogBytes  = 8 << 20 // of data
)

// eventLog is the part of a SQLite database's events that is kept in memory: no other process
// writes the database. Readers that are up to date need no SQL.
type eventLog struct {
	mu        sync.RWMutex
	head      int64          // the newest position
	delivered int64          // the deliveries of the events up to here are written, or there are none
	start     int64          // events has every event after this position
	events    []models.Event // their positions have no gap; elements do not change
	bytes     int            // of their data
}

// load reads the positions and drops the events. The newest position is in event_head after a purge.
func (l *eventLog) load(r reader) error {
	type positions struct{ Head, Delivered int64 }
	at, err := one[positions](r, "SELECT max(position, (SELECT coalesce(max(position), 0) FROM events)), delivered FROM event_head WHERE id = 1")
	if err == nil {
		l.deliver(at.Delivered)
		l.keep(at.Head)
	}
	return err
}

// keep drops all events up to a newest position.
func (l *eventLog) keep(head int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.head, l.start, l.events, l.bytes = head, head, nil, 0
}

// forget drops all events, because some were deleted.
func (l *eventLog) forget() {
	head, _ := l.positions()
	l.keep(head)
}

// add adds committed events.
func (l *eventLog) add(events []models.Event) {
	if len(events) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events, l.head = append(l.events, events...), events[len(events)-1].Position
	for _, e := range events {
		l.bytes += len(e.Data)
	}
	if len(l.events) > maxLogEvents || l.bytes > maxLogBytes {
		l.events = slices.Clone(l.events[len(l.events)/2:])
		l.start, l.bytes = l.events[0].Position-1, 0
		for _, e := range l.events {
			l.bytes += len(e.Data)
		}
	}
}

// positions returns the newest position and that up to which deliveries are written.
func (l *eventLog) positions() (head, delivered int64) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.head, l.delivered
}

// deliver moves the position up to which deliveries are written.
func (l *eventLog) deliver(upTo int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delivered = max(l.delivered, upTo)
}

// between returns up to limit events of the types, nil for all, with a position in (after, upTo]. ok
// is false if they have to be read.
func (l *eventLog) between(after, upTo int64, types []models.EventType, limit int) (out []models.Event, ok bool) {
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

// log returns the events in memory; nil in a transaction and on PostgreSQL, which have to read.
func (r EventReader) log() (*eventLog, error) {
	if r.store.events == nil || r.state != nil {
		return nil, nil
	}
	return r.store.events, errors.Join(r.store.usable(), r.ctx.Err())
}

// recent returns events from memory; ok is false if they have to be read.
func (r EventReader) recent(after, upTo int64, types []models.EventType, limit int) (out []models.Event, ok bool) {
	if log, err := r.log(); log != nil && err == nil {
		return log.between(after, upTo, types, limit)
	}
	return nil, false
}

// SkipDeliveries passes over events up to a position that have none of the types, and so cause no
// deliveries, without a transaction; it reports whether those were all. It is for SQLite.
func (r EventReader) SkipDeliveries(upTo int64, types []models.EventType) (all bool, err error) {
	log, err := r.log()
	if err != nil || log == nil {
		return false, err
	}
	_, delivered := log.positions()
	next, err := r.Between(delivered, upTo, types, 1)
	if err != nil {
		return false, err
	}
	if len(next) > 0 {
		upTo = next[0].Position - 1
	}
	log.deliver(upTo)
	return len(next) == 0, nil
}

// saveDelivered stores the position up to which deliveries are written. Otherwise a webhook that
// changes now would receive events from before after a restart.
func (r reader) saveDelivered() error {
	if !r.store.Alone() {
		return nil
	}
	_, delivered := r.store.events.positions()
	return r.run("UPDATE event_head SET delivered = max(delivered, ?) WHERE id = 1", delivered)
}
