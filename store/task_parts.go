package store

import (
	"context"
	"database/sql"

	"comet/models"
)

// Rebudget changes what all attempts at a task may use together, and where its newest
// attempt's tokens are held.
func (tx *Tx) Rebudget(taskID string, budget int64, attempt int, reservationID string) error {
	if _, err := tx.exec("UPDATE tasks SET budget = ? WHERE id = ?", budget, taskID); err != nil {
		return err
	}
	_, err := tx.exec("UPDATE attempts SET reservation_id = ? WHERE task_id = ? AND attempt = ?", reservationID, taskID, attempt)
	return err
}

// AddTokens counts what a task has used although it may have ended.
func (tx *Tx) AddTokens(taskID string, n int64) error {
	_, err := tx.exec("UPDATE tasks SET tokens = tokens + ? WHERE id = ?", n, taskID)
	return err
}

// WaitingLines returns up to limit lines in which tasks wait, those with the highest
// priority first, then those in which somebody has waited longest.
func (s *Store) WaitingLines(ctx context.Context, limit int) (out []models.TaskLine, err error) {
	const query = "SELECT route, count(*) FROM tasks WHERE waits = 1 GROUP BY route ORDER BY max(priority) DESC, min(created_at) LIMIT ?"
	err = s.query(ctx, s.dialect.bind(query), []any{limit}, func(rows *sql.Rows) error {
		var l models.TaskLine
		err := rows.Scan(&l.Route, &l.Tasks)
		out = append(out, l)
		return err
	})
	return out, err
}

// CountChildren counts the tasks that one was handed off into, up to most.
func (tx *Tx) CountChildren(taskID string, most int) (n int, err error) {
	err = tx.queryRow("SELECT count(*) FROM (SELECT 1 FROM tasks WHERE parent_id = ? LIMIT ?) AS c", []any{taskID, most}, &n)
	return n, err
}

// OpenChildren returns the tasks that one was handed off into and that have not ended,
// in the order in which they are locked.
func (tx *Tx) OpenChildren(taskID string) (ids []string, err error) {
	err = tx.query("SELECT id FROM tasks WHERE parent_id = ? AND state < 2 ORDER BY id", []any{taskID}, func(rows *sql.Rows) error {
		var id string
		err := rows.Scan(&id)
		ids = append(ids, id)
		return err
	})
	return ids, err
}
