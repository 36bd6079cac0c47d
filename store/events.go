package store

import (
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"

	"comet/models"
	"comet/store/columns"
	"comet/store/filter"
)

// BenchmarkREST, BenchmarkAccept and BenchmarkWebhooks in internal/bench measure the statements on
// events, which are written by hand.

// Emit writes an event about a change in this transaction. It must follow
// the write (or lock) of the changed row: only then are the events of
// one key in the order of their changes. data is encoded as JSON.
func (tx Events) Emit(kind models.EventType, key string, data any) error {
	return tx.emit(EventDraft{kind, key, data})
}

// maxEventKey is the maximum length, in bytes, of an event key that a client chose.
const maxEventKey = 300

// EmitAll is Emit for many events, in their order.
func (tx Events) EmitAll(list []EventDraft) error {
	drafts := slices.Clone(list)
	for i := range drafts {
		drafts[i].Key = columns.Text(drafts[i].Key, maxEventKey)
	}
	return tx.emit(drafts...)
}

func (tx Events) emit(list ...EventDraft) error {
	rows := make([]models.Event, len(list))
	for i, e := range list {
		data, err := json.Marshal(e.Data)
		if err != nil {
			return err
		}
		id, err := uuid.NewV7()
		if err != nil {
			return err
		}
		rows[i] = models.Event{ID: id.String(), Type: e.Type, Key: e.Key, At: tx.now, Data: data}
	}
	tx.state.wroteEvents = tx.state.wroteEvents || len(list) > 0
	if !tx.store.Alone() {
		return create(tx.reader, "", rows...)
	}
	const width = 6
	args := make([]any, 0, width*len(rows))
	for i := range rows {
		rows[i].Position = tx.state.position + int64(i) + 1
		args = append(append(args, columns.Created(&rows[i])...), rows[i].Position)
	}
	if err := tx.insertRows("INSERT INTO events (id, type, key, at, data, position)", "", width, args); err != nil {
		return err
	}
	tx.state.position += int64(len(rows))
	tx.state.events = append(tx.state.events, rows...)
	return nil
}

// Number returns the positions (after, upTo] of up to limit committed events whose deliveries the
// caller must write in this transaction. On PostgreSQL it assigns the positions to the next events
// without one, in the order of insertion. (A sequence does not have the order of the commits, so a
// reader that resumed by it would miss events of longer transactions.) On SQLite events already have
// positions, and Number returns the next ones after those of the last call.
func (tx Events) Number(limit int) (after, upTo int64, err error) {
	if tx.store.Alone() {
		return tx.nextDeliveries(limit)
	}
	head, err := one[int64](tx.reader, "SELECT position FROM event_head WHERE id = 1"+tx.engine.forUpdate)
	if err != nil {
		return 0, 0, err
	}
	n, err := tx.exec(`UPDATE events SET position = ? + numbered.n FROM
		(SELECT seq, row_number() OVER (ORDER BY seq) AS n FROM events WHERE position IS NULL ORDER BY seq LIMIT ?) AS numbered
		WHERE events.seq = numbered.seq`, head, limit)
	if err != nil || n == 0 {
		return head, head, err
	}
	return head, head + n, tx.run("UPDATE event_head SET position = ? WHERE id = 1", head+n)
}

// nextDeliveries is Number on SQLite.
func (tx Events) nextDeliveries(limit int) (after, upTo int64, err error) {
	log := tx.store.events
	stored, err := one[int64](tx.reader, "SELECT delivered FROM event_head WHERE id = 1")
	if err != nil {
		return 0, 0, err
	}
	_, passed := log.Positions()
	after = max(stored, passed)
	upTo = min(after+int64(limit), tx.state.position)
	if upTo <= after {
		return after, after, nil
	}
	tx.state.after = append(tx.state.after, func() { log.Deliver(upTo) })
	return after, upTo, tx.run("UPDATE event_head SET delivered = ? WHERE id = 1", upTo)
}

const selectEvents = "SELECT id, coalesce(position, 0), type, key, at, data FROM events "

