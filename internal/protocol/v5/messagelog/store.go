package messagelog

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"comet/internal/protocol/v5/shortid"
	"comet/store"
	"comet/store/columns"
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
	Number int
	From   string `gorm:"column:sender"`
	To     string `gorm:"column:receiver"`
	Type   string
	// State and Code are "" for "-".
	State, Code string
	// Data contains no secrets.
	Data string
	// Parent is the number of the message that this one names as its cause (§10.2, pid), 0 for none.
	Parent int
	// ParentID is the id of the message that caused this one: the one that Parent means, or the one
	// that this one replies to; "" if it is not known.
	ParentID string
}

// maxData is the stored length of DATA in bytes: 200 characters.
const maxData = 800

// TableName implements gorm's schema.Tabler.
func (Message) TableName() string { return "v5_messages" }

// insert stores messages. It first replaces their data by text that both databases can store.
func insert(tx *store.Tx, messages []Message) error {
	for i := range messages {
		messages[i].Data = columns.Text(messages[i].Data, maxData)
	}
	return store.Insert(tx, "ON CONFLICT DO NOTHING", messages...)
}

// numberKey is a message number of a peer in a context.
type numberKey struct {
	Context int64
	Peer    string
	Number  int
}

// keysAtOnce is the number of keys that one statement looks up.
const keysAtOnce = 64

// newestByNumber returns the id of the newest message for each of the keys that have one.
func newestByNumber(tx *store.Tx, keys []numberKey) (map[numberKey]string, error) {
	type newest struct {
		Context int64
		Peer    string
		Number  int
		ID      string
	}
	const one = "SELECT context, peer, number, max(id) FROM v5_messages WHERE context = ? AND peer = ? AND number = ? GROUP BY context, peer, number"
	out := make(map[numberKey]string, len(keys))
	for some := range slices.Chunk(keys, keysAtOnce) {
		var args []any
		for _, k := range some {
			args = append(args, k.Context, k.Peer, k.Number)
		}
		found, err := store.Rows[newest](tx, one+strings.Repeat(" UNION ALL "+one, len(some)-1), args...)
		if err != nil {
			return nil, err
		}
		for _, m := range found {
			out[numberKey{m.Context, m.Peer, m.Number}] = m.ID
		}
	}
	return out, nil
}

func selectMessages() string { return "SELECT " + columns.List[Message]() + " FROM v5_messages " }

// byNumber returns the newest message with a number that was exchanged with peer in a context, or
// errs.NotFound.
func byNumber(ctx context.Context, s *store.Store, k numberKey) (Message, error) {
	return store.Row[Message](s.Reads(ctx), selectMessages()+"WHERE context = ? AND peer = ? AND number = ? ORDER BY id DESC LIMIT 1", k.Context, k.Peer, k.Number)
}

// byTask returns up to limit messages about a task at a depth or deeper after the message with an
// id, in their order.
func byTask(ctx context.Context, s *store.Store, of shortid.ID, depth int, after string, limit int) ([]Message, error) {
	return store.Rows[Message](s.Reads(ctx), selectMessages()+"WHERE context = ? AND task = ? AND id > ? AND depth >= ? ORDER BY id LIMIT ?",
		of.Context, of.Task, after, depth, limit)
}

// Purge deletes up to limit messages that were exchanged before a time, and returns how many.
func Purge(tx *store.Tx, before time.Time, limit int) (int64, error) {
	// A UUIDv7 begins with its milliseconds.
	ms := max(before.UnixMilli(), 0)
	return tx.Exec("DELETE FROM v5_messages WHERE id IN (SELECT id FROM v5_messages WHERE id < ? ORDER BY id LIMIT ?)",
		fmt.Sprintf("%08x-%04x", ms>>16, ms&0xffff), limit)
}
