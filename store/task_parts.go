package store

import (
	"database/sql"

	"comet/internal/errs"
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

// PeekTask returns a task without locking it, or errs.NotFound.
func (tx *Tx) PeekTask(id string) (models.Task, error) {
	var r taskRow
	if err := tx.queryRow("SELECT "+taskColumns+" FROM tasks WHERE id = ?", []any{id}, r.dest()...); err != nil {
		return models.Task{}, err
	}
	return r.task(), nil
}

// ReadOutput returns all that an attempt has put out into a stream, or errs.LimitReached
// where that is more than most bytes.
func (tx *Tx) ReadOutput(taskID string, attempt int, stream models.OutputStream, most int) (out []byte, err error) {
	const query = "SELECT data FROM task_outputs WHERE task_id = ? AND attempt = ? AND stream = ? ORDER BY start"
	err = tx.query(query, []any{taskID, attempt, int(stream)}, func(rows *sql.Rows) error {
		var data []byte
		if err := rows.Scan(&data); err != nil {
			return err
		}
		if len(out)+len(data) > most {
			return errs.New(errs.LimitReached, "the output is longer than %d bytes", most)
		}
		out = append(out, data...)
		return nil
	})
	return out, err
}
