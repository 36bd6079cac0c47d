package store

import (
	"time"

	"gorm.io/gorm"

	"comet/models"
)

// BenchmarkTask in internal/bench measures the statements on single sessions, which are written by hand.

// Insert stores a new session. It returns errs.Conflict for an id that is taken.
func (tx Sessions) Insert(s models.Session) error { return create(tx.reader, "", s) }

// Lock returns a session and locks it until the transaction ends, or errs.NotFound.
func (tx Sessions) Lock(id string) (models.Session, error) {
	return one[models.Session](tx.reader, selectRows[models.Session]("WHERE id = ?")+tx.engine.forUpdate, id)
}

// LockOnly is Lock without reading: SQLite, which has one writer, does nothing.
func (tx Sessions) LockOnly(id string) error {
	return tx.lock("SELECT 1 FROM sessions WHERE id = ? FOR UPDATE", id)
}

// Save stores what has changed of a session that Lock returned.
func (tx Sessions) Save(s models.Session) error {
	s.UpdatedAt = tx.now
	_, err := update(tx.reader, s, []string{"state", "open_tasks", "tasks", "updated_at", "closed_at"}, "id = ?", s.ID)
	return err
}

// EndTask counts a task that has ended, and with closes it closes the session if no other is open. It
// returns the number of its tasks and its state only.
func (tx Sessions) EndTask(id string, closes bool) (models.Session, error) {
	last := 0 // never
	if closes {
		last = 1
	}
	type changed struct {
		Tasks int
		State models.SessionState
	}
	s, err := one[changed](tx.reader, `UPDATE sessions SET open_tasks = open_tasks - 1, updated_at = ?,
		state = CASE open_tasks WHEN ? THEN 1 ELSE state END, closed_at = CASE open_tasks WHEN ? THEN ? ELSE closed_at END
		WHERE id = ? RETURNING tasks, state`, tx.now, last, last, tx.now, id)
	return models.Session{ID: id, Tasks: s.Tasks, State: s.State}, err
}

// Get returns a session, or errs.NotFound.
func (r sessionReader) Get(id string) (models.Session, error) {
	return one[models.Session](r.reader, selectRows[models.Session]("WHERE id = ?"), id)
}

// List returns up to limit sessions, the newest first, that are older than before; an
// owner of "" selects all owners.
func (r sessionReader) List(owner string, before TaskCursor, limit int) ([]models.Session, error) {
	sessions := []models.Session{}
	return sessions, sessionsPage(r.db(), owner, before, limit).Find(&sessions).Error
}

func sessionsPage(db *gorm.DB, owner string, before TaskCursor, limit int) *gorm.DB {
	if owner != "" {
		db = db.Where("owner = ?", owner)
	}
	if before.ID != "" {
		db = db.Where("(created_at, id) < (?, ?)", before.CreatedAt, before.ID)
	}
	return db.Order("created_at DESC, id DESC").Limit(limit)
}

// Idle returns up to limit open sessions without an open task that have not changed
// since before.
func (r sessionReader) Idle(before time.Time, limit int) (ids []string, err error) {
	err = r.db().Model(&models.Session{}).Where("state = 0 AND updated_at < ? AND open_tasks = 0", before).
		Order("updated_at").Limit(limit).Pluck("id", &ids).Error
	return ids, err
}

// Purge deletes up to limit sessions that were closed before a time and have no
// tasks, and returns how many.
func (tx Sessions) Purge(before time.Time, limit int) (int64, error) {
	return tx.exec(`DELETE FROM sessions WHERE id IN (SELECT id FROM sessions AS s WHERE state = 1 AND updated_at < ? AND
		NOT EXISTS (SELECT 1 FROM tasks WHERE session_id = s.id AND session_id <> '') ORDER BY updated_at LIMIT ?)`, before, limit)
}
