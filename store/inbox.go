package store

import (
	"cmp"
	"errors"
	"time"

	"github.com/google/uuid"

	"comet/models"
)

// BenchmarkRoundTrip and BenchmarkAccept in internal/bench measure the statements of the inbox,
// which are written by hand.

// Enqueue puts a message into an agent's inbox and returns its id. It is delivered at least
// once, until the agent acknowledges it.
func (tx Inbox) Enqueue(m models.InboxMessage) (string, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", err
	}
	var task *string
	if m.TaskID != "" {
		task = &m.TaskID
	}
	tx.store.cache.AddMessages(&tx.state.cached, m.AgentID)
	err = tx.run("INSERT INTO inbox (agent_id, id, kind, priority, task_id, attempt, data, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
		m.AgentID, id.String(), m.Kind, m.Priority, task, m.Attempt, jsonText(m.Data), tx.now)
	return id.String(), err
}

// EnqueueAll puts a message that belongs to no task into the inboxes of several agents, each
// under an id of its own unless the message has one.
func (tx Inbox) EnqueueAll(agentIDs []string, m models.InboxMessage) error {
	tx.store.cache.AddMessages(&tx.state.cached, agentIDs...)
	const width = 7
	args := make([]any, 0, width*len(agentIDs))
	for _, agentID := range agentIDs {
		id, err := uuid.NewV7()
		if err != nil {
			return err
		}
		args = append(args, agentID, cmp.Or(m.ID, id.String()), m.Kind, m.Priority, 0, jsonText(m.Data), tx.now)
	}
	return tx.insertRows("INSERT INTO inbox (agent_id, id, kind, priority, attempt, data, created_at)", "", width, args)
}

// Received is a task whose assignment was acknowledged.
type Received struct{ TaskID, Class, OwnerAgent string }

// Acknowledge removes messages from an agent's inbox and returns how many were there, and the tasks that were assigned by them.
func (tx Inbox) Acknowledge(agentID string, ids []string) (n int64, assigned []Received, err error) {
	n, err = tx.exec("DELETE FROM inbox WHERE agent_id = ? AND id "+tx.engine.in, agentID, Keys(ids))
	if err != nil || n == int64(len(ids)) {
		return n, nil, err
	}
	assigned, err = list[Received](tx.reader, "UPDATE tasks SET message_id = '' WHERE agent_id = ? AND message_id <> '' AND message_id "+tx.engine.in+" RETURNING id, class, owner_agent_id", agentID, Keys(ids))
	tasks := Tasks{taskReader{tx.reader}}
	for _, is := range assigned {
		row := tasks.cached(is.TaskID)
		if row != nil {
			t := *row
			t.MessageID, row = "", &t
		}
		tasks.changed(is.TaskID, row)
		tx.store.cache.Assign(&tx.state.cached, models.Task{ID: is.TaskID})
	}
	return n + int64(len(assigned)), assigned, err
}

// Cancel removes the messages of an attempt from the inboxes, except cancellations and results for the requester.
func (tx Inbox) Cancel(taskID string, attempt int) error {
	return tx.run("DELETE FROM inbox WHERE task_id = ? AND attempt = ? AND kind NOT IN ('cancel', 'ended')", taskID, attempt)
}

// KeepNotices deletes broadcasts from the inboxes of several agents, except
// the most newest ones in each.
func (tx Inbox) KeepNotices(agentIDs []string, most int) error {
	return tx.run(`DELETE FROM inbox WHERE (agent_id, id) IN (SELECT agent_id, id FROM
		(SELECT agent_id, id, row_number() OVER (PARTITION BY agent_id ORDER BY id DESC) AS newer FROM inbox
		WHERE kind = 'notice' AND agent_id `+tx.engine.in+`) AS notices WHERE newer > ?)`, Keys(agentIDs), most)
}

// PurgeNotices deletes up to limit broadcasts that are older than before, and returns how many.
func (tx Inbox) PurgeNotices(before time.Time, limit int) (int64, error) {
	return tx.exec("DELETE FROM inbox WHERE id IN (SELECT id FROM inbox WHERE task_id IS NULL AND kind = 'notice' AND created_at < ? LIMIT ?) AND kind = 'notice'", before, limit)
}

