package store

import (
	"context"
	"database/sql"

	"comet/models"
)

// AddOutput keeps a piece of what an attempt has put out. Of two pieces with the same
// start the first one stays.
func (tx *Tx) AddOutput(taskID string, attempt int, o models.Output) error {
	_, err := tx.exec("INSERT INTO task_outputs (task_id, attempt, stream, start, data) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
		taskID, attempt, int(o.Stream), o.Start, o.Data)
	return err
}

// DropOutput forgets what an attempt has put out into one stream.
func (tx *Tx) DropOutput(taskID string, attempt int, stream models.OutputStream) error {
	_, err := tx.exec("DELETE FROM task_outputs WHERE task_id = ? AND attempt = ? AND stream = ?", taskID, attempt, int(stream))
	return err
}

// MoveToLog makes the pieces of an attempt's result pieces of its log, from a byte on.
func (tx *Tx) MoveToLog(taskID string, attempt int, at int64) error {
	_, err := tx.exec("UPDATE task_outputs SET stream = 1, start = start + ? WHERE task_id = ? AND attempt = ? AND stream = 0", at, taskID, attempt)
	return err
}

// OutputRanges returns where the pieces of a stream lie, [start, end), in order.
func (tx *Tx) OutputRanges(taskID string, attempt int, stream models.OutputStream) (out [][2]int64, err error) {
	const query = "SELECT start, length(data) FROM task_outputs WHERE task_id = ? AND attempt = ? AND stream = ? ORDER BY start"
	err = tx.query(query, []any{taskID, attempt, int(stream)}, func(rows *sql.Rows) error {
		var start, length int64
		err := rows.Scan(&start, &length)
		out = append(out, [2]int64{start, start + length})
		return err
	})
	return out, err
}

// Outputs calls each with the pieces of a stream that reach beyond from, in order, until
// it returns an error.
func (s *Store) Outputs(ctx context.Context, taskID string, attempt int, stream models.OutputStream, from int64, each func(models.Output) error) error {
	const query = `SELECT start, data FROM task_outputs WHERE task_id = ? AND attempt = ? AND stream = ? AND start >= coalesce(
		(SELECT max(start) FROM task_outputs WHERE task_id = ? AND attempt = ? AND stream = ? AND start <= ?), 0) ORDER BY start`
	args := []any{taskID, attempt, int(stream), taskID, attempt, int(stream), from}
	return s.query(ctx, s.dialect.bind(query), args, func(rows *sql.Rows) error {
		o := models.Output{Stream: stream}
		if err := rows.Scan(&o.Start, &o.Data); err != nil || o.Start+int64(len(o.Data)) <= from {
			return err
		}
		return each(o)
	})
}
