package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"comet/internal/errs"
)

// maxBatch bounds how many callers share one commit, and so how long the first
// of them waits for the last.
const maxBatch = 256

// groupWriter is SQLite's only writer. It pins one connection and runs the
// closures that wait at the same moment in one transaction, each in its own
// savepoint, so that they share one fsync. Write returns to each caller after that
// commit, even if its own closure failed: the closure may have read uncommitted rows of
// another closure.
//
// Every control statement (BEGIN, SAVEPOINT, ROLLBACK TO, RELEASE, COMMIT) must
// succeed. When one fails, the content of the transaction is unknown: the batch is
// rolled back and each of its closures is run again in a separate transaction.
type groupWriter struct {
	store *Store
	conn  *pinnedConn
	log   *slog.Logger

	mu     sync.RWMutex // held for reading while sending to queue
	closed bool
	queue  chan *writeRequest
	done   chan struct{}
}

// writeRequest is one caller of Write.
type writeRequest struct {
	ctx    context.Context
	fn     func(*Tx) error
	state  atomic.Int32 // waiting, started or abandoned
	result chan error
	tx     *Tx
	err    error
}

const (
	waiting int32 = iota
	started
	abandoned
)

// start claims the request for the writer; it fails when the caller has left.
func (r *writeRequest) start() bool {
	if r.ctx.Err() != nil {
		if r.state.CompareAndSwap(waiting, abandoned) {
			r.result <- r.ctx.Err()
		}
		return false
	}
	return r.state.CompareAndSwap(waiting, started)
}

func newGroupWriter(s *Store, conn *pinnedConn) *groupWriter {
	w := &groupWriter{
		store: s, conn: conn, log: s.log,
		queue: make(chan *writeRequest, maxBatch),
		done:  make(chan struct{}),
	}
	go w.loop()
	return w
}

func (w *groupWriter) write(ctx context.Context, fn func(*Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r := &writeRequest{ctx: ctx, fn: fn, result: make(chan error, 1)}
	if err := w.enqueue(r); err != nil {
		return err
	}
	select {
	case err := <-r.result:
		return err
	case <-ctx.Done():
	}
	if r.state.CompareAndSwap(waiting, abandoned) {
		return ctx.Err()
	}
	return <-r.result // begun: only its own end tells what happened
}

func (w *groupWriter) enqueue(r *writeRequest) error {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.closed {
		return errs.New(errs.Unavailable, "the server is shutting down")
	}
	select {
	case w.queue <- r:
		return nil
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
}

func (w *groupWriter) waiting() int { return len(w.queue) }

// close refuses new writes, finishes those that wait and closes the connection.
func (w *groupWriter) close() error {
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		close(w.queue)
	}
	w.mu.Unlock()
	<-w.done
	return w.conn.close()
}

func (w *groupWriter) loop() {
	defer close(w.done)
	for r := range w.queue {
		w.batch(r)
	}
}

// batch is one transaction of the writer.
type batch struct {
	members []*writeRequest
	next    *writeRequest // nil when none waits any more
	err     error         // of a control statement
}

// batch runs first and the other waiting requests in one transaction.
func (w *groupWriter) batch(first *writeRequest) {
	begun, b := time.Now(), &batch{next: first}
	b.err = w.conn.control(begin)
	for b.err == nil && b.next != nil {
		w.fill(b)
	}
	if b.err == nil {
		b.err = w.conn.control(commit)
	}
	if b.err == nil {
		w.store.onCommit(len(b.members), time.Since(begun))
		w.answer(b.members)
		return
	}
	if len(b.members) == 0 { // BEGIN failed
		if first.start() {
			b.members = append(b.members, first)
		}
	}
	w.log.Warn("a write batch was rolled back; its members run again alone", "members", len(b.members), "error", b.err)
	w.conn.abort()
	for _, r := range b.members {
		w.alone(r)
	}
}

// fill runs the closures one after the other on a goroutine that they share; one
// each would cost a tenth of the throughput. A Goexit in one of them ends that
// goroutine, not the writer, and fill is called again for the others.
func (w *groupWriter) fill(b *batch) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for b.next != nil {
			if b.next.start() {
				b.members = append(b.members, b.next)
				w.member(b, b.next)
			}
			if b.err != nil {
				return // the others stay in the queue
			}
			b.next = w.next(len(b.members))
		}
	}()
	<-ended
}

