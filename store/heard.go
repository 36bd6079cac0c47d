package store

import (
	"context"
	"database/sql"
	"time"
)

// MarkProcessed keeps that a message of an agent has its effect in this transaction, and reports
// whether it is the first time. Two at the same moment wait for each other.
func (tx *Tx) MarkProcessed(agentID, messageID string) (bool, error) {
	n, err := tx.exec("INSERT INTO heard (agent_id, message_id, at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", agentID, messageID, micros(tx.now))
	return n == 1, err
}

// MarkEachProcessed is Hear for one message of several agents, and returns those who hear it for the
// first time, in any order.
func (tx *Tx) MarkEachProcessed(agentIDs []string, messageID string) (fresh []string, err error) {
	err = eachKeys(anys(agentIDs), 1, func(list string, args []any) error {
		return tx.query("INSERT INTO heard (agent_id, message_id, at) SELECT id, ?, ? FROM agents WHERE id IN "+list+" ON CONFLICT DO NOTHING RETURNING agent_id",
			append([]any{messageID, micros(tx.now)}, args...), func(rows *sql.Rows) error {
				var id string
				err := rows.Scan(&id)
				fresh = append(fresh, id)
				return err
			})
	})
	return fresh, err
}

// IsProcessed reports whether Hear was committed for a message.
func (s *Store) IsProcessed(ctx context.Context, agentID, messageID string) (bool, error) {
	var n int
	err := s.queryRow(ctx, s.dialect.bind("SELECT count(*) FROM heard WHERE agent_id = ? AND message_id = ?"), []any{agentID, messageID}, &n)
	return n > 0, err
}

// PurgeProcessedMessages forgets up to limit messages heard before, and returns how many.
func (tx *Tx) PurgeProcessedMessages(before time.Time, limit int) (int64, error) {
	return tx.exec(`DELETE FROM heard WHERE (agent_id, message_id) IN
		(SELECT agent_id, message_id FROM heard WHERE at < ? ORDER BY at LIMIT ?)`, micros(before), limit)
}

// PurgeRequests forgets up to limit requests for tasks made before, and returns how many.
func (tx *Tx) PurgeRequests(before time.Time, limit int) (int64, error) {
	return tx.exec(`DELETE FROM task_requests WHERE (owner, request_id) IN
		(SELECT owner, request_id FROM task_requests WHERE created_at < ? ORDER BY created_at LIMIT ?)`, micros(before), limit)
}

// PurgeTasks deletes up to limit tasks that ended before, were not handed on to one that is
// kept and are no part of one that has not ended, with all that is kept of them, and returns how many.
func (tx *Tx) PurgeTasks(before time.Time, limit int) (int64, error) {
	return tx.exec(`DELETE FROM tasks WHERE id IN (SELECT id FROM tasks AS t WHERE state >= 2 AND ended_at < ? AND
		NOT EXISTS (SELECT 1 FROM tasks AS child WHERE child.parent_id = t.id) AND
		NOT EXISTS (SELECT 1 FROM tasks AS whole WHERE whole.id = t.parent_id AND whole.state < 2) ORDER BY ended_at LIMIT ?)`, micros(before), limit)
}

// PurgeSessions deletes up to limit sessions that were closed before and have no task
// left, and returns how many.
func (tx *Tx) PurgeSessions(before time.Time, limit int) (int64, error) {
	return tx.exec(`DELETE FROM sessions WHERE id IN (SELECT id FROM sessions AS s WHERE state = 1 AND updated_at < ? AND
		NOT EXISTS (SELECT 1 FROM tasks WHERE session_id = s.id AND session_id <> '') ORDER BY updated_at LIMIT ?)`, micros(before), limit)
}
