package usage

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
)

// countedOperation is an operation that counts its commits.
type countedOperation struct {
	request
	n         int
	committed atomic.Int32
	breaks    error // the error of a commit that it is part of
}

func (w *countedOperation) decide(*batch) {}

// committer commits operations. Each commit waits for a signal if the test sends one.
type committer struct {
	*group
	begun  chan []int    // the operations of a commit that has begun
	let    chan struct{} // a receive ends a commit; nil blocks none
	before func(ops []operation) error
}

func newCommitter() *committer {
	d := &committer{begun: make(chan []int, 1000)}
	d.group = newGroup(d.commit)
	return d
}

func (d *committer) commit(_ context.Context, ops []operation) error {
	var names []int
	for _, op := range ops {
		names = append(names, op.(*countedOperation).n)
	}
	d.begun <- names
	if d.let != nil {
		<-d.let
	}
	if d.before != nil {
		if err := d.before(ops); err != nil {
			return err
		}
	}
	for _, op := range ops {
		if w := op.(*countedOperation); w.breaks != nil {
			return w.breaks
		}
	}
	for _, op := range ops {
		op.(*countedOperation).committed.Add(1)
	}
	return nil
}

// wait returns when n calls are waiting.
func (d *committer) wait(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.waiting) == n
	}, time.Minute, 50*time.Microsecond)
}

// idle requires that no call leads or waits any more, and that a further call is committed.
func (d *committer) idle(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.leader) == 0 && len(d.waiting) == 0
	}, time.Minute, 50*time.Microsecond)
	d.let, d.before = nil, nil
	w := &countedOperation{}
	require.NoError(t, d.do(t.Context(), w))
	require.EqualValues(t, 1, w.committed.Load())
}

// line starts calls one after the other while the first is being committed, and returns their
// results.
func (d *committer) line(t *testing.T, countedOperations ...*countedOperation) []chan error {
	t.Helper()
	d.let = make(chan struct{})
	answers := make([]chan error, len(countedOperations))
	for i, w := range countedOperations {
		answers[i] = make(chan error, 1)
		go func() {
			ended := false
			defer func() {
				if p := recover(); p != nil || !ended {
					answers[i] <- fmt.Errorf("ended by %v", p)
				}
			}()
			err := d.do(context.Background(), w)
			ended = true
			answers[i] <- err
		}()
		if i == 0 {
			require.Equal(t, []int{w.n}, <-d.begun)
		} else {
			d.wait(t, i)
		}
	}
	return answers
}

func countedOperations(n int) []*countedOperation {
	out := make([]*countedOperation, n)
	for i := range out {
		out[i] = &countedOperation{n: i}
	}
	return out
}

func TestGroup(t *testing.T) {
	t.Parallel()

	t.Run("CommitsWaitingCallsInOrderOfArrival", func(t *testing.T) {
		t.Parallel()
		d, all := newCommitter(), countedOperations(2*maxGroup+10)
		answers := d.line(t, all...)
		close(d.let)
		for i, answer := range answers {
			require.NoError(t, <-answer)
			require.EqualValues(t, 1, all[i].committed.Load())
		}
		var order, sizes []int
		for len(d.begun) > 0 {
			batch := <-d.begun
			order, sizes = append(order, batch...), append(sizes, len(batch))
		}
		require.Equal(t, []int{maxGroup, maxGroup, 9}, sizes)
		require.True(t, slices.IsSorted(order), "%v", order)
		d.idle(t)
	})

	t.Run("LeavesNoCallBehind", func(t *testing.T) {
		t.Parallel()
		d, all := newCommitter(), countedOperations(2)
		answers := d.line(t, all...)
		close(d.let)
		require.NoError(t, <-answers[0])
		require.NoError(t, <-answers[1])
		d.idle(t)
	})

	t.Run("ReturnsARefusalToItsCallerOnly", func(t *testing.T) {
		t.Parallel()
		d, all := newCommitter(), countedOperations(3)
		all[1].err = errs.New(errs.BudgetExceeded, "no")
		answers := d.line(t, all...)
		close(d.let)
		require.NoError(t, <-answers[0])
		requireAnswer(t, errs.BudgetExceeded, <-answers[1])
		require.NoError(t, <-answers[2])
		require.EqualValues(t, 1, all[1].committed.Load(), "a refusal is committed with its event")
		d.idle(t)
	})

	t.Run("FindsTheCallThatBreaksACommit", func(t *testing.T) {
		t.Parallel()
		d, all := newCommitter(), countedOperations(4)
		all[2].breaks = errs.New(errs.Conflict, "a row")
		answers := d.line(t, all...)
		close(d.let)
		for i, answer := range answers {
			if i == 2 {
				requireAnswer(t, errs.Conflict, <-answer)
				continue
			}
			require.NoError(t, <-answer)
			require.EqualValues(t, 1, all[i].committed.Load())
		}
		d.idle(t)
	})

	for _, code := range []errs.Code{errs.Unavailable, errs.Busy, errs.Timeout} {
		t.Run("RepeatsNothingAfter/"+string(code), func(t *testing.T) {
			t.Parallel()
			d, all := newCommitter(), countedOperations(4)
			all[2].breaks = errs.New(code, "gone")
			answers := d.line(t, all...)
			close(d.let)
			require.NoError(t, <-answers[0])
			for _, answer := range answers[1:] {
				requireAnswer(t, code, <-answer)
			}
			require.Equal(t, []int{1, 2, 3}, <-d.begun)
			require.Empty(t, d.begun)
			d.idle(t)
		})
	}

	for name, end := range map[string]func(){"Panic": func() { panic("oops") }, "Goexit": runtime.Goexit} {
		t.Run("LetsNoCallWaitForeverAfterA"+name, func(t *testing.T) {
			t.Parallel()
			d, all := newCommitter(), countedOperations(4)
			d.before = func(ops []operation) error {
				if ops[0].(*countedOperation).n == 1 {
					end()
				}
				return nil
			}
			answers := d.line(t, all...)
			close(d.let)
			require.NoError(t, <-answers[0])
			require.ErrorContains(t, <-answers[1], "ended by")
			require.ErrorIs(t, <-answers[2], errUndecided)
			require.ErrorIs(t, <-answers[3], errUndecided)
			d.idle(t)
		})
	}
}

