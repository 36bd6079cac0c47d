package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"strings"
	"time"

	"comet/models"
)

const sessionColumns = "id, owner, agent_id, state, open_tasks, tasks, facts, created_at, updated_at, closed_at"

type sessionRow struct {
	s                        models.Session
	state, open, tasks       any
	facts                    string
	created, updated, closed any
}

func (r *sessionRow) dest() []any {
	s := &r.s
	return []any{&s.ID, &s.Owner, &s.AgentID, &r.state, &r.open, &r.tasks, &r.facts, &r.created, &r.updated, &r.closed}
}

func (r *sessionRow) session() models.Session {
	s := r.s
	s.State, s.OpenTasks, s.Tasks = models.SessionOpen, int(whole(r.open)), int(whole(r.tasks))
	if whole(r.state) == 1 {
		s.State = models.SessionClosed
	}
	s.Facts, s.ClosedAt = json.RawMessage(r.facts), momentOf(r.closed)
	s.CreatedAt, s.UpdatedAt = fromMicros(whole(r.created)), fromMicros(whole(r.updated))
	return s
}

// InsertSession writes a new session. It returns errs.Conflict for an id that is taken.
func (tx *Tx) InsertSession(s models.Session) error {
	_, err := tx.exec("INSERT INTO sessions ("+sessionColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		s.ID, s.Owner, s.AgentID, closedNumber(s), s.OpenTasks, s.Tasks, string(s.Facts), micros(s.CreatedAt), micros(s.UpdatedAt), nullable(microsPtr(s.ClosedAt)))
	return err
}

func closedNumber(s models.Session) int {
	if s.State == models.SessionClosed {
		return 1
	}
	return 0
}

// Session returns a session and locks it until the transaction ends, or errs.NotFound.
func (tx *Tx) Session(id string) (models.Session, error) {
	var r sessionRow
	err := tx.queryRow("SELECT "+sessionColumns+" FROM sessions WHERE id = ?"+tx.store.dialect.forUpdate, []any{id}, r.dest()...)
	if err != nil {
		return models.Session{}, err
	}
	return r.session(), nil
}

// SaveSession writes what has changed of a session that Session returned.
func (tx *Tx) SaveSession(s models.Session) error {
	_, err := tx.exec("UPDATE sessions SET state = ?, open_tasks = ?, tasks = ?, facts = ?, updated_at = ?, closed_at = ? WHERE id = ?",
		closedNumber(s), s.OpenTasks, s.Tasks, string(s.Facts), micros(tx.now), nullable(microsPtr(s.ClosedAt)), s.ID)
	return err
}

// Session returns a session, or errs.NotFound.
func (s *Store) Session(ctx context.Context, id string) (models.Session, error) {
	var r sessionRow
	if err := s.queryRow(ctx, s.dialect.bind("SELECT "+sessionColumns+" FROM sessions WHERE id = ?"), []any{id}, r.dest()...); err != nil {
		return models.Session{}, err
	}
	return r.session(), nil
}

// Sessions returns up to limit sessions, the newest first, behind the place before; an
// owner of "" is everybody.
func (s *Store) Sessions(ctx context.Context, owner string, before models.TaskCursor, limit int) ([]models.Session, error) {
	out := []models.Session{}
	query, args := s.sessionsQuery(owner, before, limit)
	err := s.query(ctx, query, args, func(rows *sql.Rows) error {
		var r sessionRow
		err := rows.Scan(r.dest()...)
		if err == nil {
			out = append(out, r.session())
		}
		return err
	})
	return out, err
}

func (s *Store) sessionsQuery(owner string, before models.TaskCursor, limit int) (string, []any) {
	var terms []string
	var args []any
	if owner != "" {
		terms, args = append(terms, "owner = ?"), append(args, owner)
	}
	if before.ID != "" {
		terms, args = append(terms, "(created_at, id) < (?, ?)"), append(args, micros(before.CreatedAt), before.ID)
	}
	query := "SELECT " + sessionColumns + " FROM sessions"
	if len(terms) > 0 {
		query += " WHERE " + strings.Join(terms, " AND ")
	}
	return s.dialect.bind(query + " ORDER BY created_at DESC, id DESC LIMIT ?"), append(args, limit)
}

// IdleSessions returns up to limit open sessions without an open task in which nothing
// has happened since before.
func (s *Store) IdleSessions(ctx context.Context, before time.Time, limit int) (ids []string, err error) {
	err = s.query(ctx, s.dialect.bind("SELECT id FROM sessions WHERE state = 0 AND updated_at < ? AND open_tasks = 0 ORDER BY updated_at LIMIT ?"), []any{micros(before), limit}, func(rows *sql.Rows) error {
		var id string
		err := rows.Scan(&id)
		ids = append(ids, id)
		return err
	})
	return ids, err
}
