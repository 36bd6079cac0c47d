package store

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"comet/internal/background"
	"comet/internal/errs"
	"comet/store/pinned"
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
	conn  *pinned.Conn
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

func newGroupWriter(s *Store, conn *pinned.Conn) *groupWriter {
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
		background.Placed(r.ctx, true)
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
	return w.conn.Close()
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
	b.err = w.conn.Control(begin)
	for b.err == nil && b.next != nil {
		w.fill(b)
	}
	if b.err == nil {
		b.err = w.conn.Control(commit)
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
	w.conn.Abort()
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
	if b.err = w.conn.Control(savepoint); b.err != nil {
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
		if err := w.conn.Control(rollbackTo); err != nil {
			return err
		}
	}
	return w.conn.Control(release)
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
	err := w.conn.Control(begin)
	if err == nil {
		r.tx = w.store.newTx(r.ctx, w.conn)
		if r.err = r.tx.runClosure(r.fn); r.err != nil {
			w.conn.Abort()
			r.result <- r.err
			return
		}
		err = w.conn.Control(commit)
	}
	if err != nil {
		w.conn.Abort()
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
