package store

import (
	"context"
	"database/sql"
	"errors"

	"comet/models"
)

// AddOutput keeps a piece of what an attempt has put out. Of two pieces with the same
// start the first one stays.
func (tx *Tx) AddOutput(taskID string, attempt int, o models.OutputChunk) error {
	var span any
	if o.Span != 0 && o.Span != int64(len(o.Data)) {
		span = o.Span
	}
	_, err := tx.exec("INSERT INTO task_outputs (task_id, attempt, stream, start, span, data) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
		taskID, attempt, int(o.Stream), o.Start, span, o.Data)
	return err
}

// CompactOutput gives the pieces of an attempt's result the places that their bytes
// have, one behind the other, and returns how long the whole is.
func (tx *Tx) CompactOutput(taskID string, attempt int) (total int64, err error) {
	const where = " task_id = ? AND attempt = ? AND stream = 0"
	// The new places may be those of others that have not moved yet.
	_, err = tx.exec(`UPDATE task_outputs SET span = NULL, start = -1 - placed.at FROM
		(SELECT start AS was, sum(length(data)) OVER (ORDER BY start) - length(data) AS at FROM task_outputs WHERE`+where+`) AS placed
		WHERE start = placed.was AND`+where, taskID, attempt, taskID, attempt)
	if err != nil {
		return 0, err
	}
	if _, err = tx.exec("UPDATE task_outputs SET start = -1 - start WHERE start < 0 AND"+where, taskID, attempt); err != nil {
		return 0, err
	}
	err = tx.queryRow("SELECT coalesce(sum(length(data)), 0) FROM task_outputs WHERE"+where, []any{taskID, attempt}, &total)
	return total, err
}

// MoveToLog makes the pieces of an attempt's result pieces of its log, from a byte on.
func (tx *Tx) MoveToLog(taskID string, attempt int, at int64) error {
	_, err := tx.exec("UPDATE task_outputs SET stream = 1, start = start + ? WHERE task_id = ? AND attempt = ? AND stream = 0", at, taskID, attempt)
	return err
}

// OutputPieces returns where the pieces of a stream lie, in order.
func (tx *Tx) OutputPieces(taskID string, attempt int, stream models.OutputStream) (out []models.OutputRange, err error) {
	const query = "SELECT start, start + coalesce(span, length(data)), length(data) FROM task_outputs WHERE task_id = ? AND attempt = ? AND stream = ? ORDER BY start"
	err = tx.query(query, []any{taskID, attempt, int(stream)}, func(rows *sql.Rows) error {
		var p models.OutputRange
		err := rows.Scan(&p.Start, &p.End, &p.Bytes)
		out = append(out, p)
		return err
	})
	return out, err
}

// A page of a stream: its reader may be slow, and must not keep the database meanwhile.
const (
	outputPageRows  = 64
	outputPageBytes = 1 << 20
)

// Outputs calls each with the pieces of a stream that reach beyond from, in order, until
// it returns an error.
func (s *Store) Outputs(ctx context.Context, taskID string, attempt int, stream models.OutputStream, from int64, each func(models.OutputChunk) error) error {
	for {
		page, err := s.outputPage(ctx, taskID, attempt, stream, from)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, o := range page {
			if err := each(o); err != nil {
				return err
			}
			from = o.End()
		}
	}
}

// outputPage returns the next pieces that reach beyond from.
func (s *Store) outputPage(ctx context.Context, taskID string, attempt int, stream models.OutputStream, from int64) (page []models.OutputChunk, err error) {
	const query = `SELECT start, coalesce(span, 0), data FROM task_outputs WHERE task_id = ? AND attempt = ? AND stream = ? AND start >= coalesce(
		(SELECT max(start) FROM task_outputs WHERE task_id = ? AND attempt = ? AND stream = ? AND start <= ?), 0) ORDER BY start LIMIT ?`
	args := []any{taskID, attempt, int(stream), taskID, attempt, int(stream), from, outputPageRows + 1} // the first one may end at from
	size := 0
	err = s.query(ctx, s.dialect.bind(query), args, func(rows *sql.Rows) error {
		o := models.OutputChunk{Stream: stream}
		if err := rows.Scan(&o.Start, &o.Span, &o.Data); err != nil || o.End() <= from {
			return err
		}
		if size += len(o.Data); size > outputPageBytes && len(page) > 0 {
			return errPageFull
		}
		page = append(page, o)
		return nil
	})
	if errors.Is(err, errPageFull) {
		err = nil
	}
	return page, err
}

// HasUnassigned reports whether a stream of an attempt has a piece that has not as many bytes as
// it stands for, so that no byte behind it is where its place says.
func (s *Store) HasUnassigned(ctx context.Context, taskID string, attempt int, stream models.OutputStream) (bool, error) {
	const query = `SELECT COUNT(*) FROM (SELECT 1 FROM task_outputs WHERE task_id = ? AND attempt = ? AND stream = ? AND
		coalesce(span, 0) <> 0 AND span <> length(data) LIMIT 1) AS odd`
	var n any
	err := s.queryRow(ctx, s.dialect.bind(query), []any{taskID, attempt, int(stream)}, &n)
	return whole(n) > 0, err
}

var errPageFull = errors.New("the page is full")
