// Package partials has the statements on partial results, which agents send before the result of a task.
package partials

import (
	"encoding/json"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
)

// The limits of the partial results of a task.
const (
	MaxPartials = 10_000
	MaxBytes    = 8 << 20
)

// Add stores a partial result of a task that the transaction has locked, and returns its number. It
// returns errs.LimitReached if the task has too many.
func Add(tx *store.Tx, taskID string, attempt int, data json.RawMessage) (int64, error) {
	last, err := store.Row[struct{ Seq, Bytes int64 }](tx, `INSERT INTO task_partials (task_id, seq, attempt, bytes, data, created_at)
		SELECT CAST(? AS TEXT), coalesce(max(seq), 0) + 1, CAST(? AS BIGINT), coalesce(max(bytes), 0) + CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS BIGINT) FROM task_partials WHERE task_id = ?
		RETURNING seq, bytes`, taskID, attempt, len(data), string(data), tx.Now(), taskID)
	if err != nil {
		return 0, err
	}
	if last.Seq > MaxPartials || last.Bytes > MaxBytes {
		return 0, errs.New(errs.LimitReached, "a task may have at most %d partial results with %d bytes together", MaxPartials, MaxBytes).With("limit", MaxPartials)
	}
	return last.Seq, nil
}

// After returns up to limit partial results of a task with a higher number than seq, in order.
func After(from store.Source, taskID string, seq int64, limit int) ([]models.Partial, error) {
	return store.Rows[models.Partial](from, "SELECT * FROM task_partials WHERE task_id = ? AND seq > ? ORDER BY seq LIMIT ?", taskID, seq, limit)
}
