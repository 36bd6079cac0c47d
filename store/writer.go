package store

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"comet/internal/background"
	"comet/internal/errs"
	"comet/store/cache"
	"comet/store/pinned"
)

// maxBatch bounds how many callers share one commit, and so how long the first
// of them waits for the last.
const maxBatch = 256

// savepointBatches is the number of batches that use savepoints after a closure has written and then
// failed, so that a client whose requests always fail does not make every batch run twice.
const savepointBatches = 64

// groupWriter is SQLite's only writer. It pins one connection and runs the closures that wait at the
// same moment in one transaction, so that they share one fsync. Write returns to each caller after that
// commit, even if its own closure failed: it may have read uncommitted rows of another closure.
//
// When a closure fails after it has written, the batch is rolled back and run again with a
// savepoint for each closure; the next batches have savepoints, too. Every control statement
// (BEGIN, SAVEPOINT, ROLLBACK TO, RELEASE, COMMIT) must succeed. When one fails, the content of the
// transaction is unknown and the batch is rolled back and run again, too. When a batch with
// savepoints is rolled back, each of its closures is run again in a separate transaction.
type groupWriter struct {
	store *Store
	conn  *pinned.Conn
	log   *slog.Logger

	savepoints int  // how many of the next batches have savepoints
	failed     bool // the last batch failed, so the newest position is read again

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

// start claims the request for the writer; it fails if the caller no longer waits. A request that runs
// again stays claimed.
func (r *writeRequest) start() bool {
	if r.state.Load() == started {
		return true
	}
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
	return <-r.result // it has begun, so only its end decides the result
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

// close rejects new writes, finishes those that wait and closes the connection.
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
	todo       []*writeRequest // to run before those that wait in the queue
	members    []*writeRequest // begun
	full       bool            // no further request joins it
	savepoints bool            // each member has one
	position   int64           // of the newest event
	err        error           // of a control statement, or errWrote
}

// errWrote ends a batch without savepoints: a member failed after it had written.
var errWrote = errors.New("a member failed after it had written")

// batch runs first and the other waiting requests in one transaction.
func (w *groupWriter) batch(first *writeRequest) {
	b := &batch{todo: []*writeRequest{first}, savepoints: w.savepoints > 0}
	w.savepoints = max(0, w.savepoints-1)
	if w.run(b) {
		return
	}
	if errors.Is(b.err, errWrote) && len(b.members) == 1 { // its rows were rolled back and no other closure read them
		b.members[0].result <- b.members[0].err
		return
	}
	if !b.savepoints {
		w.savepoints = savepointBatches
		b = &batch{todo: append(b.members, b.todo...), savepoints: true}
		if w.run(b) {
			return
		}
	}
	w.log.Warn("a write batch was rolled back; its members run again alone", "members", len(b.members), "error", b.err)
	for _, r := range append(b.members, b.todo...) {
		if r.start() {
			w.alone(r)
		}
	}
}

// run runs a batch, answers its members and reports whether it was committed; otherwise it is
// rolled back.
func (w *groupWriter) run(b *batch) bool {
	begun := time.Now()
	b.position, b.err = w.begin()
	for b.err == nil && !b.full {
		w.fill(b)
	}
	if b.err == nil {
		w.forget(b.members...)
		b.err = w.conn.Control(commit)
	}
	if b.err != nil {
		w.abort(b.err)
		return false
	}
	w.store.onCommit(len(b.members), time.Since(begun))
	w.answer(b.members...)
	return true
}

// begin begins a transaction and returns the position of the newest event. After a failed control
// statement it is read from the database, because a commit may have succeeded nevertheless.
func (w *groupWriter) begin() (position int64, err error) {
	if err := w.conn.Control(begin); err != nil {
		return 0, err
	}
	if w.failed {
		if err := w.store.loadMemory(w.store.newTx(context.Background(), w.conn).reader); err != nil {
			return 0, err
		}
		w.failed = false
	}
	position, _ = w.store.events.Positions()
	return position, nil
}

// abort rolls back a transaction that failed with err.
func (w *groupWriter) abort(err error) {
	w.failed = w.failed || !errors.Is(err, errWrote)
	w.conn.Abort()
	w.store.cache.Publish()
}

// fill runs the closures one after the other on a shared goroutine; a goroutine for
// each would cost a tenth of the throughput. A Goexit in one of them ends that
// goroutine, not the writer, and fill is called again for the others.
func (w *groupWriter) fill(b *batch) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for b.err == nil { // otherwise the others stay in the queue
			r := w.next(b)
			if b.full = r == nil; b.full {
				return
			}
			w.member(b, r)
		}
	}()
	<-ended
}

// next returns the next member, nil when no request waits.
func (w *groupWriter) next(b *batch) *writeRequest {
	for len(b.members) < maxBatch {
		var r *writeRequest
		if len(b.todo) > 0 {
			r, b.todo = b.todo[0], b.todo[1:]
		} else {
			select {
			case r = <-w.queue: // nil once the queue is closed and empty
			default:
			}
		}
		if r == nil {
			return nil
		}
		if r.start() {
			b.members = append(b.members, r)
			return r
		}
	}
	return nil
}

// member runs one closure. The closure's own error is kept in r.err, that of a control statement
// in b.err, even if the closure ends the goroutine.
func (w *groupWriter) member(b *batch, r *writeRequest) {
	if b.savepoints {
		if b.err = w.conn.Control(savepoint); b.err != nil {
			return
		}
	}
	defer func() { b.err = w.leave(b, r) }()
	r.tx = w.store.newTx(r.ctx, w.conn)
	r.tx.state.position = b.position
	r.err = goexitError()
	r.err = r.tx.call(r.fn)
}

// leave ends a closure's part of the transaction, and rolls the part back if the closure failed.
func (w *groupWriter) leave(b *batch, r *writeRequest) error {
	if r.err == nil {
		b.position = r.tx.state.position
		w.store.cache.Join(&r.tx.state.cached)
	}
	switch {
	case b.savepoints && r.err != nil:
		if err := w.conn.Control(rollbackTo); err != nil {
			return err
		}
	case !b.savepoints && r.err != nil && r.tx.state.conn.Changed():
		return errWrote
	case !b.savepoints:
		return nil
	}
	return w.conn.Control(release)
}

// forget removes the rows that members have changed from the cache, before the commit.
func (w *groupWriter) forget(members ...*writeRequest) {
	w.store.cache.Forget(convert(members, func(r *writeRequest) *cache.Change { return &r.tx.state.cached })...)
}

// answer returns the results to the members of a committed batch.
func (w *groupWriter) answer(members ...*writeRequest) {
	var txs []*Tx
	for _, r := range members {
		if r.err == nil {
			txs = append(txs, r.tx)
		}
	}
	w.store.committed(txs...)
	for _, r := range members {
		r.result <- r.err
	}
}

// alone runs a closure in a separate transaction.
func (w *groupWriter) alone(r *writeRequest) {
	begun := time.Now()
	position, err := w.begin()
	if err == nil {
		r.tx = w.store.newTx(r.ctx, w.conn)
		r.tx.state.position = position
		if r.err = r.tx.runClosure(r.fn); r.err != nil {
			w.conn.Abort()
			r.result <- r.err
			return
		}
		w.forget(r)
		err = w.conn.Control(commit)
	}
	if err != nil {
		w.abort(err)
		r.result <- errs.Wrap(errs.Unavailable, err, "the database refused the write; nothing was stored")
		return
	}
	w.store.onCommit(1, time.Since(begun))
	w.answer(r)
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
