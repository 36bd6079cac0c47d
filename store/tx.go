package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"gorm.io/gorm"

	"comet/internal/errs"
)

// Tx is one caller's transaction. It must not be used after its closure has
// returned, nor by two goroutines at once.
type Tx struct {
	store *Store
	ctx   context.Context // never cancelled
	conn  *txConn
	now   time.Time
	orm   *gorm.DB // made on first use

	wroteEvents     bool
	wroteJobs       bool
	wroteDeliveries bool
	after           []func()
}

func (s *Store) newTx(ctx context.Context, conn querier) *Tx {
	return &Tx{store: s, ctx: context.WithoutCancel(ctx), conn: &txConn{querier: conn}, now: s.Now()}
}

// After has fn called once the transaction is committed, and not at all where it is not.
// The writer waits for it, so it only counts or signals.
func (tx *Tx) After(fn func()) { tx.after = append(tx.after, fn) }

// Now is the transaction's time, the same for everything it writes.
func (tx *Tx) Now() time.Time { return tx.now }

// db returns gorm on this transaction, for aggregates that are not hot.
func (tx *Tx) db() *gorm.DB {
	if tx.orm == nil {
		tx.orm = tx.store.orm.Session(&gorm.Session{NewDB: true, Context: tx.ctx})
		tx.orm.Statement.ConnPool = tx.conn
	}
	return tx.orm
}

func (tx *Tx) exec(query string, args ...any) (int64, error) {
	res, err := tx.conn.ExecContext(tx.ctx, tx.store.dialect.bind(query), args...)
	if err != nil {
		return 0, translate(err)
	}
	n, err := res.RowsAffected()
	return n, translate(err)
}

func (tx *Tx) queryRow(query string, args []any, dest ...any) error {
	rows, err := tx.conn.QueryContext(tx.ctx, tx.store.dialect.bind(query), args...)
	if err != nil {
		return translate(err)
	}
	found := false
	err = eachRow(rows, nil, func(r *sql.Rows) error {
		if found {
			return nil
		}
		found = true
		return r.Scan(dest...)
	})
	if err != nil {
		return tx.conn.fail(err)
	}
	if !found {
		return translate(sql.ErrNoRows)
	}
	return nil
}

func (tx *Tx) query(query string, args []any, scan func(*sql.Rows) error) error {
	rows, err := tx.conn.QueryContext(tx.ctx, tx.store.dialect.bind(query), args...)
	if err := eachRow(rows, err, scan); err != nil {
		return tx.conn.fail(err)
	}
	return nil
}

// run is call in a goroutine of its own, so that a Goexit in fn ends nothing
// else and can be reported as its error.
func (tx *Tx) run(fn func(*Tx) error) error {
	err, done := goexitError(), make(chan struct{})
	go func() {
		defer close(done)
		err = tx.call(fn)
	}()
	<-done
	return err
}

// call calls fn on the transaction, which is over then, and reports its panic or
// the statement error it swallowed as its error.
func (tx *Tx) call(fn func(*Tx) error) (err error) {
	defer func() {
		tx.conn.over.Store(true)
		if p := recover(); p != nil {
			err = errs.Wrap(errs.Internal, fmt.Errorf("panic in a write: %v\n%s", p, debug.Stack()), "something went wrong on our side")
		}
	}()
	if err = fn(tx); err == nil {
		err = tx.conn.failed
	}
	return err
}

// goexitError is what a closure ends with that does not return.
func goexitError() error {
	return errs.Wrap(errs.Internal, errGoexit, "something went wrong on our side")
}

var (
	errGoexit = errors.New("runtime.Goexit in a write")
	errTxOver = errors.New("the transaction is over")
)

// querier is what *sql.Tx, the pinned SQLite connection and gorm.ConnPool have
// in common.
type querier interface {
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// txConn is the connection of one Tx. It remembers the first statement that
// failed and refuses every later one, on SQLite as PostgreSQL does by itself:
// after some failures SQLite has rolled back the whole transaction, and a
// statement sent then would commit by itself.
type txConn struct {
	querier
	failed error
	over   atomic.Bool
}

func (c *txConn) usable() error {
	if c.over.Load() {
		return errTxOver
	}
	if c.failed != nil {
		return fmt.Errorf("the transaction has failed: %w", c.failed)
	}
	return nil
}

func (c *txConn) fail(err error) error {
	if err != nil && c.failed == nil {
		c.failed = translate(err)
	}
	return err
}

// PrepareContext implements gorm.ConnPool.
func (c *txConn) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	if err := c.usable(); err != nil {
		return nil, err
	}
	st, err := c.querier.PrepareContext(ctx, query)
	return st, c.fail(err)
}

// ExecContext implements gorm.ConnPool.
func (c *txConn) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if err := c.usable(); err != nil {
		return nil, err
	}
	res, err := c.querier.ExecContext(ctx, query, args...)
	return res, c.fail(err)
}

// QueryContext implements gorm.ConnPool.
func (c *txConn) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if err := c.usable(); err != nil {
		return nil, err
	}
	rows, err := c.querier.QueryContext(ctx, query, args...)
	return rows, c.fail(err)
}

// watchFailures makes gorm report errors it meets while reading rows, which the
// connection does not see.
func watchFailures(orm *gorm.DB) error {
	watch := func(db *gorm.DB) {
		c, ok := db.Statement.ConnPool.(*txConn)
		if ok && db.Error != nil && !errors.Is(db.Error, gorm.ErrRecordNotFound) {
			_ = c.fail(db.Error)
		}
	}
	cb := orm.Callback()
	return errors.Join(
		cb.Create().Register("comet:watch", watch),
		cb.Query().Register("comet:watch", watch),
		cb.Update().Register("comet:watch", watch),
		cb.Delete().Register("comet:watch", watch),
		cb.Row().Register("comet:watch", watch),
		cb.Raw().Register("comet:watch", watch),
	)
}
