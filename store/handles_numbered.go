package store

import (
	"context"
	"database/sql"
)

// maxNumbered is among how many of an owner's newest tasks TasksNumbered looks.
const maxNumbered = 1000

// TasksNumbered returns the ids of up to limit tasks, the newest first, that an owner has
// asked for and that have a number in their contexts. Older ones than the owner's newest
// 1,000 are not looked at.
func (s *Store) TasksNumbered(ctx context.Context, owner string, number, limit int) (ids []string, err error) {
	const query = `SELECT t.id FROM (SELECT id, created_at FROM tasks WHERE owner = ? ORDER BY created_at DESC, id DESC LIMIT ?) AS t
		JOIN context_tasks AS c ON c.task_id = t.id WHERE c.number = ? ORDER BY t.created_at DESC, t.id DESC LIMIT ?`
	err = s.query(ctx, s.dialect.bind(query), []any{owner, maxNumbered, number, limit}, func(rows *sql.Rows) error {
		var id string
		err := rows.Scan(&id)
		ids = append(ids, id)
		return err
	})
	return ids, err
}
