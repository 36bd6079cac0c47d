package store

import (
	"time"

	"comet/models"
	"comet/store/filter"
)

// The statements on sessions are hand-written for speed; BenchmarkTask in internal/bench measures them.

// Insert stores a new session. If the id is taken, this call, a later statement or the commit returns errs.Conflict.
func (tx Sessions) Insert(s models.Session) error { return create(tx.reader, "", s) }

// Lock returns a session and locks it until the transaction ends, or errs.NotFound.
func (tx Sessions) Lock(id string) (models.Session, error) {
	return one[models.Session](tx.reader, selectRows[models.Session]("WHERE id = ?")+tx.engine.forUpdate, id)
}

// LockRow locks a session without reading it. It does nothing on SQLite, which has one writer.
func (tx Sessions) LockRow(id string) error {
	return tx.lock("SELECT 1 FROM sessions WHERE id = ? FOR UPDATE", id)
}

// Save stores what has changed of a session that Lock returned.
func (tx Sessions) Save(s models.Session) error {
	s.UpdatedAt = tx.now
	_, err := update(tx.reader, s, []string{"state", "open_tasks", "tasks", "updated_at", "closed_at"}, "id = ?", s.ID)
	return err
}

// EndTask records that a task of a session has ended. If closes is true and no other task is open, it closes
// the session and returns the number of all its tasks. It returns 0 if the session stays open.
func (tx Sessions) EndTask(id string, closes bool) (tasks int, err error) {
	return one[int](tx.reader, `UPDATE sessions SET open_tasks = open_tasks - 1, updated_at = ?, state = CASE WHEN ? AND open_tasks = 1 THEN 1 ELSE state END,
		closed_at = CASE WHEN ? AND open_tasks = 1 THEN ? ELSE closed_at END WHERE id = ? RETURNING state * tasks`, tx.now, closes, closes, tx.now, id)
}

// Get returns a session, or errs.NotFound.
func (r sessionReader) Get(id string) (models.Session, error) {
	return one[models.Session](r.reader, selectRows[models.Session]("WHERE id = ?"), id)
}

// List returns up to limit sessions, the newest first, that are older than before; an
// owner of "" selects all owners.
func (r sessionReader) List(q SessionQuery) ([]models.Session, error) {
	query, args := sessionsQuery(q)
	return list[models.Session](r.reader, query, args...)
}

// SessionQuery selects a page of sessions, newest first. Empty fields do not filter.
type SessionQuery struct {
	Owner  string     // a token
	Root   string     // the sessions of this agent and of those below it
	Before TaskCursor // the zero value starts with the newest session
	Limit  int
}

func sessionsQuery(q SessionQuery) (string, []any) {
	var where filter.Clause
	where.Equal("owner", q.Owner)
	if q.Root != "" {
		where.And("agent_id "+InSubtree, q.Root)
	}
	if q.Before.ID != "" {
		where.And("(created_at, id) < (?, ?)", q.Before.CreatedAt, q.Before.ID)
	}
	return selectRows[models.Session](where.SQL()) + " ORDER BY created_at DESC, id DESC LIMIT ?", append(where.Args, q.Limit)
}

// Idle returns the ids of up to limit open sessions that have no open task and have not
// changed since before.
func (r sessionReader) Idle(before time.Time, limit int) ([]string, error) {
	return list[string](r.reader, "SELECT id FROM sessions WHERE state = 0 AND updated_at < ? AND open_tasks = 0 ORDER BY updated_at LIMIT ?", before, limit)
}

// Purge deletes up to limit sessions that were closed before a time and have no
// tasks, and returns how many.
func (tx Sessions) Purge(before time.Time, limit int) (int64, error) {
	return tx.exec(`DELETE FROM sessions WHERE id IN (SELECT id FROM sessions AS s WHERE state = 1 AND updated_at < ? AND
		NOT EXISTS (SELECT 1 FROM tasks WHERE session_id = s.id AND session_id <> '') ORDER BY updated_at LIMIT ?)`, before, limit)
}
