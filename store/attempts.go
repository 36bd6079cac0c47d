package store

import (
	"context"
	"database/sql"
	"slices"

	"comet/models"
)

const attemptColumns = "task_id, attempt, agent_id, state, reservation_id, tokens, error_code, error, assigned_at, accepted_at, ended_at, chunk_step, chunk_total"

// attemptStates are numbered by their place.
func attemptStates() []models.AttemptState {
	return []models.AttemptState{
		models.AttemptAssigned, models.AttemptRunning, models.AttemptSucceeded, models.AttemptFailed, models.AttemptTimedOut, models.AttemptCancelled,
	}
}

type attemptRow struct {
	a                                                      models.Attempt
	n, state, tokens, assigned, accepted, end, step, total any
}

func (r *attemptRow) dest() []any {
	a := &r.a
	return []any{&a.TaskID, &r.n, &a.AgentID, &r.state, &a.ReservationID, &r.tokens, &a.ErrorCode, &a.Error, &r.assigned, &r.accepted, &r.end, &r.step, &r.total}
}

func (r *attemptRow) attempt() models.Attempt {
	a := r.a
	a.Attempt, a.State, a.Tokens = int(whole(r.n)), attemptStates()[whole(r.state)], whole(r.tokens)
	a.AssignedAt, a.AcceptedAt, a.EndedAt = fromMicros(whole(r.assigned)), momentOf(r.accepted), momentOf(r.end)
	a.ChunkStep, a.ChunkTotal = int(whole(r.step)), whole(r.total)
	return a
}

// InsertAttempt writes a new attempt.
func (tx *Tx) InsertAttempt(a models.Attempt) error {
	_, err := tx.exec("INSERT INTO attempts ("+attemptColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		a.TaskID, a.Attempt, a.AgentID, slices.Index(attemptStates(), a.State), a.ReservationID, a.Tokens, a.ErrorCode, a.Error,
		micros(a.AssignedAt), nullable(microsPtr(a.AcceptedAt)), nullable(microsPtr(a.EndedAt)), a.ChunkStep, a.ChunkTotal)
	return err
}

// SaveAttempt writes what has changed of an attempt. The task's lock is the attempt's too.
func (tx *Tx) SaveAttempt(a models.Attempt) error {
	_, err := tx.exec("UPDATE attempts SET state = ?, tokens = ?, error_code = ?, error = ?, accepted_at = ?, ended_at = ?, chunk_step = ?, chunk_total = ? WHERE task_id = ? AND attempt = ?",
		slices.Index(attemptStates(), a.State), a.Tokens, a.ErrorCode, a.Error, nullable(microsPtr(a.AcceptedAt)), nullable(microsPtr(a.EndedAt)), a.ChunkStep, a.ChunkTotal,
		a.TaskID, a.Attempt)
	return err
}

// Attempt returns one attempt at a task, or errs.NotFound.
func (tx *Tx) Attempt(taskID string, n int) (models.Attempt, error) {
	var r attemptRow
	if err := tx.queryRow("SELECT "+attemptColumns+" FROM attempts WHERE task_id = ? AND attempt = ?", []any{taskID, n}, r.dest()...); err != nil {
		return models.Attempt{}, err
	}
	return r.attempt(), nil
}

// Attempts is Store.Attempts in a transaction.
func (tx *Tx) Attempts(taskID string) (out []models.Attempt, err error) {
	err = tx.query(attemptsQuery, []any{taskID}, scanAttempts(&out))
	return out, err
}

// Attempts returns the attempts at a task, the first one first.
func (s *Store) Attempts(ctx context.Context, taskID string) ([]models.Attempt, error) {
	out := []models.Attempt{}
	err := s.query(ctx, s.dialect.bind(attemptsQuery), []any{taskID}, scanAttempts(&out))
	return out, err
}

const attemptsQuery = "SELECT " + attemptColumns + " FROM attempts WHERE task_id = ? ORDER BY attempt"

// AttemptsBeside returns the attempts at the parts of a task other than one of them, as
// they are committed when it is asked.
func (tx *Tx) AttemptsBeside(parentID, partID string) (out []models.Attempt, err error) {
	const query = "SELECT " + attemptColumns + " FROM attempts WHERE task_id IN (SELECT id FROM tasks WHERE parent_id = ? AND id <> ?) ORDER BY task_id, attempt"
	err = tx.query(query, []any{parentID, partID}, scanAttempts(&out))
	return out, err
}

func scanAttempts(out *[]models.Attempt) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		var r attemptRow
		err := rows.Scan(r.dest()...)
		if err == nil {
			*out = append(*out, r.attempt())
		}
		return err
	}
}
