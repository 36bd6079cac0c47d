package store

import (
	"errors"

	"comet/models"
)

// InsertAttempt stores an attempt that has ended and is followed by another one. The newest attempt
// is part of the row of its task.
func (tx Tasks) InsertAttempt(a models.Attempt) error {
	return create(tx.reader, "", a)
}

// SaveAttempt stores what has changed of an attempt that InsertAttempt has stored.
func (tx Tasks) SaveAttempt(a models.Attempt) error {
	_, err := update(tx.reader, a, []string{"state", "tokens", "error_code", "error"}, "task_id = ? AND attempt = ?", a.TaskID, a.Attempt)
	return err
}

// EarlierAttempts returns the stored attempts at a task in their order.
func (r taskReader) EarlierAttempts(taskID string) ([]models.Attempt, error) {
	return list[models.Attempt](r.reader, selectRows[models.Attempt]("WHERE task_id = ? ORDER BY attempt"), taskID)
}

// AgentsBeside returns the agents of the attempts at the other subtasks of a parent, without duplicates.
func (r taskReader) AgentsBeside(parentID, subtaskID string) ([]string, error) {
	return list[string](r.reader, `SELECT agent_id FROM tasks WHERE parent_id = ? AND id <> ? AND agent_id <> '' UNION
		SELECT agent_id FROM attempts WHERE task_id IN (SELECT id FROM tasks WHERE parent_id = ? AND id <> ?) AND agent_id <> ''`,
		parentID, subtaskID, parentID, subtaskID)
}

// OpenChildren returns the subtasks of a task that have not ended, in the order in which they are
// locked.
func (r taskReader) OpenChildren(taskID string) ([]string, error) {
	return list[string](r.reader, "SELECT id FROM tasks WHERE parent_id = ? AND state < 2 ORDER BY id", taskID)
}

// Children returns the subtasks of a task in the order of their creation.
func (r taskReader) Children(taskID string) ([]models.Task, error) {
	return list[models.Task](r.reader, selectRows[models.Task]("WHERE parent_id = ? ORDER BY id"), taskID)
}

// AddOutput stores a chunk of the output of an attempt. Of two chunks with the same
// start the first one stays.
func (tx Tasks) AddOutput(taskID string, attempt int, o models.OutputChunk) error {
	var span any
	if o.Span != 0 && o.Span != int64(len(o.Data)) {
		span = o.Span
	}
	return tx.run("INSERT INTO task_outputs (task_id, attempt, stream, start, span, data) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
		taskID, attempt, o.Stream, o.Start, span, o.Data)
}

// CompactOutput moves the chunks of an attempt's result to the positions of their bytes, one behind
// the other, and returns the length of the result.
func (tx Tasks) CompactOutput(taskID string, attempt int) (total int64, err error) {
	const where = " task_id = ? AND attempt = ? AND stream = 0"
	// A new position may be that of a chunk that has not moved yet.
	err = tx.run(`UPDATE task_outputs SET span = NULL, start = -1 - placed.at FROM
		(SELECT start AS was, sum(length(data)) OVER (ORDER BY start) - length(data) AS at FROM task_outputs WHERE`+where+`) AS placed
		WHERE start = placed.was AND`+where, taskID, attempt, taskID, attempt)
	if err != nil {
		return 0, err
	}
	if err = tx.run("UPDATE task_outputs SET start = -1 - start WHERE start < 0 AND"+where, taskID, attempt); err != nil {
		return 0, err
	}
	return tx.resultLength(taskID, attempt)
}

// CopyOutput makes the result of an attempt at a task the result of an attempt at another one, and
// returns its length in bytes.
func (tx Tasks) CopyOutput(from string, fromAttempt int, to string, attempt int) (length int64, err error) {
	err = tx.run(`INSERT INTO task_outputs (task_id, attempt, stream, start, span, data)
		SELECT ?, ?, stream, start, span, data FROM task_outputs WHERE task_id = ? AND attempt = ? AND stream = 0`, to, attempt, from, fromAttempt)
	if err != nil {
		return 0, err
	}
	return tx.resultLength(to, attempt)
}

func (r taskReader) resultLength(taskID string, attempt int) (int64, error) {
	return one[int64](r.reader, "SELECT coalesce(sum(length(data)), 0) FROM task_outputs WHERE task_id = ? AND attempt = ? AND stream = 0", taskID, attempt)
}

// MoveToLog appends the chunks of an attempt's result to its log, from a byte on.
func (tx Tasks) MoveToLog(taskID string, attempt int, at int64) error {
	return tx.run("UPDATE task_outputs SET stream = 1, start = start + ? WHERE task_id = ? AND attempt = ? AND stream = 0", at, taskID, attempt)
}

// OutputPieces returns the ranges of the chunks of a stream, in order.
func (r taskReader) OutputPieces(taskID string, attempt int, stream models.OutputStream) ([]OutputRange, error) {
	const query = "SELECT start, start + coalesce(span, length(data)), length(data) FROM task_outputs WHERE task_id = ? AND attempt = ? AND stream = ? ORDER BY start"
	return list[OutputRange](r.reader, query, taskID, attempt, stream)
}

// Limits of a page of a stream: a slow reader must not hold a connection.
const (
	outputPageRows  = 64
	outputPageBytes = 1 << 20
)

// Outputs calls each with the chunks of a stream that reach beyond from, in order, until
// it returns an error.
func (r taskReader) Outputs(taskID string, attempt int, stream models.OutputStream, from int64, each func(models.OutputChunk) error) error {
	for {
		page, err := r.outputPage(taskID, attempt, stream, from)
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

// outputPage returns the next chunks that reach beyond from.
func (r taskReader) outputPage(taskID string, attempt int, stream models.OutputStream, from int64) (page []models.OutputChunk, err error) {
	const query = `SELECT stream, start, coalesce(span, 0), data FROM task_outputs WHERE task_id = ? AND attempt = ? AND stream = ? AND start >= coalesce(
		(SELECT max(start) FROM task_outputs WHERE task_id = ? AND attempt = ? AND stream = ? AND start <= ?), 0) ORDER BY start LIMIT ?`
	size := 0
	err = each(r.reader, func(o models.OutputChunk) error {
		if o.End() <= from { // the first one may
			return nil
		}
		if size += len(o.Data); size > outputPageBytes && len(page) > 0 {
			return errPageFull
		}
		page = append(page, o)
		return nil
	}, query, taskID, attempt, stream, taskID, attempt, stream, from, outputPageRows+1)
	if errors.Is(err, errPageFull) {
		err = nil
	}
	return page, err
}

var errPageFull = errors.New("the page is full")

// HasUnassigned reports whether a stream of an attempt has a chunk whose span is not its length, so
// that the position of no later byte is known.
func (r taskReader) HasUnassigned(taskID string, attempt int, stream models.OutputStream) (bool, error) {
	const query = `SELECT EXISTS (SELECT 1 FROM task_outputs WHERE task_id = ? AND attempt = ? AND stream = ? AND
		coalesce(span, 0) <> 0 AND span <> length(data))`
	return one[bool](r.reader, query, taskID, attempt, stream)
}

// OutputRange is the range [Start, End) of a chunk in a stream, and the number of its bytes.
type OutputRange struct{ Start, End, Bytes int64 }
