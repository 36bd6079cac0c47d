package background_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/background"
)

// batchWriter records the batches that a Batcher writes.
type batchWriter struct {
	mu      sync.Mutex
	batches [][]int
	written int // of a batch that fails
	err     error
	blocked chan struct{} // nil unless writes wait until it is closed
}

// block makes the following writes wait until the channel is closed.
func (w *batchWriter) block() chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.blocked = make(chan struct{})
	return w.blocked
}

func (w *batchWriter) write(_ context.Context, batch []int) (int, error) {
	w.mu.Lock()
	blocked := w.blocked
	w.mu.Unlock()
	if blocked != nil {
		<-blocked
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(batch) > 0 {
		w.batches = append(w.batches, batch)
	}
	return w.written, w.err
}

// fail makes the following writes fail after n items; nil ends that.
func (w *batchWriter) fail(n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.written, w.err = n, err
}

// take returns the batches since the last call.
func (w *batchWriter) take() [][]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.batches
	w.batches = nil
	return out
}

func newBatcher(w *batchWriter) *background.Batcher[int] {
	return background.NewBatcher(background.BatcherOptions{
		Task: "writing numbers", Logger: slog.New(slog.DiscardHandler), Interval: time.Minute, Size: 3, MaxBatch: 4, MaxPending: 6,
	}, w.write)
}

func TestBatcher(t *testing.T) {
	t.Parallel()
	test := func(name string, run func(t *testing.T, b *background.Batcher[int], w *batchWriter)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := &batchWriter{}
				b := newBatcher(w)
				require.NoError(t, b.Start(t.Context()))
				t.Cleanup(func() { require.NoError(t, b.Stop(context.Background())) })
				synctest.Wait()
				run(t, b, w)
			})
		})
	}
	pass := func(d time.Duration) {
		time.Sleep(d) //nolint:forbidigo // the time of the bubble
		synctest.Wait()
	}

	test("writes after the interval", func(t *testing.T, b *background.Batcher[int], w *batchWriter) {
		require.True(t, b.Add(1))
		require.True(t, b.Add(2))
		pass(time.Minute - 1)
		require.Empty(t, w.take())
		pass(1)
		require.Equal(t, [][]int{{1, 2}}, w.take())
	})

	test("a full batch is written before the interval ends", func(t *testing.T, b *background.Batcher[int], w *batchWriter) {
		for i := range 3 {
			require.True(t, b.Add(i))
		}
		synctest.Wait()
		require.Equal(t, [][]int{{0, 1, 2}}, w.take())
	})

	test("more than a full batch is written before the interval ends", func(t *testing.T, b *background.Batcher[int], w *batchWriter) {
		boom := errors.New("boom")
		release := w.block()
		w.fail(0, boom)
		require.True(t, b.Add(1))
		failed := make(chan error)
		go func() { failed <- b.Flush(t.Context()) }()
		synctest.Wait()
		for i := range 2 { // during the write, so that the failure leaves three items
			require.True(t, b.Add(i+2))
		}
		close(release)
		require.ErrorIs(t, <-failed, boom)
		w.fail(0, nil)
		w.take()
		require.True(t, b.Add(4))
		synctest.Wait()
		require.Equal(t, [][]int{{1, 2, 3, 4}}, w.take())
	})

	test("Stop writes what is pending", func(t *testing.T, b *background.Batcher[int], w *batchWriter) {
		require.True(t, b.Add(1))
		require.NoError(t, b.Stop(t.Context()))
		require.Equal(t, [][]int{{1}}, w.take())
	})

	test("Stop writes what is pending although the time for the shutdown is used up", func(t *testing.T, b *background.Batcher[int], w *batchWriter) {
		require.True(t, b.Add(1))
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, b.Stop(ended))
		require.Equal(t, [][]int{{1}}, w.take())
	})

	test("after Stop an item is refused", func(t *testing.T, b *background.Batcher[int], w *batchWriter) {
		require.NoError(t, b.Stop(t.Context()))
		require.False(t, b.Add(1))
		require.ErrorIs(t, b.AddWait(2), background.ErrStopped)
		require.NoError(t, b.Flush(t.Context()))
		require.Empty(t, w.take())
	})

	test("writes again what was not written, before newer items", func(t *testing.T, b *background.Batcher[int], w *batchWriter) {
		boom := errors.New("boom")
		w.fail(1, boom)
		require.True(t, b.Add(1))
		require.True(t, b.Add(2))
		require.ErrorIs(t, b.Flush(t.Context()), boom)
		w.fail(0, nil)
		require.Equal(t, [][]int{{1, 2}}, w.take())
		require.True(t, b.Add(3))
		require.NoError(t, b.Flush(t.Context()))
		require.Equal(t, [][]int{{2, 3}}, w.take())
	})
}

func TestBatcherLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &batchWriter{}
		b := newBatcher(w)
		for i := range 6 {
			require.True(t, b.Add(i))
		}
		require.False(t, b.Add(6))
		waited := make(chan struct{})
		go func() {
			defer close(waited)
			if err := b.AddWait(7); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		select {
		case <-waited:
			t.Error("AddWait did not wait")
		default:
		}
		require.NoError(t, b.Flush(t.Context()))
		<-waited
		require.NoError(t, b.Flush(t.Context()))
		require.Equal(t, [][]int{{0, 1, 2, 3}, {4, 5}, {7}}, w.take())
	})
}

// TestStopWaitsForAWriteInProgress: items that are pending during a slow write are written, even if
// the time for the shutdown is used up.
func TestStopWaitsForAWriteInProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var written []int
		slow := 5 * time.Second
		b := background.NewBatcher(background.BatcherOptions{Interval: time.Second, Size: 1, MaxBatch: 1, MaxPending: 9}, func(_ context.Context, batch []int) (int, error) {
			time.Sleep(slow) //nolint:forbidigo // the time of the bubble
			written = append(written, batch...)
			return 0, nil
		})
		require.NoError(t, b.Start(t.Context()))
		require.NoError(t, b.AddWait(1))
		synctest.Wait() // the write of the first item is in progress
		require.NoError(t, b.AddWait(2))
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, b.Stop(ended))
		require.Equal(t, []int{1, 2}, written)
	})
}

// TestAddWaitFailsAtOnceAfterStop: neither a full buffer nor a write in progress delays the error of
// a call after Stop, and Stop ends a wait for space with the same error.
func TestAddWaitFailsAtOnceAfterStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &batchWriter{}
		b := background.NewBatcher(background.BatcherOptions{
			Task: "writing numbers", Interval: time.Minute, Size: 1, MaxBatch: 1, MaxPending: 1,
		}, w.write)
		boom := errors.New("the database is closed")
		w.fail(0, boom)
		require.NoError(t, b.AddWait(1))
		waited := make(chan error, 1)
		go func() { waited <- b.AddWait(2) }()
		synctest.Wait()
		require.Empty(t, waited, "AddWait waits for space")

		require.ErrorIs(t, b.Stop(t.Context()), boom)
		require.ErrorIs(t, <-waited, background.ErrStopped)

		release := w.block()
		flushed := make(chan error, 1)
		go func() { flushed <- b.Flush(t.Context()) }()
		synctest.Wait() // the write is in progress, and the buffer is full
		begun := time.Now()
		require.ErrorIs(t, b.AddWait(3), background.ErrStopped)
		require.Zero(t, time.Since(begun))
		require.ErrorContains(t, b.AddWait(4), "was stopped")

		w.fail(0, nil)
		close(release)
		require.NoError(t, <-flushed)
		require.Equal(t, [][]int{{1}, {1}}, w.take(), "the refused items are not written, the pending one is")
	})
}

func TestFlushDoesNotWaitForABlockedWriterForever(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := background.NewBatcher(background.BatcherOptions{MaxBatch: 1, MaxPending: 1}, func(ctx context.Context, _ []int) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		})
		go func() { _ = b.Flush(context.Background()) }()
		synctest.Wait()
		ended, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		require.ErrorIs(t, b.Flush(ended), context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(begun))
		time.Sleep(time.Minute) //nolint:forbidigo // the blocked write gives up
	})
}

// TestBatcherWritesEachItemOnce adds and flushes concurrently.
func TestBatcherWritesEachItemOnce(t *testing.T) {
	t.Parallel()
	w := &batchWriter{}
	b := newBatcher(w)
	require.NoError(t, b.Start(t.Context()))
	var all sync.WaitGroup
	for n := range 4 {
		all.Go(func() {
			for i := range 200 {
				if err := b.AddWait(1000*n + i); err != nil {
					t.Error(err)
				}
				if i%50 == 0 {
					if err := b.Flush(context.Background()); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Wait()
	require.NoError(t, b.Stop(context.Background()))
	next := map[int]int{}
	for _, batch := range w.take() {
		for _, item := range batch {
			require.Equal(t, next[item/1000], item%1000, fmt.Sprint("the order of sender ", item/1000))
			next[item/1000]++
		}
	}
	require.Equal(t, map[int]int{0: 200, 1: 200, 2: 200, 3: 200}, next)
}
