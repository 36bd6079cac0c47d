package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"comet/models"
)

// Emit writes an event that tells of what this transaction does. It must follow
// the write (or lock) of the row the event is about: only then are the events of
// one key in the order of their changes. data is encoded as JSON.
func (tx *Tx) Emit(kind models.EventType, key string, data any) error {
	payload, err := json.Marshal(data)
	if err != nil {
		return err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	_, err = tx.exec("INSERT INTO events (id, type, key, at, data) VALUES (?, ?, ?, ?, ?)",
		id.String(), string(kind), key, micros(tx.now), string(payload))
	tx.wroteEvents = true
	return err
}

// maxEventKey is the longest key of an event, in bytes, that somebody else made up.
const maxEventKey = 300

// EmitAll is Emit for many events, in their order.
func (tx *Tx) EmitAll(list []models.EventDraft) error {
	const width = 5
	args := make([]any, 0, width*len(list))
	for _, e := range list {
		payload, err := json.Marshal(e.Data)
		if err != nil {
			return err
		}
		id, err := uuid.NewV7()
		if err != nil {
			return err
		}
		args = append(args, id.String(), string(e.Type), storable(e.Key, maxEventKey), micros(tx.now), string(payload))
	}
	tx.wroteEvents = tx.wroteEvents || len(list) > 0
	return tx.insertRows("INSERT INTO events (id, type, key, at, data)", "", width, args)
}

// NumberAtMost gives up to limit committed events that have no position yet the next ones,
// in the order in which they were written; they got the positions (after, upTo]. An id
// drawn from a sequence is not commit order: a reader that resumed by it would miss events
// whose transaction took longer.
func (tx *Tx) NumberAtMost(limit int) (after, upTo int64, err error) {
	var head int64
	if err := tx.queryRow("SELECT position FROM event_head WHERE id = 1"+tx.store.dialect.forUpdate, nil, &head); err != nil {
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

// EventsAfter returns up to limit numbered events with a position above after,
// in order. Who has read position n has seen, or will never see, every event up
// to n: lower positions do not appear later.
func (s *Store) EventsAfter(ctx context.Context, after int64, limit int) ([]models.Event, error) {
	var out []models.Event
	err := s.query(ctx, s.dialect.bind("SELECT "+eventColumns+" FROM events WHERE position > ? ORDER BY position LIMIT ?"),
		[]any{after, limit}, scanEvents(&out))
	return out, err
}

// EventsOf returns up to limit events of the types with a position in (after, upTo], in
// order.
func (s *Store) EventsOf(ctx context.Context, after, upTo int64, types []models.EventType, limit int) (out []models.Event, err error) {
	if len(types) == 0 {
		return nil, nil
	}
	list, args := inList(types)
	err = s.query(ctx, s.dialect.bind("SELECT "+eventColumns+" FROM events WHERE position > ? AND position <= ? AND type IN "+list+" ORDER BY position LIMIT ?"),
		append(append([]any{after, upTo}, args...), limit), scanEvents(&out))
	return out, err
}

// EventsBetween returns the events of the types with a position in (after, upTo],
// in order.
func (tx *Tx) EventsBetween(after, upTo int64, types []models.EventType) (out []models.Event, err error) {
	if len(types) == 0 {
		return nil, nil
	}
	list, args := inList(types)
	err = tx.query("SELECT "+eventColumns+" FROM events WHERE position > ? AND position <= ? AND type IN "+list+" ORDER BY position",
		append([]any{after, upTo}, args...), scanEvents(&out))
	return out, err
}

const eventColumns = "id, position, type, key, at, data"

// scanEvents appends rows of eventColumns to out.
func scanEvents(out *[]models.Event) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		var e models.Event
		var at int64
		var data string
		if err := rows.Scan(&e.ID, &e.Position, &e.Type, &e.Key, &at, &data); err != nil {
			return err
		}
		e.At, e.Data = fromMicros(at), json.RawMessage(data)
		*out = append(*out, e)
		return nil
	}
}

// EventsUnnumbered reports whether committed events wait for a position.
func (s *Store) EventsUnnumbered(ctx context.Context) (bool, error) {
	var n int
	err := s.queryRow(ctx, "SELECT count(*) FROM (SELECT 1 FROM events WHERE position IS NULL LIMIT 1) AS e", nil, &n)
	return n > 0, err
}

// EventsUnnumberedOf reports whether committed events of the types wait for a position.
func (s *Store) EventsUnnumberedOf(ctx context.Context, types []models.EventType) (bool, error) {
	var n int
	list, args := inList(types)
	err := s.queryRow(ctx, s.dialect.bind("SELECT count(*) FROM (SELECT 1 FROM events WHERE position IS NULL AND type IN "+list+" LIMIT 1) AS e"), args, &n)
	return n > 0, err
}

// LastPosition is the position of the newest numbered event, 0 before the first.
func (s *Store) LastPosition(ctx context.Context) (int64, error) {
	var head int64
	err := s.queryRow(ctx, "SELECT position FROM event_head WHERE id = 1", nil, &head)
	return head, err
}

// PurgeEvents deletes up to limit numbered events older than before and returns
// how many. Positions are never given out again.
func (tx *Tx) PurgeEvents(before time.Time, limit int) (int64, error) {
	return tx.exec(`DELETE FROM events WHERE seq IN
		(SELECT seq FROM events WHERE at < ? AND position IS NOT NULL ORDER BY at LIMIT ?)`, micros(before), limit)
}
