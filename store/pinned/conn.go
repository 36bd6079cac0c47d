// Package pinned keeps one SQLite connection for one writer, with its prepared statements.
package pinned

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	lru "github.com/hashicorp/golang-lru/v2"
)

// Conn is one SQLite connection with its own statement cache. It
// implements gorm.ConnPool.
type Conn struct {
	*sql.Conn
	db    *sql.DB
	cache *lru.Cache[string, *sql.Stmt]
	// FailControl lets a test make a control statement fail.
	FailControl func(statement string) error
}

// New takes a connection of a pool, which the Conn closes.
func New(ctx context.Context, db *sql.DB) (*Conn, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("open the write connection: %w", err)
	}
	cache, err := lru.NewWithEvict(256, func(_ string, st *sql.Stmt) { _ = st.Close() })
	if err != nil {
		return nil, err
	}
	return &Conn{Conn: conn, db: db, cache: cache}, nil
}

// Close closes the connection and its pool.
func (p *Conn) Close() error {
	p.cache.Purge()
	return errors.Join(p.Conn.Close(), p.db.Close())
}

// Control runs a statement that controls the transaction.
func (p *Conn) Control(statement string) error {
	if p.FailControl != nil {
		if err := p.FailControl(statement); err != nil {
			return err
		}
	}
	_, err := p.ExecContext(context.Background(), statement)
	if err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}

// Abort rolls back any open transaction. A failed rollback means that none was open, or that the
// connection is lost; a lost connection is replaced.
func (p *Conn) Abort() {
	ctx := context.Background()
	if _, err := p.Conn.ExecContext(ctx, "ROLLBACK"); err == nil {
		return
	}
	if _, err := p.Conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err == nil {
		if _, err = p.Conn.ExecContext(ctx, "ROLLBACK"); err == nil {
			return
		}
	}
	p.cache.Purge()
	_ = p.Conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = p.Conn.Close()
	if conn, err := p.db.Conn(ctx); err == nil {
		p.Conn = conn
	}
}

func (p *Conn) stmt(ctx context.Context, query string) (*sql.Stmt, error) {
	if st, ok := p.cache.Get(query); ok {
		return st, nil
	}
	st, err := p.Conn.PrepareContext(ctx, query)
	if err == nil {
		p.cache.Add(query, st)
	}
	return st, err
}

// ExecContext implements gorm.ConnPool.
func (p *Conn) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	st, err := p.stmt(ctx, query)
	if err != nil {
		return nil, err
	}
	return st.ExecContext(ctx, args...)
}

// QueryContext implements gorm.ConnPool.
func (p *Conn) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	st, err := p.stmt(ctx, query)
	if err != nil {
		return nil, err
	}
	return st.QueryContext(ctx, args...)
}
