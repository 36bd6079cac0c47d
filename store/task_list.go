package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"comet/models"
)

// Tasks returns the page of tasks that q selects, the newest first.
func (s *Store) Tasks(ctx context.Context, q models.TaskQuery) ([]models.Task, error) {
	out := []models.Task{}
	query, args := s.tasksQuery(q)
	err := s.query(ctx, query, args, scanTasks(&out))
	return out, err
}

func (s *Store) tasksQuery(q models.TaskQuery) (string, []any) {
	var terms []string
	var args []any
	where := func(term string, value any) { terms, args = append(terms, term), append(args, value) }
	if q.State != "" { // as a literal, which is how the planner finds the index of the open ones
		terms = append(terms, "state = "+strconv.Itoa(slices.Index(taskStates(), q.State)))
		if !q.State.Ended() {
			terms = append(terms, "state < 2")
		}
	}
	for _, term := range []struct{ column, value string }{
		{"agent_id", q.AgentID}, {"session_id", q.SessionID}, {"owner", q.Owner}, {"parent_id", q.ParentID},
	} {
		if term.value != "" {
			where(term.column+" = ?", term.value)
		}
	}
	if q.SessionID != "" {
		terms = append(terms, "session_id <> ''")
	}
	if !q.Since.IsZero() {
		where("created_at >= ?", micros(q.Since))
	}
	if !q.Until.IsZero() {
		where("created_at < ?", micros(q.Until))
	}
	if q.Before.ID != "" {
		terms, args = append(terms, "(created_at, id) < (?, ?)"), append(args, micros(q.Before.CreatedAt), q.Before.ID)
	}
	query := "SELECT " + taskColumns + " FROM tasks"
	if len(terms) > 0 {
		query += " WHERE " + strings.Join(terms, " AND ")
	}
	return s.dialect.bind(query + " ORDER BY created_at DESC, id DESC LIMIT ?"), append(args, q.Limit)
}

// NextQueuedTask returns the task that is next in a route's line, passing over some, and locks it; ok is false
// when nobody waits there, or it is just being served on another connection: who comes
// behind it does not overtake it meanwhile.
func (tx *Tx) NextQueuedTask(route string, but ...string) (t models.Task, ok bool, err error) {
	besides, args := "", []any{route}
	if len(but) > 0 {
		list, more := inList(but)
		besides, args = " AND id NOT IN "+list, append(args, more...)
	}
	err = tx.query("SELECT "+taskColumns+" FROM tasks WHERE waits = 1 AND id = (SELECT id FROM tasks WHERE route = ? AND waits = 1"+besides+
		" ORDER BY priority DESC, created_at, id LIMIT 1)"+tx.store.dialect.skipLocked,
		args, func(rows *sql.Rows) error {
			var r taskRow
			err := rows.Scan(r.dest()...)
			if err == nil {
				t, ok = r.task(), true
			}
			return err
		})
	return t, ok, err
}

// WaitsAhead reports whether somebody waits in a route's line whom a new task with the
// priority may not overtake.
func (tx *Tx) WaitsAhead(route string, priority int) (ahead bool, err error) {
	err = tx.queryRow("SELECT EXISTS (SELECT 1 FROM tasks WHERE route = ? AND waits = 1 AND priority >= ?)", []any{route, priority}, &ahead)
	return ahead, err
}

// CountWaiting returns how many tasks wait in a route's line, at most limit.
func (tx *Tx) CountWaiting(route string, limit int) (n int, err error) {
	err = tx.queryRow("SELECT count(*) FROM (SELECT 1 FROM tasks WHERE route = ? AND waits = 1 LIMIT ?) AS line", []any{route, limit}, &n)
	return n, err
}

// Timeline returns up to limit events about a key, the oldest first, whether they have
// a position yet or not.
func (s *Store) Timeline(ctx context.Context, key string, limit int) (out []models.Event, err error) {
	const query = "SELECT id, coalesce(position, 0), type, key, at, data FROM events WHERE key = ? ORDER BY seq LIMIT ?"
	err = s.query(ctx, s.dialect.bind(query), []any{key, limit}, func(rows *sql.Rows) error {
		e, err := scanTold(rows)
		out = append(out, e)
		return err
	})
	return out, err
}

// NewestEvent returns the newest event of a type about a key, or errs.NotFound.
func (s *Store) NewestEvent(ctx context.Context, key string, kind models.EventType) (e models.Event, err error) {
	found := false
	const query = "SELECT id, coalesce(position, 0), type, key, at, data FROM events WHERE key = ? AND type = ? ORDER BY seq DESC LIMIT 1"
	err = s.query(ctx, s.dialect.bind(query), []any{key, kind}, func(rows *sql.Rows) (err error) {
		e, err = scanTold(rows)
		found = true
		return err
	})
	if err == nil && !found {
		err = translate(sql.ErrNoRows)
	}
	return e, err
}

func scanTold(rows *sql.Rows) (models.Event, error) {
	var e models.Event
	var at int64
	var data string
	err := rows.Scan(&e.ID, &e.Position, &e.Type, &e.Key, &at, &data)
	e.At, e.Data = fromMicros(at), json.RawMessage(data)
	return e, err
}

// OpenTasksOf returns up to limit tasks whose newest attempt an agent is making.
func (s *Store) OpenTasksOf(ctx context.Context, agentID string, limit int) (ids []string, err error) {
	const query = "SELECT id FROM tasks WHERE agent_id = ? AND state < 2 AND waits IN (0, 3) ORDER BY created_at, id LIMIT ?"
	err = s.query(ctx, s.dialect.bind(query), []any{agentID, limit}, func(rows *sql.Rows) error {
		var id string
		err := rows.Scan(&id)
		ids = append(ids, id)
		return err
	})
	return ids, err
}

// OpenTasks counts the tasks that have not ended by what they wait for.
func (s *Store) OpenTasks(ctx context.Context) (map[models.WaitReason]int, error) {
	out := map[models.WaitReason]int{}
	err := s.query(ctx, "SELECT waits, count(*) FROM tasks WHERE state < 2 GROUP BY waits", nil, func(rows *sql.Rows) error {
		var wait, n int
		err := rows.Scan(&wait, &n)
		out[taskWaits()[wait]] = n
		return err
	})
	return out, err
}
