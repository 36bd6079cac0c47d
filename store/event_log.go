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

// loadEvents reads the positions and drops the events in memory. After a purge the newest position
// may be stored only in event_head.
func (s *Store) loadEvents(r reader) error {
	type positions struct{ Head, Delivered int64 }
	at, err := one[positions](r, "SELECT max(position, (SELECT coalesce(max(position), 0) FROM events)), delivered FROM event_head WHERE id = 1")
	if err == nil {
		s.events.Deliver(at.Delivered)
		s.events.Reset(at.Head)
	}
	return err
}

// log returns the events in memory, or nil in a transaction and on PostgreSQL, which read with SQL.
func (r EventReader) log() (*eventlog.Log, error) {
	if !r.store.Alone() || r.state != nil {
		return nil, nil
	}
	return r.store.events, errors.Join(r.store.usable(), r.ctx.Err())
}

// recent returns events from memory; ok is false if they must be read with SQL.
func (r EventReader) recent(after, upTo int64, types []models.EventType, limit int) (out []models.Event, ok bool) {
	head := r.Followed()
	if r.state != nil || r.store.usable() != nil || r.ctx.Err() != nil || upTo > head && !r.store.Alone() {
		return nil, false
	}
	return r.store.events.Between(after, upTo, types, limit)
}

// Follow returns the newest position. On PostgreSQL it reads the events that were numbered since the last
// call, by any process, so that the subscribers of this process find them in memory.
func (r EventReader) Follow() (int64, error) {
	if r.store.Alone() {
		return r.LastPosition()
	}
	return r.store.events.Follow(r.LastPosition, func(after int64, limit int) ([]models.Event, error) {
		return list[models.Event](r.reader, selectEvents+"WHERE position > ? ORDER BY position LIMIT ?", after, limit)
	})
}

// Followed returns the newest position that Follow has returned; on SQLite, the newest one.
func (r EventReader) Followed() int64 {
	head, _ := r.store.events.Positions()
	return head
}

// SkipDeliveries skips events up to a position until the first one of the types, without a transaction:
// other events cause no deliveries. It reports whether it has skipped all. It is only for SQLite.
func (r EventReader) SkipDeliveries(upTo int64, types []models.EventType) (all bool, err error) {
	log, err := r.log()
	if err != nil || log == nil {
		return false, err
	}
	_, delivered := log.Positions()
	next, err := r.Between(delivered, upTo, append([]models.EventType{}, types...), 1)
	if err != nil {
		return false, err
	}
	if len(next) > 0 {
		upTo = next[0].Position - 1
	}
	log.Deliver(upTo)
	return len(next) == 0, nil
}

// saveDelivered stores the position up to which deliveries are written. Without it, a webhook that
// changes now would receive older events after a restart.
func (r reader) saveDelivered() error {
	if !r.store.Alone() {
		return nil
	}
	_, delivered := r.store.events.Positions()
	return r.run("UPDATE event_head SET delivered = max(delivered, ?) WHERE id = 1", delivered)
}
