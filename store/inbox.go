package store

import (
	"context"
	"time"

	"github.com/google/uuid"

	"comet/models"
)

// InboxReader reads agents' messages, on the read pool or in a transaction.
type InboxReader struct{ from reader }

// Inbox holds the operations of a transaction on agents' messages.
type Inbox struct {
	InboxReader
	*transaction
}

// Inbox returns the operations on agents' messages.
func (tx *Tx) Inbox() Inbox { return Inbox{InboxReader{tx.reader}, &tx.transaction} }

// Inbox returns the reads of agents' messages.
func (s *Store) Inbox(ctx context.Context) InboxReader { return InboxReader{s.on(ctx)} }

// BenchmarkRoundTrip and BenchmarkAccept in internal/bench measure the statements of the inbox,
// which are written by hand.

const inboxColumns = "agent_id, id, kind, priority, task_id, attempt, data, created_at"

// Enqueue puts a message into an agent's inbox and returns its id. It is delivered at least
// once, until the agent acknowledges it.
func (tx Inbox) Enqueue(m models.InboxMessage) (string, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", err
	}
	task := any(m.TaskID)
	if m.TaskID == "" {
		task = nil
	}
	_, err = tx.exec("INSERT INTO inbox ("+inboxColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
		m.AgentID, id.String(), string(m.Kind), m.Priority, task, m.Attempt, orNull(m.Data), Micros(tx.now))
	return id.String(), err
}

// EnqueueAll puts a message that belongs to no task into the inboxes of several agents, each
// under an id of its own.
func (tx Inbox) EnqueueAll(agentIDs []string, m models.InboxMessage) error {
	const width = 7
	args := make([]any, 0, width*len(agentIDs))
	for _, agentID := range agentIDs {
		id, err := uuid.NewV7()
		if err != nil {
			return err
		}
		args = append(args, agentID, id.String(), string(m.Kind), int64(m.Priority), int64(0), orNull(m.Data), Micros(tx.now))
	}
	return tx.insertRows("INSERT INTO inbox (agent_id, id, kind, priority, attempt, data, created_at)", "", width, args)
}

// Acknowledge removes messages from an agent's inbox and returns how many were there.
func (tx Inbox) Acknowledge(agentID string, ids []string) (int64, error) {
	return tx.execIn(ids, "DELETE FROM inbox WHERE agent_id = ? AND id IN (keys)", agentID)
}

// Cancel removes the messages of an attempt from the inboxes, except cancellations and
// results for the requester.
func (tx Inbox) Cancel(taskID string, attempt int) error {
	return tx.each("DELETE FROM inbox WHERE task_id = ? AND attempt = ? AND kind NOT IN ('cancel', 'ended')", taskID, attempt)
}

// KeepNotices deletes messages that belong to no task from the inboxes of several agents, except
// the most newest ones in each.
func (tx Inbox) KeepNotices(agentIDs []string, most int) error {
	return EachKeys(anys(agentIDs), 1, func(list string, args []any) error {
		return tx.each(`DELETE FROM inbox WHERE (agent_id, id) IN (SELECT agent_id, id FROM
			(SELECT agent_id, id, row_number() OVER (PARTITION BY agent_id ORDER BY id DESC) AS newer FROM inbox
			WHERE task_id IS NULL AND agent_id IN `+list+`) AS notices WHERE newer > ?)`, append(args, most)...)
	})
}

// PurgeNotices deletes up to limit messages that belong to no task and are older than before, and
// returns how many.
func (tx Inbox) PurgeNotices(before time.Time, limit int) (int64, error) {
	return tx.exec("DELETE FROM inbox WHERE id IN (SELECT id FROM inbox WHERE task_id IS NULL AND created_at < ? LIMIT ?) AND task_id IS NULL", Micros(before), limit)
}

// List returns up to limit messages that an agent has not acknowledged, those of
// higher priority first, then the oldest.
func (r InboxReader) List(agentID string, limit int) ([]models.InboxMessage, error) {
	const query = "SELECT agent_id, id, kind, priority, coalesce(task_id, ''), attempt, data, created_at FROM inbox WHERE agent_id = ? ORDER BY priority DESC, id LIMIT ?"
	return list(r.from, query, []any{agentID, limit}, func(m *models.InboxMessage) []any {
		return []any{&m.AgentID, &m.ID, &m.Kind, intInto(&m.Priority), &m.TaskID, intInto(&m.Attempt), scanJSON{&m.Data}, ScanTime{&m.CreatedAt}}
	})
}

// Pending returns those of the messages that are in an agent's inbox.
func (r InboxReader) Pending(agentID string, ids []string) ([]string, error) {
	return listIn(r.from, ids, column[string], "SELECT id FROM inbox WHERE agent_id = ? AND id IN (keys)", agentID)
}

// MarkProcessed marks a message of an agent as processed by this transaction and reports whether
// it was unmarked. Of two concurrent transactions the second waits for the first.
func (tx Inbox) MarkProcessed(agentID, messageID string) (bool, error) {
	n, err := tx.exec("INSERT INTO processed_messages (agent_id, message_id, at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", agentID, messageID, Micros(tx.now))
	return n == 1, err
}

// MarkEachProcessed is MarkProcessed for one message of several agents. It returns the agents for
// which it was unmarked, in any order.
func (tx Inbox) MarkEachProcessed(agentIDs []string, messageID string) ([]string, error) {
	return listIn(tx.reader, agentIDs, column[string], `INSERT INTO processed_messages (agent_id, message_id, at)
		SELECT id, ?, ? FROM agents WHERE id IN (keys) ON CONFLICT DO NOTHING RETURNING agent_id`, messageID, Micros(tx.now))
}

// IsProcessed reports whether a message of an agent is marked as processed.
func (r InboxReader) IsProcessed(agentID, messageID string) (bool, error) {
	const query = "SELECT EXISTS (SELECT 1 FROM processed_messages WHERE agent_id = ? AND message_id = ?)"
	return value[bool](r.from, query, agentID, messageID)
}

// PurgeProcessed deletes up to limit marks of messages processed before a time and
// returns how many.
func (tx Inbox) PurgeProcessed(before time.Time, limit int) (int64, error) {
	return tx.exec(`DELETE FROM processed_messages WHERE (agent_id, message_id) IN
		(SELECT agent_id, message_id FROM processed_messages WHERE at < ? ORDER BY at LIMIT ?)`, Micros(before), limit)
}

// orNull returns a JSON text, null for none.
func orNull(data []byte) string {
	if len(data) == 0 {
		return "null"
	}
	return string(data)
}
