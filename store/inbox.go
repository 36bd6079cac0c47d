package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"comet/models"
)

const inboxColumns = "agent_id, id, kind, priority, task_id, attempt, data, created_at"

// EnqueueMessage puts a message into an agent's inbox and returns its id. The agent has it, at
// least once, until it is acknowledged.
func (tx *Tx) EnqueueMessage(m models.InboxMessage) (string, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", err
	}
	data := string(m.Data)
	if data == "" {
		data = "null"
	}
	task := any(m.TaskID)
	if m.TaskID == "" {
		task = nil
	}
	_, err = tx.exec("INSERT INTO inbox ("+inboxColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
		m.AgentID, id.String(), string(m.Kind), m.Priority, task, m.Attempt, data, micros(tx.now))
	return id.String(), err
}

// Acknowledge removes messages from an agent's inbox and returns how many were there.
func (tx *Tx) Acknowledge(agentID string, ids []string) (n int64, err error) {
	err = eachKeys(anys(ids), 1, func(list string, args []any) error {
		gone, err := tx.exec("DELETE FROM inbox WHERE agent_id = ? AND id IN "+list, append([]any{agentID}, args...)...)
		n += gone
		return err
	})
	return n, err
}

// CancelMessages removes from an agent's inbox what an attempt has put there, but cancellations
// and what is told to the asker.
func (tx *Tx) CancelMessages(taskID string, attempt int) error {
	_, err := tx.exec("DELETE FROM inbox WHERE task_id = ? AND attempt = ? AND kind NOT IN ('cancel', 'ended')", taskID, attempt)
	return err
}

// Inbox returns up to limit messages that an agent has not acknowledged, those of
// higher priority first, then the oldest.
func (s *Store) Inbox(ctx context.Context, agentID string, limit int) (out []models.InboxMessage, err error) {
	err = s.query(ctx, s.dialect.bind("SELECT "+inboxColumns+" FROM inbox WHERE agent_id = ? ORDER BY priority DESC, id LIMIT ?"), []any{agentID, limit}, func(rows *sql.Rows) error {
		var m models.InboxMessage
		var created int64
		var data string
		var task *string
		err := rows.Scan(&m.AgentID, &m.ID, &m.Kind, &m.Priority, &task, &m.Attempt, &data, &created)
		m.Data, m.CreatedAt = json.RawMessage(data), fromMicros(created)
		if task != nil {
			m.TaskID = *task
		}
		out = append(out, m)
		return err
	})
	return out, err
}

// Audience returns up to limit agents that speak a dialect and are not offline, those of a
// sphere where it is not 0, in the order of their ids behind one.
func (tx *Tx) Audience(dialect string, sphere int, after string, limit int) (ids []string, err error) {
	const query = "SELECT w.agent_id FROM workers AS w JOIN agents AS a ON a.id = w.agent_id WHERE w.agent_id > ? AND w.dialect = ? AND w.state > 0 AND a.is_active" +
		" AND (? = 0 OR a.sphere_id = ?) ORDER BY w.agent_id LIMIT ?"
	err = tx.query(query, []any{after, dialect, sphere, sphere, limit}, func(rows *sql.Rows) error {
		var id string
		err := rows.Scan(&id)
		ids = append(ids, id)
		return err
	})
	return ids, err
}

// PurgeNotices removes up to limit messages about no task from before then, which nobody
// has taken, and returns how many.
func (tx *Tx) PurgeNotices(before time.Time, limit int) (int64, error) {
	return tx.exec("DELETE FROM inbox WHERE id IN (SELECT id FROM inbox WHERE task_id IS NULL AND created_at < ? LIMIT ?) AND task_id IS NULL", micros(before), limit)
}

// MessagePending returns those of the messages that are in an agent's inbox.
func (s *Store) MessagePending(ctx context.Context, agentID string, ids []string) (out []string, err error) {
	err = eachKeys(anys(ids), 1, func(list string, args []any) error {
		return s.query(ctx, s.dialect.bind("SELECT id FROM inbox WHERE agent_id = ? AND id IN "+list), append([]any{agentID}, args...), func(rows *sql.Rows) error {
			var id string
			err := rows.Scan(&id)
			out = append(out, id)
			return err
		})
	})
	return out, err
}
