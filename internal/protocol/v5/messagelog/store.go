package messagelog

import (
	"context"
	"fmt"
	"strings"
	"time"

	"comet/internal/protocol/v5/shortid"
	"comet/store"
)

// Message is a message of PROTOCOL_V5 that was sent to the orchestrator or by it (§10).
type Message struct {
	// ID is a UUIDv7 that is generated when the message is sent or received: messages of one
	// process are in the order of their ids.
	ID string
	At time.Time
	// Peer is the other end, such as W1: each message is sent to the orchestrator or by it, also
	// one from W1 to W2. All requesters are User in a message, and here "User:" and the id of
	// their token, so that none of them finds messages of another one.
	Peer string
	// Context is the number of CTX, and Task that of TID, 0 for none.
	Context int64
	Task    int
	// Depth is the number of hand-offs above the subtask that the message is about.
	Depth int
	// Number is MSG; each sender counts its messages in a context.
	Number   int
	From, To string
	Type     string
	// State and Code are "" for "-".
	State, Code string
	// Data contains no secrets.
	Data string
	// Parent is the number of the message that this one names as its cause (§10.2, pid), 0 for
	// none.
	Parent int
	// ParentID is the id of the message that caused this one: the one that Parent means, or the one
	// that this one replies to; "" if it is not known.
	ParentID string
}

// maxData is the stored length of DATA in bytes: 200 characters.
const maxData = 800

const columns = "id, at, peer, context, task, depth, number, sender, receiver, type, state, code, data, parent, parent_id"

func insert(tx *store.Tx, messages []Message) error {
	const width = 15
	args := make([]any, 0, width*len(messages))
	for _, m := range messages {
		args = append(args, m.ID, store.Micros(m.At), m.Peer, m.Context, int64(m.Task), int64(m.Depth), int64(m.Number),
			m.From, m.To, m.Type, m.State, m.Code, store.StorableText(m.Data, maxData), int64(m.Parent), m.ParentID)
	}
	return tx.InsertRows("INSERT INTO v5_messages ("+columns+")", "ON CONFLICT DO NOTHING", width, args)
}

// numberKey is a message number of a peer in a context.
type numberKey struct {
	context int64
	peer    string
	number  int
}

// newestByNumber returns the id of the newest message for each of the keys that have one.
func newestByNumber(tx *store.Tx, keys []numberKey) (map[numberKey]string, error) {
	const width, one = 3, "SELECT context, peer, number, max(id) FROM v5_messages WHERE context = ? AND peer = ? AND number = ? GROUP BY context, peer, number"
	out := make(map[numberKey]string, len(keys))
	args := make([]any, 0, width*len(keys))
	for _, k := range keys {
		args = append(args, k.context, k.peer, int64(k.number))
	}
	err := store.EachKeys(args, width, func(_ string, args []any) error {
		return tx.Query(one+strings.Repeat(" UNION ALL "+one, len(args)/width-1), args, func(scan func(...any) error) error {
			var k numberKey
			var id string
			err := scan(&k.context, &k.peer, &k.number, &id)
			out[k] = id
			return err
		})
	})
	return out, err
}

// byNumber returns the newest message with a number that was exchanged with peer in a context, or
// errs.NotFound.
func byNumber(ctx context.Context, s *store.Store, k numberKey) (m Message, err error) {
	const query = "SELECT " + columns + " FROM v5_messages WHERE context = ? AND peer = ? AND number = ? ORDER BY id DESC LIMIT 1"
	err = s.QueryRow(ctx, query, []any{k.context, k.peer, k.number}, fields(&m)...)
	return m, err
}

// byTask returns up to limit messages about a task at a depth or deeper after the message with an
// id, in their order.
func byTask(ctx context.Context, s *store.Store, of shortid.ID, depth int, after string, limit int) (out []Message, err error) {
	const query = "SELECT " + columns + " FROM v5_messages WHERE context = ? AND task = ? AND id > ? AND depth >= ? ORDER BY id LIMIT ?"
	err = s.Query(ctx, query, []any{of.Context, of.Task, after, depth, limit}, func(scan func(...any) error) error {
		var m Message
		err := scan(fields(&m)...)
		out = append(out, m)
		return err
	})
	return out, err
}

// fields returns the destinations of a row of columns.
func fields(m *Message) []any {
	return []any{
		&m.ID, store.ScanTime{Into: &m.At}, &m.Peer, &m.Context, &m.Task, &m.Depth, &m.Number, &m.From, &m.To, &m.Type, &m.State, &m.Code, &m.Data,
		&m.Parent, &m.ParentID,
	}
}

// Purge deletes up to limit messages that were exchanged before a time, and returns how many.
func Purge(tx *store.Tx, before time.Time, limit int) (int64, error) {
	// A UUIDv7 begins with its milliseconds.
	ms := max(before.UnixMilli(), 0)
	return tx.Exec("DELETE FROM v5_messages WHERE id IN (SELECT id FROM v5_messages WHERE id < ? ORDER BY id LIMIT ?)",
		fmt.Sprintf("%08x-%04x", ms>>16, ms&0xffff), limit)
}