func requireAnswer(t *testing.T, want errs.Code, err error) {
	t.Helper()
	require.Equal(t, want, errs.CodeOf(err), "%v", err)
}

func TestACallerWhoseContextEnds(t *testing.T) {
	t.Parallel()

	t.Run("LeavesTheQueue", func(t *testing.T) {
		t.Parallel()
		d, all := newCommitter(), countedOperations(3)
		answers := d.line(t, all[0])
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() { left <- d.do(ctx, all[1]) }()
		d.wait(t, 1)
		cancel()
		require.ErrorIs(t, <-left, context.Canceled, "although the previous commit has not ended")
		d.let <- struct{}{}
		require.NoError(t, <-answers[0])
		require.Zero(t, all[1].committed.Load())
		d.idle(t)
	})

	t.Run("WaitsForADecisionThatHasBegun", func(t *testing.T) {
		t.Parallel()
		d, all := newCommitter(), countedOperations(3)
		answers := d.line(t, all[:2]...)
		ctx, cancel := context.WithCancel(t.Context())
		third := make(chan error, 1)
		go func() { third <- d.do(ctx, all[2]) }()
		d.wait(t, 2)
		d.let <- struct{}{}
		<-d.begun
		cancel()
		d.let <- struct{}{}
		require.NoError(t, <-third, "it was committed")
		require.NoError(t, <-answers[1])
		require.EqualValues(t, 1, all[2].committed.Load())
		d.idle(t)
	})

	t.Run("IsNotDecidedAndPassesTheLeadOn", func(t *testing.T) {
		t.Parallel()
		for range 300 {
			d := newCommitter()
			d.leader <- struct{}{} // as if another call led
			ctx, cancel := context.WithCancel(context.Background())
			ended, follower := &countedOperation{n: 1}, &countedOperation{n: 2}
			first, second := make(chan error, 1), make(chan error, 1)
			go func() { first <- d.do(ctx, ended) }()
			d.wait(t, 1)
			go func() { second <- d.do(context.Background(), follower) }()
			d.wait(t, 2)
			if rand.IntN(2) == 0 {
				cancel()
				<-d.leader
			} else {
				<-d.leader
				cancel()
			}
			require.NoError(t, <-second)
			require.EqualValues(t, 1, follower.committed.Load())
			if err := <-first; err != nil {
				require.ErrorIs(t, err, context.Canceled)
				require.Zero(t, ended.committed.Load())
			} else {
				require.EqualValues(t, 1, ended.committed.Load())
			}
			d.idle(t)
		}
	})

	// In every interleaving the operation of a call that returns nil was committed once, that of a
	// call that returns the error of its context was not committed, and every call returns.
	t.Run("GetsTheRealOutcomeUnderLoad", func(t *testing.T) {
		t.Parallel()
		d := newCommitter()
		d.begun = make(chan []int, 1<<20)
		d.before = func([]operation) error { runtime.Gosched(); return nil }
		var wg sync.WaitGroup
		var committed, cancelled atomic.Int64
		for client := range uint64(32) {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(client, 1))
				for range 300 {
					ctx, cancel := context.WithCancel(context.Background())
					if patience := r.IntN(30); patience < 20 {
						go func() {
							for range patience {
								runtime.Gosched()
							}
							cancel()
						}()
					}
					w := &countedOperation{}
					switch err := d.do(ctx, w); {
					case err == nil && w.committed.Load() == 1:
						committed.Add(1)
					case errors.Is(err, context.Canceled) && w.committed.Load() == 0:
						cancelled.Add(1)
					default:
						t.Errorf("got %v, committed %d times", err, w.committed.Load())
					}
					cancel()
				}
			})
		}
		wg.Wait()
		require.Positive(t, committed.Load())
		require.Positive(t, cancelled.Load())
		d.idle(t)
	})
}