// next returns a request that is already waiting, nil when there is none.
func (w *groupWriter) next(n int) *writeRequest {
	if n >= maxBatch {
		return nil
	}
	select {
	case r := <-w.queue: // nil once the queue is closed and empty
		return r
	default:
		return nil
	}
}

// member runs one closure in its savepoint. The closure's own error is kept in
// r.err, that of a control statement in b.err, also if the closure ends the
// goroutine.
func (w *groupWriter) member(b *batch, r *writeRequest) {
	if b.err = w.conn.control(savepoint); b.err != nil {
		return
	}
	defer func() { b.err = w.leave(r) }()
	r.tx = w.store.newTx(r.ctx, w.conn)
	r.err = goexitError()
	r.err = r.tx.call(r.fn)
}

// leave ends the savepoint of a closure.
func (w *groupWriter) leave(r *writeRequest) error {
	if r.err != nil {
		if err := w.conn.control(rollbackTo); err != nil {
			return err
		}
	}
	return w.conn.control(release)
}

func (w *groupWriter) answer(members []*writeRequest) {
	for _, r := range members {
		if r.err == nil {
			w.store.committed(r.tx)
		}
		r.result <- r.err
	}
}

// alone runs a closure in a transaction of its own.
func (w *groupWriter) alone(r *writeRequest) {
	begun := time.Now()
	err := w.conn.control(begin)
	if err == nil {
		r.tx = w.store.newTx(r.ctx, w.conn)
		if r.err = r.tx.runClosure(r.fn); r.err != nil {
			w.conn.abort()
			r.result <- r.err
			return
		}
		err = w.conn.control(commit)
	}
	if err != nil {
		w.conn.abort()
		r.result <- errs.Wrap(errs.Unavailable, err, "the database refused the write; nothing was stored")
		return
	}
	w.store.onCommit(1, time.Since(begun))
	w.store.committed(r.tx)
	r.result <- nil
}

// The control statements.
const (
	begin      = "BEGIN IMMEDIATE"
	savepoint  = "SAVEPOINT member"
	rollbackTo = "ROLLBACK TO member"
	release    = "RELEASE member"
	commit     = "COMMIT"
	rollback   = "ROLLBACK"
)

// pinnedConn is one SQLite connection with its own statement cache. It
// implements gorm.ConnPool.
type pinnedConn struct {
	*sql.Conn
	db    *sql.DB
	cache *lru.Cache[string, *sql.Stmt]
	// failControl lets a test make a control statement fail.
	failControl func(statement string) error
}

func pinConn(ctx context.Context, db *sql.DB) (*pinnedConn, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("open the write connection: %w", err)
	}
	cache, err := lru.NewWithEvict(256, func(_ string, st *sql.Stmt) { _ = st.Close() })
	if err != nil {
		return nil, err
	}
	return &pinnedConn{Conn: conn, db: db, cache: cache}, nil
}

func (p *pinnedConn) close() error {
	p.cache.Purge()
	return errors.Join(p.Conn.Close(), p.db.Close())
}

func (p *pinnedConn) control(statement string) error {
	if p.failControl != nil {
		if err := p.failControl(statement); err != nil {
			return err
		}
	}
	_, err := p.ExecContext(context.Background(), statement)
	if err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}

// abort leaves whatever transaction is open. An error means that none was, or
// that the connection is lost; then it is replaced.
func (p *pinnedConn) abort() {
	ctx := context.Background()
	if _, err := p.Conn.ExecContext(ctx, rollback); err == nil {
		return
	}
	if _, err := p.Conn.ExecContext(ctx, begin); err == nil {
		if _, err = p.Conn.ExecContext(ctx, rollback); err == nil {
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

func (p *pinnedConn) stmt(ctx context.Context, query string) (*sql.Stmt, error) {
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
func (p *pinnedConn) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	st, err := p.stmt(ctx, query)
	if err != nil {
		return nil, err
	}
	return st.ExecContext(ctx, args...)
}

// QueryContext implements gorm.ConnPool.
func (p *pinnedConn) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	st, err := p.stmt(ctx, query)
	if err != nil {
		return nil, err
	}
	return st.QueryContext(ctx, args...)
}
