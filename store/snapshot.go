package store

import (
	"context"
	"database/sql"
)

// Snapshot reads the database as it was at one moment, whatever is committed
// meanwhile. It must not be used after its function has returned.
type Snapshot struct {
	store *Store
	ctx   context.Context
	conn  *sql.Conn
}

// Snapshot calls read with the database as it is now.
func (s *Store) Snapshot(ctx context.Context, read func(*Snapshot) error) (err error) {
	if err := s.usable(); err != nil {
		return err
	}
	conn, err := s.reads.Conn(ctx)
	if err != nil {
		return translate(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.ExecContext(ctx, s.dialect.beginSnapshot); err != nil {
		return translate(err)
	}
	defer func() { _, _ = conn.ExecContext(context.WithoutCancel(ctx), rollback) }()
	return read(&Snapshot{store: s, ctx: ctx, conn: conn})
}

func (s *Snapshot) query(query string, args []any, scan func(*sql.Rows) error) error {
	rows, err := s.conn.QueryContext(s.ctx, s.store.dialect.bind(query), args...)
	return eachRow(rows, err, scan)
}

func (s *Snapshot) queryRow(query string, args []any, dest ...any) error {
	found := false
	err := s.query(query, args, func(rows *sql.Rows) error {
		found = true
		return rows.Scan(dest...)
	})
	if err == nil && !found {
		return translate(sql.ErrNoRows)
	}
	return err
}
