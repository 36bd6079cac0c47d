package store

import (
	"context"
	"database/sql"
	"slices"

	"comet/models"
)

// Rebudget changes what all attempts at a task may use together, and where its newest
// attempt's tokens are held.
func (tx *Tx) Rebudget(taskID string, budget int64, attempt int, reservationID string) error {
	if err := tx.SetBudget(taskID, budget); err != nil {
		return err
	}
	_, err := tx.exec("UPDATE attempts SET reservation_id = ? WHERE task_id = ? AND attempt = ?", reservationID, taskID, attempt)
	return err
}

// SetBudget changes what all attempts at a task may use together.
func (tx *Tx) SetBudget(taskID string, budget int64) error {
	_, err := tx.exec("UPDATE tasks SET budget = ? WHERE id = ?", budget, taskID)
	return err
}

// AddTokens counts what a task has used although it may have ended.
func (tx *Tx) AddTokens(taskID string, n int64) error {
	_, err := tx.exec("UPDATE tasks SET tokens = tokens + ? WHERE id = ?", n, taskID)
	return err
}

// WaitingQueues returns up to limit lines in which tasks wait, those with the highest
// priority first, then those in which somebody has waited longest.
func (s *Store) WaitingQueues(ctx context.Context, limit int) (out []models.QueuedRoute, err error) {
	const query = "SELECT route, count(*) FROM tasks WHERE waits = 1 GROUP BY route ORDER BY max(priority) DESC, min(created_at) LIMIT ?"
	err = s.query(ctx, s.dialect.bind(query), []any{limit}, func(rows *sql.Rows) error {
		var l models.QueuedRoute
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

const children = "SELECT " + taskColumns + " FROM tasks WHERE parent_id = ? ORDER BY id"

// Children returns the parts of a task as they are in the transaction, in the order in
// which they were made.
func (tx *Tx) Children(taskID string) (out []models.Task, err error) {
	err = tx.query(children, []any{taskID}, scanTasks(&out))
	return out, err
}

// Children returns the parts of a task, in the order in which they were made.
func (s *Store) Children(ctx context.Context, taskID string) (out []models.Task, err error) {
	err = s.query(ctx, s.dialect.bind(children), []any{taskID}, scanTasks(&out))
	return out, err
}

// Source returns a task without locking it: only what never changes of it may be relied on,
// such as what it is a part of.
func (tx *Tx) Source(id string) (models.Task, error) {
	var r taskRow
	err := tx.queryRow("SELECT "+taskColumns+" FROM tasks WHERE id = ?", []any{id}, r.dest()...)
	if err != nil {
		return models.Task{}, err
	}
	return r.task(), nil
}

// CopyOutput makes what a task gave the result of an attempt at another one, and returns
// how many bytes it has. It is that of the attempt that succeeded.
func (tx *Tx) CopyOutput(from, to string, attempt int) (length int64, err error) {
	_, err = tx.exec(`INSERT INTO task_outputs (task_id, attempt, stream, start, span, data)
		SELECT ?, ?, o.stream, o.start, o.span, o.data FROM task_outputs AS o JOIN attempts AS a ON a.task_id = o.task_id AND a.attempt = o.attempt
		WHERE o.task_id = ? AND o.stream = 0 AND a.state = ?`, to, attempt, from, slices.Index(attemptStates(), models.AttemptSucceeded))
	if err != nil {
		return 0, err
	}
	const query = "SELECT coalesce(sum(length(data)), 0) FROM task_outputs WHERE task_id = ? AND attempt = ? AND stream = 0"
	err = tx.queryRow(query, []any{to, attempt}, &length)
	return length, err
}
