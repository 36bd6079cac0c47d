package store

import "context"

// Backlog is how much committed work waits to be taken on.
type Backlog struct {
	// Events have no position yet.
	Events int64
	// Jobs are due, of whatever kind, and not claimed.
	Jobs int64
	// Writes are callers of Write that have not begun.
	Writes int64
}

// Backlog counts what waits at this moment.
func (s *Store) Backlog(ctx context.Context) (Backlog, error) {
	b := Backlog{Writes: int64(s.writes.waiting())}
	err := s.queryRow(ctx, s.dialect.bind(`SELECT (SELECT count(*) FROM events WHERE position IS NULL),
		(SELECT count(*) FROM jobs WHERE run_at <= ?)`), []any{micros(s.Now())}, &b.Events, &b.Jobs)
	return b, err
}
