package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"comet/models"
)

// EventReader reads events, on the read pool or in a transaction.
type EventReader struct{ from reader }

// Events holds the operations of a transaction on events.
type Events struct {
	EventReader
	*transaction
}

// Events returns the operations on events.
func (tx *Tx) Events() Events { return Events{EventReader{tx.reader}, &tx.transaction} }

// Events returns the reads of events.
func (s *Store) Events(ctx context.Context) EventReader { return EventReader{s.on(ctx)} }

// BenchmarkREST, BenchmarkAccept and BenchmarkWebhooks in internal/bench measure the statements on
// events, which are written by hand.

// Emit writes an event about a change in this transaction. It must follow
// the write (or lock) of the changed row: only then are the events of
// one key in the order of their changes. data is encoded as JSON.
func (tx Events) Emit(kind models.EventType, key string, data any) error {
	args, err := tx.values(kind, key, data)
	if err != nil {
		return err
	}
	tx.wroteEvents = true
	return tx.each("INSERT INTO events (id, type, key, at, data) VALUES (?, ?, ?, ?, ?)", args...)
}

// values returns the values of the columns of a new event.
func (tx Events) values(kind models.EventType, key string, data any) ([]any, error) {
	payload, err := json.Marshal(data)
	if err != nil {
		return nil, err
	}
	id, err := uuid.NewV7()
	return []any{id.String(), string(kind), key, Micros(tx.now), string(payload)}, err
}

// maxEventKey is the maximum length, in bytes, of an event key that a client chose.
const maxEventKey = 300

// EmitAll is Emit for many events, in their order.
func (tx Events) EmitAll(list []EventDraft) error {
	const width = 5
	args := make([]any, 0, width*len(list))
	for _, e := range list {
		values, err := tx.values(e.Type, StorableText(e.Key, maxEventKey), e.Data)
		if err != nil {
			return err
		}
		args = append(args, values...)
	}
	tx.wroteEvents = tx.wroteEvents || len(list) > 0
	return tx.insertRows("INSERT INTO events (id, type, key, at, data)", "", width, args)
}

// Number assigns the next positions, (after, upTo], to up to limit committed events without
// one, in the order in which they were written. The order of a sequence is not that of commits: a
// reader that resumed by it would miss events whose transaction took longer.
func (tx Events) Number(limit int) (after, upTo int64, err error) {
	var head int64
	if err := tx.queryRow("SELECT position FROM event_head WHERE id = 1"+tx.engine.forUpdate, nil, &head); err != nil {
		return 0, 0, err
	}
	n, err := tx.exec(`UPDATE events SET position = ? + numbered.n FROM
		(SELECT seq, row_number() OVER (ORDER BY seq) AS n FROM events WHERE position IS NULL ORDER BY seq LIMIT ?) AS numbered
		WHERE events.seq = numbered.seq`, head, limit)
	if err != nil || n == 0 {
		return head, head, err
	}
	_, err = tx.exec("UPDATE event_head SET position = ? WHERE id = 1", head+n)
	return head, head + n, err
}

const eventColumns = "id, coalesce(position, 0), type, key, at, data"

// eventDest returns the scan targets of eventColumns.
func eventDest(e *models.Event) []any {
	return []any{&e.ID, &e.Position, &e.Type, &e.Key, ScanTime{&e.At}, scanJSON{&e.Data}}
}

// After returns up to limit numbered events with a position above after,
// in order. Who has read position n has seen, or will never see, every event up
// to n: lower positions do not appear later.
func (r EventReader) After(after int64, limit int) ([]models.Event, error) {
	return list(r.from, "SELECT "+eventColumns+" FROM events WHERE position > ? ORDER BY position LIMIT ?", []any{after, limit}, eventDest)
}

// Between returns up to limit events of the types with a position in (after, upTo], in
// order.
func (r EventReader) Between(after, upTo int64, types []models.EventType, limit int) ([]models.Event, error) {
	if len(types) == 0 {
		return nil, nil
	}
	in, args := inList(types)
	return list(r.from, "SELECT "+eventColumns+" FROM events WHERE position > ? AND position <= ? AND type IN "+in+" ORDER BY position LIMIT ?",
		append(append([]any{after, upTo}, args...), limit), eventDest)
}

// Timeline returns up to limit events about a key, the oldest first, whether they have
// a position yet or not.
func (r EventReader) Timeline(key string, limit int) ([]models.Event, error) {
	return list(r.from, "SELECT "+eventColumns+" FROM events WHERE key = ? ORDER BY seq LIMIT ?", []any{key, limit}, eventDest)
}

// Newest returns the newest event of a type about a key, or errs.NotFound.
func (r EventReader) Newest(key string, kind models.EventType) (models.Event, error) {
	return one(r.from, "SELECT "+eventColumns+" FROM events WHERE key = ? AND type = ? ORDER BY seq DESC LIMIT 1", []any{key, kind}, eventDest)
}

// Unnumbered reports whether committed events wait for a position: of the types, or of any type.
func (r EventReader) Unnumbered(types ...models.EventType) (bool, error) {
	where, args := "", []any(nil)
	if len(types) > 0 {
		where, args = inList(types)
		where = " AND type IN " + where
	}
	return value[bool](r.from, "SELECT EXISTS (SELECT 1 FROM events WHERE position IS NULL"+where+")", args...)
}

// LastPosition is the position of the newest numbered event, 0 before the first.
func (r EventReader) LastPosition() (int64, error) {
	return value[int64](r.from, "SELECT position FROM event_head WHERE id = 1")
}

// Purge deletes up to limit numbered events older than before and returns
// how many. Positions are never given out again.
func (tx Events) Purge(before time.Time, limit int) (int64, error) {
	return tx.exec(`DELETE FROM events WHERE seq IN
		(SELECT seq FROM events WHERE at < ? AND position IS NOT NULL ORDER BY at LIMIT ?)`, Micros(before), limit)
}

// EventDraft is a new event.
type EventDraft struct {
	Type models.EventType
	Key  string
	Data any
}