// List returns up to limit messages that an agent has not acknowledged, those of
// higher priority first, then the oldest, and last those that must not be delivered yet. An assigned
// task is itself a message.
func (r inboxReader) List(agentID string, limit int) ([]models.InboxMessage, error) {
	cached, change, ok := r.store.cache.Messages(agentID, limit)
	if ok && r.state == nil {
		return cached, errors.Join(r.store.usable(), r.ctx.Err())
	}
	const query = `SELECT * FROM (SELECT agent_id, id, kind, priority, coalesce(task_id, ''), attempt, data, created_at, not_before FROM inbox WHERE agent_id = ? UNION ALL
		SELECT agent_id, message_id, 'assign', priority, id, attempt, '', assigned_at, 0 FROM tasks WHERE agent_id = ? AND message_id <> '') AS messages
		ORDER BY not_before > ?, priority DESC, id LIMIT ?`
	all, err := list[models.InboxMessage](r.reader, query, agentID, agentID, r.now, limit)
	if err == nil && len(all) < limit && r.state == nil {
		r.store.cache.Listed(agentID, change, all)
	}
	return all, err
}

// loadCache reads the tasks that are messages, the agents with other messages, and the number of queued tasks.
func (s *Store) loadCache(r reader) error {
	assigned, err := list[models.InboxMessage](r, "SELECT agent_id, message_id AS id, 'assign' AS kind, priority, id AS task_id, attempt, '' AS data, assigned_at AS created_at, 0 AS not_before FROM tasks WHERE message_id <> ''")
	if err != nil {
		return err
	}
	agents, err := list[string](r, "SELECT DISTINCT agent_id FROM inbox")
	if err != nil {
		return err
	}
	queued, err := one[int64](r, "SELECT count(*) FROM tasks WHERE waiting_for = 1")
	if err == nil {
		s.cache.Load(assigned, agents, queued)
	}
	return err
}

// Pending returns those of the messages that are in an agent's inbox.
func (r inboxReader) Pending(agentID string, ids []string) ([]string, error) {
	return list[string](r.reader, "SELECT id FROM inbox WHERE agent_id = ? AND id "+r.engine.in+
		" UNION ALL SELECT message_id FROM tasks WHERE agent_id = ? AND message_id <> '' AND message_id "+r.engine.in, agentID, Keys(ids), agentID, Keys(ids))
}

// MarkProcessed marks a message of an agent as processed by this transaction and reports whether
// it was unmarked. Of two concurrent transactions the second waits for the first.
func (tx Inbox) MarkProcessed(agentID, messageID string) (bool, error) {
	n, err := tx.exec("INSERT INTO processed_messages (agent_id, message_id, at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", agentID, messageID, tx.now)
	return n == 1, err
}

// MarkEachProcessed is MarkProcessed for one message of several agents. It returns the agents for
// which it was unmarked, in any order.
func (tx Inbox) MarkEachProcessed(agentIDs []string, messageID string) ([]string, error) {
	return list[string](tx.reader, `INSERT INTO processed_messages (agent_id, message_id, at)
		SELECT id, CAST(? AS TEXT), CAST(? AS BIGINT) FROM agents WHERE id `+tx.engine.in+` ON CONFLICT DO NOTHING RETURNING agent_id`, messageID, tx.now, Keys(agentIDs))
}

// IsProcessed reports whether a message of an agent is marked as processed.
func (r inboxReader) IsProcessed(agentID, messageID string) (bool, error) {
	const query = "SELECT EXISTS (SELECT 1 FROM processed_messages WHERE agent_id = ? AND message_id = ?)"
	return one[bool](r.reader, query, agentID, messageID)
}

// PurgeProcessed deletes up to limit marks of messages processed before a time and
// returns how many.
func (tx Inbox) PurgeProcessed(before time.Time, limit int) (int64, error) {
	return tx.exec(`DELETE FROM processed_messages WHERE (agent_id, message_id) IN
		(SELECT agent_id, message_id FROM processed_messages WHERE at < ? ORDER BY at LIMIT ?)`, before, limit)
}
