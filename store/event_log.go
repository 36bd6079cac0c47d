package store

import (
	"cmp"
	"errors"

	"comet/models"
	"comet/store/eventlog"
)

// loadMemory reads what the store keeps in memory.
func (s *Store) loadMemory(r reader) error {
	return cmp.Or(s.loadEvents(r), s.loadCache(r))
}

// loadEvents reads the positions and drops the events in memory. The newest position is in
// event_head after a purge.
func (s *Store) loadEvents(r reader) error {
	type positions struct{ Head, Delivered int64 }
	at, err := one[positions](r, "SELECT max(position, (SELECT coalesce(max(position), 0) FROM events)), delivered FROM event_head WHERE id = 1")
	if err == nil {
		s.events.Deliver(at.Delivered)
		s.events.Reset(at.Head)
	}
	return err
}

// log returns the events in memory; nil in a transaction and on PostgreSQL, which have to read.
func (r EventReader) log() (*eventlog.Log, error) {
	if r.store.events == nil || r.state != nil {
		return nil, nil
	}
	return r.store.events, errors.Join(r.store.usable(), r.ctx.Err())
}

// recent returns events from memory; ok is false if they have to be read.
func (r EventReader) recent(after, upTo int64, types []models.EventType, limit int) (out []models.Event, ok bool) {
	if log, err := r.log(); log != nil && err == nil {
		return log.Between(after, upTo, types, limit)
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
	_, delivered := log.Positions()
	next, err := r.Between(delivered, upTo, types, 1)
	if err != nil {
		return false, err
	}
	if len(next) > 0 {
		upTo = next[0].Position - 1
	}
	log.Deliver(upTo)
	return len(next) == 0, nil
}

// saveDelivered stores the position up to which deliveries are written. Otherwise a webhook that
// changes now would receive events from before after a restart.
func (r reader) saveDelivered() error {
	if !r.store.Alone() {
		return nil
	}
	_, delivered := r.store.events.Positions()
	return r.run("UPDATE event_head SET delivered = max(delivered, ?) WHERE id = 1", delivered)
}
