package store

import (
	"context"
	"encoding/json"
	"time"

	"gorm.io/gorm"

	"comet/models"
)

// SessionReader reads sessions, on the read pool or in a transaction.
type SessionReader struct{ from reader }

// Sessions holds the operations of a transaction on sessions.
type Sessions struct {
	SessionReader
	*transaction
}

// Sessions returns the operations on sessions.
func (tx *Tx) Sessions() Sessions { return Sessions{SessionReader{tx.reader}, &tx.transaction} }

// Sessions returns the reads of sessions.
func (s *Store) Sessions(ctx context.Context) SessionReader { return SessionReader{s.on(ctx)} }

// sessionRow is models.Session as gorm stores it.
type sessionRow struct {
	ID        string
	Owner     string
	AgentID   string
	State     models.SessionState `gorm:"serializer:stored"`
	OpenTasks int
	Tasks     int
	Facts     json.RawMessage `gorm:"serializer:stored"`
	CreatedAt time.Time       `gorm:"serializer:stored"`
	UpdatedAt time.Time       `gorm:"serializer:stored"`
	ClosedAt  *time.Time      `gorm:"serializer:stored"`
}

// TableName implements gorm's schema.Tabler.
func (sessionRow) TableName() string { return "sessions" }

// sessionStates are numbered by their index.
func sessionStates() []models.SessionState {
	return []models.SessionState{models.SessionOpen, models.SessionClosed}
}

// Insert stores a new session. It returns errs.Conflict for an id that is taken.
func (tx Sessions) Insert(s models.Session) error { return tx.db().Create((*sessionRow)(&s)).Error }

// Lock returns a session and locks it until the transaction ends, or errs.NotFound.
func (tx Sessions) Lock(id string) (s models.Session, err error) {
	err = forUpdate(tx.db()).Take((*sessionRow)(&s), "id = ?", id).Error
	return s, err
}

// Save stores what has changed of a session that Session returned.
func (tx Sessions) Save(s models.Session) error {
	s.UpdatedAt = tx.now
	return tx.db().Select("state", "open_tasks", "tasks", "facts", "updated_at", "closed_at").Updates((*sessionRow)(&s)).Error
}

// Get returns a session, or errs.NotFound.
func (r SessionReader) Get(id string) (out models.Session, err error) {
	err = r.from.db().Take((*sessionRow)(&out), "id = ?", id).Error
	return out, err
}

// List returns up to limit sessions, the newest first, that are older than before; an
// owner of "" selects all owners.
func (r SessionReader) List(owner string, before TaskCursor, limit int) ([]models.Session, error) {
	var rows []sessionRow
	err := sessionsPage(r.from.db(), owner, before, limit).Find(&rows).Error
	return convert(rows, func(r sessionRow) models.Session { return models.Session(r) }), err
}

func sessionsPage(db *gorm.DB, owner string, before TaskCursor, limit int) *gorm.DB {
	if owner != "" {
		db = db.Where("owner = ?", owner)
	}
	if before.ID != "" {
		db = db.Where("(created_at, id) < (?, ?)", Micros(before.CreatedAt), before.ID)
	}
	return db.Order("created_at DESC, id DESC").Limit(limit)
}

// Idle returns up to limit open sessions without an open task that have not changed
// since before.
func (r SessionReader) Idle(before time.Time, limit int) (ids []string, err error) {
	err = r.from.db().Model(&sessionRow{}).Where("state = 0 AND updated_at < ? AND open_tasks = 0", Micros(before)).
		Order("updated_at").Limit(limit).Pluck("id", &ids).Error
	return ids, err
}

// Purge deletes up to limit sessions that were closed before a time and have no
// tasks, and returns how many.
func (tx Sessions) Purge(before time.Time, limit int) (int64, error) {
	return tx.exec(`DELETE FROM sessions WHERE id IN (SELECT id FROM sessions AS s WHERE state = 1 AND updated_at < ? AND
		NOT EXISTS (SELECT 1 FROM tasks WHERE session_id = s.id AND session_id <> '') ORDER BY updated_at LIMIT ?)`, Micros(before), limit)
}
