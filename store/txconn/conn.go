// Package txconn guards the connection of a transaction against statements after its failure or end.
package txconn

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"gorm.io/gorm"

	"comet/store/columns"
	"comet/store/sqlerr"
)

// ErrOver is the error of a statement after the end of its transaction.
var ErrOver = errors.New("the transaction is over")

// Conn is the connection of one transaction. It stores the error of the first statement that fails and
// rejects all later statements, as PostgreSQL itself does: after some errors SQLite has rolled back the
// whole transaction and would commit each later statement on its own. The same would happen after a
// control statement, so Conn rejects control statements too.
type Conn struct {
	gorm.ConnPool
	failed error
	wrote  bool // a statement that may have changed rows was run
	over   atomic.Bool
}

// usable returns an error if the transaction must not run a statement.
func (c *Conn) usable(query string) error {
	if c.over.Load() {
		return ErrOver
	}
	if c.failed != nil {
		return fmt.Errorf("the transaction has failed: %w", c.failed)
	}
	switch word, _, _ := strings.Cut(query, " "); word {
	case "BEGIN", "COMMIT", "END", "ROLLBACK", "SAVEPOINT", "RELEASE":
		return c.Fail(errors.New("a control statement in a write"))
	case "SELECT":
	default:
		c.wrote = c.wrote || !strings.HasPrefix(query, "WITH RECURSIVE")
	}
	return nil
}

// Changed reports whether the transaction may have changed rows, or may have been rolled back.
func (c *Conn) Changed() bool { return c.wrote || c.failed != nil }

// Fail records the error of a statement, unless it is nil, and returns it.
func (c *Conn) Fail(err error) error {
	if err != nil && c.failed == nil {
		c.failed = sqlerr.Translate(err)
	}
	return err
}

// ExecContext implements gorm.ConnPool. It waits for the number of rows, because gorm ignores the error of
// RowsAffected.
func (c *Conn) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	res, err := c.Run(ctx, query, args...)
	if err == nil {
		_, err = res.RowsAffected()
	}
	return res, c.Fail(err)
}

// Run is ExecContext without the wait: a later statement or the commit may return the error of the statement.
func (c *Conn) Run(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if err := errors.Join(c.usable(query), columns.Values(args)); err != nil {
		return nil, err
	}
	res, err := c.ConnPool.ExecContext(ctx, query, args...)
	return res, c.Fail(err)
}

// QueryContext implements gorm.ConnPool.
func (c *Conn) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if err := errors.Join(c.usable(query), columns.Values(args)); err != nil {
		return nil, err
	}
	rows, err := c.ConnPool.QueryContext(ctx, query, args...)
	return rows, c.Fail(err)
}

// End makes later statements fail with ErrOver.
func (c *Conn) End() { c.over.Store(true) }

// Failed returns the error of the first statement that failed, or nil.
func (c *Conn) Failed() error { return c.failed }

// Snapshot is a connection of the read pool with a transaction of its own. It implements gorm.ConnPool.
type Snapshot struct{ *sql.Conn }

// QueryContext implements gorm.ConnPool.
func (c Snapshot) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if err := columns.Values(args); err != nil {
		return nil, err
	}
	return c.Conn.QueryContext(ctx, query, args...)
}
