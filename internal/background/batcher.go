package background

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// writeTimeout limits Flush.
const writeTimeout = 10 * time.Second

// ErrStopped reports that AddWait did not add an item, because the batcher was stopped.
var ErrStopped = errors.New("the batcher was stopped, so the item was not added")

// BatcherOptions configures NewBatcher.
type BatcherOptions struct {
	// Task names the writes in the log, such as "writing tool calls".
	Task string
	// Logger receives the first failure of a series and the recovery.
	Logger *slog.Logger
	// Interval is the longest time until an item is written, and Size the number of items that are
	// written earlier.
	Interval time.Duration
	Size     int
	// MaxBatch limits the items of one write, because other writers wait for it.
	MaxBatch int
	// MaxPending limits the items that are not written yet.
	MaxPending int
}

// Batcher collects items in memory and writes them in batches, in their order. It is a Service that
// writes periodically; Stop writes the pending items. No item is lost silently: each is written,
// refused by Add or AddWait, or still pending when Flush or Stop returns an error. It is safe for
// concurrent use.
type Batcher[T any] struct {
	*Loop
	opts    BatcherOptions
	write   func(ctx context.Context, batch []T) (written int, err error)
	poller  *PollLoop
	writing *semaphore.Weighted

	mu        sync.Mutex
	spaceFree *sync.Cond
	pending   []T // the first ones are being written
	inWrite   int
	stopped   bool // the periodic writes have ended
}

// NewBatcher returns a batcher. write must write a batch, which may be empty. If it fails, it returns
// how many items need not be written again; the others stay pending.
func NewBatcher[T any](opts BatcherOptions, write func(ctx context.Context, batch []T) (written int, err error)) *Batcher[T] {
	b := &Batcher[T]{opts: opts, write: write, writing: semaphore.NewWeighted(1)}
	b.spaceFree = sync.NewCond(&b.mu)
	b.poller = NewPollLoop(PollOptions{Task: opts.Task, Logger: opts.Logger}, func(ctx context.Context) (time.Duration, error) {
		return opts.Interval, b.Flush(context.WithoutCancel(ctx))
	})
	b.Loop = NewLoop(b.poller.Run)
	return b
}

// Stop implements Service. It writes the pending items after a write in progress, even if ctx has
// ended.
func (b *Batcher[T]) Stop(ctx context.Context) error {
	_ = b.Loop.Stop(ctx) // a loop that takes longer is in a write; Flush waits for it
	b.mu.Lock()
	b.stopped = true
	b.spaceFree.Broadcast()
	b.mu.Unlock()
	return b.Flush(context.WithoutCancel(ctx))
}

// Add adds an item, unless MaxPending items are pending or the batcher was stopped.
func (b *Batcher[T]) Add(item T) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped || len(b.pending) >= b.opts.MaxPending {
		return false
	}
	b.add(item)
	return true
}

// AddWait adds an item. It waits while MaxPending items are pending. After Stop, and if Stop ends
// the wait, it returns ErrStopped at once and does not add the item.
func (b *Batcher[T]) AddWait(item T) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.pending) >= b.opts.MaxPending && !b.stopped {
		b.spaceFree.Wait()
	}
	if b.stopped {
		return ErrStopped
	}
	b.add(item)
	return nil
}

// add adds an item for a caller that holds the mutex.
func (b *Batcher[T]) add(item T) {
	b.pending = append(b.pending, item)
	if len(b.pending)-b.inWrite >= b.opts.Size { // more than Size after a failed write
		b.poller.Wake()
	}
}

// Flush writes the items that are pending when it is called. Items that cannot be written before ctx
// ends, or within ten seconds, stay pending.
func (b *Batcher[T]) Flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if err := b.writing.Acquire(ctx, 1); err != nil {
		return err
	}
	defer b.writing.Release(1)
	b.mu.Lock()
	left := len(b.pending)
	b.mu.Unlock()
	for {
		batch := b.take(min(left, b.opts.MaxBatch))
		written, err := b.write(ctx, batch)
		if err == nil {
			written = len(batch)
		}
		b.remove(written)
		if left -= len(batch); err != nil || left <= 0 {
			return err
		}
	}
}

// take returns the first n items, which stay pending.
func (b *Batcher[T]) take(n int) []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inWrite = n
	return b.pending[:n:n]
}

// remove removes the first n items.
func (b *Batcher[T]) remove(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inWrite = 0
	if b.pending = b.pending[n:]; len(b.pending) == 0 {
		b.pending = nil // frees the memory
	}
	b.spaceFree.Broadcast()
}
