package store

import (
	"errors"
	"slices"
	"sync"

	"comet/internal/errs"
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
	head      int64                      // the newest position
	delivered int64                      // the deliveries of the events up to here are written, or there are none
	saved     int64                      // delivered as it is stored
	opened    int64                      // head when the log was opened
	start     int64                      // events has every event after this position
	events    []models.Event             // their positions have no gap; elements do not change
	bytes     int                        // of their data
	newest    map[models.EventType]int64 // the newest position of each type, if it is after opened
}

// positionsQuery reads the newest position, which event_head has after a purge, and the position up
// to which deliveries are written.
const positionsQuery = "SELECT max(position, (SELECT coalesce(max(position), 0) FROM events)), delivered FROM event_head WHERE id = 1"

// positions is a row of positionsQuery.
type positions struct{ Head, Delivered int64 }

func newEventLog(r reader) (*eventLog, error) {
	at, err := one[positions](r, positionsQuery)
	return &eventLog{
		head: at.Head, opened: at.Head, start: at.Head, delivered: at.Delivered, saved: at.Delivered, newest: map[models.EventType]int64{},
	}, err
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
		l.newest[e.Type] = e.Position
	}
	if len(l.events) > maxLogEvents || l.bytes > maxLogBytes {
		l.events = slices.Clone(l.events[len(l.events)/2:])
		l.start, l.bytes = l.events[0].Position-1, 0
		for _, e := range l.events {
			l.bytes += len(e.Data)
		}
	}
}

// skip sets the newest position if events were committed that the log does not have.
func (l *eventLog) skip(head int64) {
	if l.positions().Head < head {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.head, l.opened = head, head
		l.events, l.start, l.bytes = nil, head, 0
	}
}

// forget drops all events, because some were deleted.
func (l *eventLog) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events, l.start, l.bytes = nil, l.head, 0
}

// positions returns the newest position and that up to which deliveries are written.
func (l *eventLog) positions() positions {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return positions{l.head, l.delivered}
}

// deliver moves the position up to which deliveries are written; saved is set once it is stored.
func (l *eventLog) deliver(upTo int64, saved bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delivered = max(l.delivered, upTo)
	if saved {
		l.saved = max(l.saved, upTo)
	}
}

// unsaved returns the position up to which deliveries are written, and whether it has to be stored.
func (l *eventLog) unsaved() (delivered int64, ok bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.delivered, l.delivered > l.saved
}

// between returns up to limit events of the types, nil for all, with a position in (after, upTo]. ok
// is false if they have to be read.
func (l *eventLog) between(after, upTo int64, types []models.EventType, limit int) (out []models.Event, ok bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if after < l.start {
		newer := func(t models.EventType) bool { return l.newest[t] > after }
		return []models.Event{}, types != nil && after >= l.opened && !slices.ContainsFunc(types, newer)
	}
	events := l.events[min(int(after-l.start), len(l.events)):]
	if types == nil {
		n := min(len(events), limit)
		return events[:n:n], true
	}
	out = []models.Event{}
	for _, e := range events {
		if len(out) == limit || e.Position > upTo {
			break
		}
		if slices.Contains(types, e.Type) {
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
	if err != nil {
		return false, err
	}
	if log == nil {
		return false, errs.New(errs.Internal, "deliveries are only skipped on SQLite")
	}
	next, err := r.Between(log.positions().Delivered, upTo, types, 1)
	if err != nil {
		return false, err
	}
	if len(next) > 0 {
		upTo = next[0].Position - 1
	}
	log.deliver(upTo, false)
	return len(next) == 0, nil
}

// saveDelivered stores the position up to which deliveries are written, if the stored one is older.
// Otherwise a webhook that changes now would receive events from before after a restart.
func (r reader) saveDelivered() error {
	log := r.store.events
	if log == nil {
		return nil
	}
	delivered, ok := log.unsaved()
	if !ok {
		return nil
	}
	r.state.after = append(r.state.after, func() { log.deliver(delivered, true) })
	return r.run("UPDATE event_head SET delivered = max(delivered, ?) WHERE id = 1", delivered)
}
