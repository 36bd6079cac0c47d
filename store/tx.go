package store

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"gorm.io/gorm"

	"comet/internal/errs"
	"comet/models"
	"comet/store/cache"
	"comet/store/sqlerr"
	"comet/store/txconn"
)

// Tx is one caller's transaction. It must not be used after its closure has
// returned, nor by two goroutines at once.
type Tx struct{ reader }

// transaction is the state that the readers of a transaction share.
type transaction struct {
	conn *txconn.Conn

	wroteEvents     bool
	wroteJobs       bool
	wroteDeliveries bool
	wroteWebhooks   bool
	cached          cache.Change
	after           []func()

	// The newest position in the transaction and its events; only on SQLite.
	position int64
	events   []models.Event
}

func (s *Store) newTx(ctx context.Context, conn gorm.ConnPool) *Tx {
	c := &txconn.Conn{ConnPool: conn}
	return &Tx{reader{s, s.engine, context.WithoutCancel(ctx), c, s.Now(), &transaction{conn: c}}}
}

// After registers fn to be called after the commit; it is not called if the transaction is not
// committed. The writer waits for fn, so fn must only count or signal.
func (tx *Tx) After(fn func()) { tx.state.after = append(tx.state.after, fn) }

// Now is the transaction's time, the same for everything it writes.
func (tx *Tx) Now() time.Time { return tx.now }

// Quota returns the quota of a kind, see Options.Quotas.
func (tx *Tx) Quota(kind string) int { return tx.store.quotas[kind] }

// exec runs a statement of a transaction and returns the number of affected rows.
func (r reader) exec(query string, args ...any) (int64, error) {
	if namesNoRow(args) {
		return 0, nil
	}
	res, err := r.conn.ExecContext(r.ctx, r.engine.bind(query), args...)
	if err != nil {
		return 0, sqlerr.Translate(err)
	}
	n, err := res.RowsAffected()
	return n, sqlerr.Translate(err)
}

// run is exec for statements about any number of rows. On PostgreSQL a later statement or the commit may
// return its error.
func (r reader) run(query string, args ...any) error {
	if namesNoRow(args) {
		return nil
	}
	_, err := r.state.conn.Run(r.ctx, r.engine.bind(query), args...)
	return sqlerr.Translate(err)
}

// purge runs a statement that deletes rows of a kind that are older than before, and returns their number. If it
// deleted any, it records before for the verification of the ledger.
func (r reader) purge(kind string, before time.Time, query string, args ...any) (int64, error) {
	n, err := r.exec(query, args...)
	if err == nil && n > 0 {
		err = r.run(`INSERT INTO purges (kind, cutoff) VALUES (?, ?)
			ON CONFLICT (kind) DO UPDATE SET cutoff = excluded.cutoff WHERE purges.cutoff < excluded.cutoff`, kind, before)
	}
	return n, err
}

// Locks for transactions that depend on more than single rows. SQLite has one writer and needs
// none.
const (
	lockAgents   = "LOCK TABLE agents IN EXCLUSIVE MODE"
	lockTokens   = "SELECT pg_advisory_xact_lock(7165361)"
	lockChains   = "SELECT pg_advisory_xact_lock(7165362)"
	shareChains  = "SELECT pg_advisory_xact_lock_shared(7165362)"
	lockWebhooks = "SELECT pg_advisory_xact_lock(7165363)"
)

// lock runs a locking statement on PostgreSQL and does nothing on SQLite.
func (r reader) lock(statement string, args ...any) error {
	if r.store.Alone() {
		return nil
	}
	_, err := r.exec(statement, args...)
	return err
}

// runClosure runs fn in its own goroutine, so that a Goexit in fn ends only that and is reported as
// an error.
func (tx *Tx) runClosure(fn func(*Tx) error) error {
	err, done := goexitError(), make(chan struct{})
	go func() {
		defer close(done)
		err = tx.call(fn)
	}()
	<-done
	return err
}

// call calls fn and ends the transaction. It returns a panic of fn, or the statement error that fn
// ignored, as its error.
func (tx *Tx) call(fn func(*Tx) error) (err error) {
	defer func() {
		tx.state.conn.End()
		if p := recover(); p != nil {
			err = errs.Wrap(errs.Internal, fmt.Errorf("panic in a write: %v\n%s", p, debug.Stack()), "an internal error occurred")
		}
	}()
	if err = fn(tx); err == nil {
		err = tx.state.conn.Failed()
	}
	return err
}

// goexitError returns the error of a closure that ended its goroutine.
func goexitError() error {
	return errs.Wrap(errs.Internal, errGoexit, "an internal error occurred")
}

var errGoexit = errors.New("runtime.Goexit in a write")
