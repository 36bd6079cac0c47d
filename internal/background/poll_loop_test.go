package background_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"

	"comet/internal/background"
	"comet/internal/errs"
)

// pollFixture runs a PollLoop in the bubble of synctest and records when it polled.
type pollFixture struct {
	loop  *background.PollLoop
	log   bytes.Buffer
	begun time.Time

	mu   sync.Mutex
	runs []time.Duration // since the start
	err  error
}

func startPollLoop(t *testing.T, idle time.Duration, signal <-chan struct{}) *pollFixture {
	t.Helper()
	f := &pollFixture{begun: time.Now()}
	f.loop = background.NewPollLoop(background.PollOptions{
		Task: "counting sheep", Logger: slog.New(slog.NewTextHandler(&f.log, nil)), Signal: signal,
	}, func(context.Context) (time.Duration, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.runs = append(f.runs, time.Since(f.begun))
		return idle, f.err
	})
	service := background.NewLoop(f.loop.Run)
	require.NoError(t, service.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, service.Stop(context.Background())) })
	return f
}

// after lets time pass and returns the times of the runs since the last call. From then on poll
// returns err.
func (f *pollFixture) after(d time.Duration, err error) []time.Duration {
	time.Sleep(d) //nolint:forbidigo // the time of the bubble
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	runs := f.runs
	f.runs, f.err = nil, err
	return runs
}

func TestPollLoop(t *testing.T) {
	t.Parallel()

	t.Run("polls at once and then after the time it returned", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			f := startPollLoop(t, time.Second, nil)
			require.Equal(t, []time.Duration{0, time.Second, 2 * time.Second}, f.after(2*time.Second, nil))
		})
	})

	t.Run("polls early when it is woken or signalled", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			signal := background.NewSignal()
			f := startPollLoop(t, time.Hour, signal)
			f.after(0, nil)
			f.loop.Wake()
			require.Len(t, f.after(0, nil), 1)
			signal.Set()
			require.Len(t, f.after(0, nil), 1)
		})
	})

	t.Run("waits longer after each failure and logs once", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			f := startPollLoop(t, time.Second, nil)
			f.after(0, errors.New("boom"))
			failed := f.after(time.Hour, nil)
			require.Less(t, failed[1]-failed[0], background.MaxBackoff/10)
			for i := len(failed) - 10; i < len(failed)-1; i++ {
				wait := failed[i+1] - failed[i]
				require.GreaterOrEqual(t, wait, background.MaxBackoff/2)
				require.LessOrEqual(t, wait, background.MaxBackoff*3/2)
			}
			require.Equal(t, errs.Unavailable, errs.CodeOf(f.loop.Check()))
			require.Equal(t, "counting sheep failed and will be retried", errs.From(f.loop.Check()).Detail)
			f.after(time.Minute, nil)
			require.NoError(t, f.loop.Check())
			require.Equal(t, 1, strings.Count(f.log.String(), "counting sheep failed; retrying"), f.log.String())
			require.Equal(t, 1, strings.Count(f.log.String(), "counting sheep succeeded again"))
		})
	})

	t.Run("ends during a wait after a failure", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			loop := background.NewPollLoop(background.PollOptions{Logger: slog.New(slog.DiscardHandler), MaxBackoff: time.Hour},
				func(context.Context) (time.Duration, error) { return 0, errors.New("boom") })
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			loop.Run(ctx)
			require.Equal(t, errs.Unavailable, errs.CodeOf(loop.Check()), "it does not run any more")
		})
	})
}

func TestFailureLogIgnoresTheEndOfTheContext(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l := background.NewFailureLog(slog.New(slog.NewTextHandler(&out, nil)))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l.Report(ctx, "reading", ctx.Err())
	require.Empty(t, out.String())
	require.False(t, l.Failing("reading"))
}

func TestSignalsBeforeTheReceiveAreOne(t *testing.T) {
	t.Parallel()
	s := background.NewSignal()
	s.Set()
	s.Set()
	<-s
	require.Empty(t, s)
}

func TestAcquireWithin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slots := semaphore.NewWeighted(1)
		require.NoError(t, background.AcquireWithin(t.Context(), slots, time.Second))
		begun := time.Now()
		require.ErrorIs(t, background.AcquireWithin(t.Context(), slots, time.Second), context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(begun))
		time.AfterFunc(time.Second, func() { slots.Release(1) })
		require.NoError(t, background.AcquireWithin(t.Context(), slots, time.Minute))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, background.AcquireWithin(ctx, slots, time.Hour), context.Canceled)
	})
}
