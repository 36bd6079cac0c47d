package store

import (
	"time"

	"gorm.io/gorm"

	"comet/models"
)

// Insert stores a new session. It returns errs.Conflict for an id that is taken.
func (tx Sessions) Insert(s models.Session) error { return tx.db().Create(&s).Error }

// Lock returns a session and locks it until the transaction ends, or errs.NotFound.
func (tx Sessions) Lock(id string) (s models.Session, err error) {
	err = forUpdate(tx.db()).Take(&s, "id = ?", id).Error
	return s, err
}

// Save stores what has changed of a session that Session returned.
func (tx Sessions) Save(s models.Session) error {
	s.UpdatedAt = tx.now
	return tx.db().Select("state", "open_tasks", "tasks", "facts", "updated_at", "closed_at").Updates(&s).Error
}

// Get returns a session, or errs.NotFound.
func (r sessionReader) Get(id string) (out models.Session, err error) {
	err = r.db().Take(&out, "id = ?", id).Error
	return out, err
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
