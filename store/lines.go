package store

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"comet/models"
)

// maxLineData is the longest DATA of a line that is kept, in bytes: 200 characters.
const maxLineData = 800

const lineColumns = "id, at, peer, context, task, depth, number, sender, receiver, type, state, code, data, parent, parent_id"

// AddLoggedMessages keeps lines that were said.
func (tx *Tx) AddLoggedMessages(lines []models.LoggedMessage) error {
	const width = 15
	args := make([]any, 0, width*len(lines))
	for _, l := range lines {
		args = append(args, l.ID, micros(l.At), l.Peer, l.Context, int64(l.Task), int64(l.Depth), int64(l.Number),
			l.From, l.To, l.Type, l.State, l.Code, storable(l.Data, maxLineData), int64(l.Parent), l.ParentID)
	}
	return tx.insertRows("INSERT INTO lines ("+lineColumns+")", "ON CONFLICT DO NOTHING", width, args)
}

// LineKey is where lines are numbered, and a number there.
type LineKey struct {
	Context int64
	Peer    string
	Number  int
}

// LoggedMessagesByNumber returns the id of the newest line of each of the keys; one that no line has
// is left out.
func (tx *Tx) LoggedMessagesByNumber(keys []LineKey) (map[LineKey]string, error) {
	const width, one = 3, "SELECT context, peer, number, max(id) FROM lines WHERE context = ? AND peer = ? AND number = ? GROUP BY context, peer, number"
	out := make(map[LineKey]string, len(keys))
	args := make([]any, 0, width*len(keys))
	for _, k := range keys {
		args = append(args, k.Context, k.Peer, int64(k.Number))
	}
	err := eachKeys(args, width, func(_ string, args []any) error {
		return tx.query(one+strings.Repeat(" UNION ALL "+one, len(args)/width-1), args, func(rows *sql.Rows) error {
			var k LineKey
			var id string
			err := rows.Scan(&k.Context, &k.Peer, &k.Number, &id)
			out[k] = id
			return err
		})
	})
	return out, err
}

// LoggedMessageByNumber returns the newest line with a number that was exchanged with peer in a
// context, or errs.NotFound.
func (s *Store) LoggedMessageByNumber(ctx context.Context, of int64, peer string, number int) (l models.LoggedMessage, err error) {
	const query = "SELECT " + lineColumns + " FROM lines WHERE context = ? AND peer = ? AND number = ? ORDER BY id DESC LIMIT 1"
	err = s.queryRow(ctx, s.dialect.bind(query), []any{of, peer, number}, lineInto(&l)...)
	return l, err
}

// LoggedMessages returns the lines about a task that q selects, the first one first.
func (s *Store) LoggedMessages(ctx context.Context, q models.LoggedMessageQuery) (out []models.LoggedMessage, err error) {
	const query = "SELECT " + lineColumns + " FROM lines WHERE context = ? AND task = ? AND id > ? AND depth >= ? ORDER BY id LIMIT ?"
	err = s.query(ctx, s.dialect.bind(query), []any{q.Context, q.Task, q.After, q.Depth, q.Limit}, func(rows *sql.Rows) error {
		var l models.LoggedMessage
		err := rows.Scan(lineInto(&l)...)
		out = append(out, l)
		return err
	})
	return out, err
}

// lineInto is where a row of lineColumns goes.
func lineInto(l *models.LoggedMessage) []any {
	return []any{
		&l.ID, scanMicros{&l.At}, &l.Peer, &l.Context, &l.Task, &l.Depth, &l.Number, &l.From, &l.To, &l.Type, &l.State, &l.Code, &l.Data,
		&l.Parent, &l.ParentID,
	}
}

// scanMicros reads a time.
type scanMicros struct{ into *time.Time }

// Scan implements sql.Scanner.
func (s scanMicros) Scan(v any) error {
	*s.into = fromMicros(whole(v))
	return nil
}

// PurgeLoggedMessages deletes up to limit lines that were said before, and returns how many.
func (tx *Tx) PurgeLoggedMessages(before time.Time, limit int) (int64, error) {
	// A UUIDv7 begins with its milliseconds.
	ms := max(before.UnixMilli(), 0)
	return tx.exec("DELETE FROM lines WHERE id IN (SELECT id FROM lines WHERE id < ? ORDER BY id LIMIT ?)",
		fmt.Sprintf("%08x-%04x", ms>>16, ms&0xffff), limit)
}