// After returns up to limit numbered events with a position above after, in order. Positions become
// visible in order: after a reader has read position n, no event with a lower position appears.
func (r EventReader) After(after int64, limit int) ([]models.Event, error) {
	return r.Between(after, math.MaxInt64, nil, limit)
}

// Between returns up to limit events of the types, nil for all, with a position in (after, upTo], in
// order.
func (r EventReader) Between(after, upTo int64, types []models.EventType, limit int) ([]models.Event, error) {
	if types != nil && len(types) == 0 {
		return nil, nil
	}
	if out, ok := r.recent(after, upTo, types, limit); ok {
		return out, nil
	}
	condition, args := "", []any{after, upTo}
	if types != nil {
		in, more := filter.In(types)
		condition, args = "AND type IN "+in, append(args, more...)
	}
	return list[models.Event](r.reader, selectEvents+"WHERE position > ? AND position <= ? "+condition+" ORDER BY position LIMIT ?", append(args, limit)...)
}

// Timeline returns up to limit events about a key, the oldest first, whether they have
// a position yet or not.
func (r EventReader) Timeline(key string, limit int) ([]models.Event, error) {
	return list[models.Event](r.reader, selectEvents+"WHERE key = ? ORDER BY seq LIMIT ?", key, limit)
}

// Newest returns the newest event of a type about a key, or errs.NotFound.
func (r EventReader) Newest(key string, kind models.EventType) (models.Event, error) {
	return one[models.Event](r.reader, selectEvents+"WHERE key = ? AND type = ? ORDER BY seq DESC LIMIT 1", key, kind)
}

// Unnumbered reports whether committed events of the types have no position yet. It is false on SQLite.
func (r EventReader) Unnumbered(types ...models.EventType) (bool, error) {
	if r.store.Alone() {
		return false, nil
	}
	in, args := filter.In(types)
	return one[bool](r.reader, "SELECT EXISTS (SELECT 1 FROM events WHERE position IS NULL AND type IN "+in+")", args...)
}

// Pending reports whether committed events wait for Number.
func (r EventReader) Pending() (bool, error) {
	switch log, err := r.log(); {
	case err != nil:
		return false, err
	case log != nil:
		head, delivered := log.Positions()
		return delivered < head, nil
	}
	return one[bool](r.reader, "SELECT EXISTS (SELECT 1 FROM events WHERE position IS NULL)")
}

// LastPosition returns the position of the newest numbered event, 0 if there is none.
func (r EventReader) LastPosition() (int64, error) {
	switch log, err := r.log(); {
	case err != nil:
		return 0, err
	case log != nil:
		head, _ := log.Positions()
		return head, nil
	case r.store.Alone():
		return r.state.position, nil
	}
	return one[int64](r.reader, "SELECT position FROM event_head WHERE id = 1")
}

// Purge deletes up to limit events older than before that do not wait for Number, among the first 100
// times limit events, and returns how many it deleted. Positions are never reused.
func (tx Events) Purge(before time.Time, limit int) (int64, error) {
	log := tx.store.events
	if !tx.store.Alone() {
		return tx.purge("events", before, purgeEvents("position IS NOT NULL"), 100*limit, before, limit)
	}
	_, delivered := log.Positions()
	n, err := tx.purge("events", before, purgeEvents("position <= ?"), 100*limit, before, delivered, limit)
	if err != nil || n == 0 {
		return n, err
	}
	tx.state.after = append(tx.state.after, func() {
		head, _ := log.Positions()
		log.Reset(head)
	})
	// The newest event may have been deleted.
	return n, tx.run("UPDATE event_head SET position = ?, delivered = max(delivered, ?) WHERE id = 1", tx.state.position, delivered)
}

func purgeEvents(condition string) string {
	return "DELETE FROM events WHERE seq IN (SELECT seq FROM (SELECT seq, position, at FROM events ORDER BY seq LIMIT ?) AS first WHERE at < ? AND " + condition + " LIMIT ?)"
}

// EventDraft is a new event.
type EventDraft struct {
	Type models.EventType
	Key  string
	Data any
}
