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

// wish is an operation that counts how often it was committed.
type wish struct {
	n         int
	committed atomic.Int32
	refused   error
	breaks    error // the error of a commit that it is part of
}

func (w *wish) agent() string        { return "" }
func (w *wish) reservation() string  { return "" }
func (w *wish) requestIDs() []string { return nil }
func (w *wish) failed() error        { return w.refused }
func (w *wish) decide(*batch)        {}

// desk commits operations. Each commit waits for a signal if the test sends one.
type desk struct {
	*group
	begun  chan []int    // the wishes of a commit that has begun
	let    chan struct{} // lets it end; nil lets all
	before func(ops []operation) error
}

func newDesk() *desk {
	d := &desk{begun: make(chan []int, 1000)}
	d.group = newGroup(d.commit)
	return d
}

func (d *desk) commit(_ context.Context, ops []operation) error {
	var names []int
	for _, op := range ops {
		names = append(names, op.(*wish).n)
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
		if w := op.(*wish); w.breaks != nil {
			return w.breaks
		}
	}
	for _, op := range ops {
		op.(*wish).committed.Add(1)
	}
	return nil
}

// wait returns once n calls wait.
func (d *desk) wait(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.waiting) == n
	}, time.Minute, 50*time.Microsecond)
}

// idle requires that in the end no call leads or waits, and that the next
// call is served.
func (d *desk) idle(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return !d.led && len(d.waiting) == 0
	}, time.Minute, 50*time.Microsecond)
	d.let, d.before = nil, nil
	w := &wish{}
	require.NoError(t, d.do(t.Context(), w))
	require.EqualValues(t, 1, w.committed.Load())
}

// line lets n wishes arrive one after the other while the first is being committed,
// and returns what their callers receive.
func (d *desk) line(t *testing.T, wishes ...*wish) []chan error {
	t.Helper()
	d.let = make(chan struct{})
	answers := make([]chan error, len(wishes))
	for i, w := range wishes {
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

func wishes(n int) []*wish {
	out := make([]*wish, n)
	for i := range out {
		out[i] = &wish{n: i}
	}
	return out
}

func TestGroup(t *testing.T) {
	t.Parallel()

	t.Run("CommitsWaitingCallsInOrderOfArrival", func(t *testing.T) {
		t.Parallel()
		d, all := newDesk(), wishes(2*maxGroup+10)
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
		d, all := newDesk(), wishes(2)
		answers := d.line(t, all...)
		close(d.let)
		require.NoError(t, <-answers[0])
		require.NoError(t, <-answers[1])
		d.idle(t)
	})

	t.Run("ReturnsARefusalToItsCallerOnly", func(t *testing.T) {
		t.Parallel()
		d, all := newDesk(), wishes(3)
		all[1].refused = errs.New(errs.BudgetExceeded, "no")
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
		d, all := newDesk(), wishes(4)
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
			d, all := newDesk(), wishes(4)
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
			d, all := newDesk(), wishes(4)
			d.before = func(ops []operation) error {
				if ops[0].(*wish).n == 1 {
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
		d, all := newDesk(), wishes(3)
		answers := d.line(t, all[0])
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() { left <- d.do(ctx, all[1]) }()
		d.wait(t, 1)
		cancel()
		require.ErrorIs(t, <-left, context.Canceled, "while the commit before it is still under way")
		d.let <- struct{}{}
		require.NoError(t, <-answers[0])
		require.Zero(t, all[1].committed.Load())
		d.idle(t)
	})

	t.Run("WaitsForADecisionThatHasBegun", func(t *testing.T) {
		t.Parallel()
		d, all := newDesk(), wishes(3)
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
			d := newDesk()
			d.led = true // a leader is about to pass the lead
			ctx, cancel := context.WithCancel(context.Background())
			ended, follower := &wish{n: 1}, &wish{n: 2}
			first, second := make(chan error, 1), make(chan error, 1)
			go func() { first <- d.do(ctx, ended) }()
			d.wait(t, 1)
			go func() { second <- d.do(context.Background(), follower) }()
			d.wait(t, 2)
			if rand.IntN(2) == 0 {
				cancel()
				d.passLead()
			} else {
				d.passLead()
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

	// Whatever the interleaving: a caller that gets nil was committed once, one that gets the end of
	// its context was not committed, and every caller gets a response.
	t.Run("GetsTheRealOutcomeUnderLoad", func(t *testing.T) {
		t.Parallel()
		d := newDesk()
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
					w := &wish{}
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
