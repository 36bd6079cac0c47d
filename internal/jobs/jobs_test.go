package jobs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"comet/internal/jobs"
	"comet/internal/testkit"
	"comet/store"
	"comet/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errBoom = errors.New("boom")

// often makes a runner see a clock that the test moves.
func often() *jobs.Options { return &jobs.Options{Poll: 10 * time.Millisecond} }

// rule runs one case on a fresh database of every kind.
func rule(t *testing.T, name string, fn func(t *testing.T, db *storetest.DB)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, fn)
	})
}

func start(t *testing.T, r *jobs.Runner) {
	t.Helper()
	require.NoError(t, r.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, r.Stop(context.Background())) })
}

func enqueue(t *testing.T, s *store.Store, all ...store.Job) {
	t.Helper()
	require.NoError(t, s.Write(t.Context(), func(tx *store.Tx) error {
		for _, j := range all {
			if _, err := tx.Jobs().Enqueue(j); err != nil {
				return err
			}
		}
		return nil
	}))
}

// requireGone waits until no job of the kind is left.
func requireGone(t *testing.T, s *store.Store, kind string) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, found, err := s.Jobs(context.Background()).NextAt([]string{kind})
		return err == nil && !found
	}, time.Minute, 5*time.Millisecond)
}

// claimAll leases every due job of the kind, as another worker would.
func claimAll(t *testing.T, s *store.Store, kind string) (out []store.Job) {
	t.Helper()
	require.NoError(t, s.Write(t.Context(), func(tx *store.Tx) (err error) {
		out, err = tx.Jobs().Claim([]string{kind}, 1000, time.Minute)
		return err
	}))
	return out
}

// done sends the job and ends it.
func done(ch chan<- jobs.Job) jobs.Handler {
	return func(_ context.Context, j *jobs.Job) error { ch <- *j; return nil }
}

func TestRunner(t *testing.T) {
	t.Parallel()

	rule(t, "RunsAJobAsSoonAsItIsCommitted", func(t *testing.T, db *storetest.DB) {
		ran := make(chan jobs.Job, 10)
		r := jobs.New(db.Store, &jobs.Options{Poll: time.Hour})
		r.Handle("work", done(ran), jobs.Policy{})
		enqueue(t, db.Store, store.Job{Kind: "work", Key: "before"})
		start(t, r)
		require.Equal(t, "before", testkit.Receive(t, ran).Key)
		enqueue(t, db.Store, store.Job{Kind: "work", Key: "a", Payload: []byte(`{"n":1}`)})
		j := testkit.Receive(t, ran)
		require.Equal(t, "a", j.Key)
		require.JSONEq(t, `{"n":1}`, string(j.Payload))
		require.Equal(t, 1, j.Attempt)
		requireGone(t, db.Store, "work")
	})

	rule(t, "RunsAJobWhenItIsDueAndNotBefore", func(t *testing.T, db *storetest.DB) {
		ran := make(chan jobs.Job, 10)
		r := jobs.New(db.Store, often())
		r.Handle("work", done(ran), jobs.Policy{})
		start(t, r)
		enqueue(t, db.Store, store.Job{Kind: "work", Key: "later", RunAt: db.Now().Add(time.Hour)}, store.Job{Kind: "work", Key: "now"})
		require.Equal(t, "now", testkit.Receive(t, ran).Key)
		requireRunning(t, db.Store, ran)
		db.Clock.Advance(time.Hour)
		next := testkit.Receive(t, ran)
		if next.Key == "now" { // its end was not committed when its lease ran out
			next = testkit.Receive(t, ran)
		}
		require.Equal(t, "later", next.Key)
	})

	rule(t, "LeavesUnknownKindsAloneAndSaysSoOnce", func(t *testing.T, db *storetest.DB) {
		var out log
		ran := make(chan jobs.Job, 10)
		opts := often()
		opts.Logger = slog.New(slog.NewTextHandler(&out, nil))
		r := jobs.New(db.Store, opts)
		r.Handle("work", done(ran), jobs.Policy{})
		enqueue(t, db.Store, store.Job{Kind: "mystery"}, store.Job{Kind: "mystery"}, store.Job{Kind: "riddle"})
		start(t, r)
		require.Eventually(t, func() bool { return out.count("kind=mystery") == 1 && out.count("kind=riddle") == 1 }, time.Minute, 5*time.Millisecond)
		for range 5 {
			requireRunning(t, db.Store, ran)
		}
		require.Equal(t, 1, out.count("kind=mystery"))
		left := claimAll(t, db.Store, "mystery")
		require.Len(t, left, 2)
		require.Equal(t, 1, left[0].Attempt, "it was never touched")
	})

	rule(t, "SharesTheWorkWithAnotherAndTheEffectOfEachJobHappensOnce", func(t *testing.T, db *storetest.DB) {
		other := db.Store
		if db.Database() != "sqlite" { // another process's handle
			var err error
			other, err = store.Open(t.Context(), db.Options)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, other.Close()) })
		}
		const n = 400
		var calls atomic.Int32
		for _, s := range []*store.Store{db.Store, other} {
			opts := often()
			opts.Workers = 8
			r := jobs.New(s, opts)
			r.Handle("work", func(ctx context.Context, j *jobs.Job) error {
				if calls.Add(1)%7 == 0 {
					panic("boom")
				}
				return s.Write(ctx, func(tx *store.Tx) error {
					return errors.Join(tx.Events().Emit("worked", j.Key, nil), j.Finish(tx))
				})
			}, jobs.Policy{Backoff: time.Microsecond, MaxBackoff: time.Microsecond})
			start(t, r)
		}
		for i := range n {
			enqueue(t, db.Store, store.Job{Kind: "work", Key: fmt.Sprint(i)})
			db.Clock.Advance(10 * time.Microsecond) // for the failed ones
		}
		require.Eventually(t, func() bool {
			db.Clock.Advance(10 * time.Microsecond)
			_, found, err := db.Jobs(context.Background()).NextAt([]string{"work"})
			return err == nil && !found
		}, time.Minute, 5*time.Millisecond)
		require.Len(t, effects(t, db.Store), n)
		require.Greater(t, int(calls.Load()), n, "some failed first")
	})
}

// requireRunning proves that the runner has gone round at least once more and
// has run nothing but the job made for that.
func requireRunning(t *testing.T, s *store.Store, ran <-chan jobs.Job) {
	t.Helper()
	enqueue(t, s, store.Job{Kind: "work", Key: "probe"})
	require.Equal(t, "probe", testkit.Receive(t, ran).Key)
	require.Empty(t, ran)
	requireNotWaiting(t, s, "probe")
}

// requireNotWaiting waits until the key is free again.
func requireNotWaiting(t *testing.T, s *store.Store, key string) {
	t.Helper()
	require.Eventually(t, func() bool {
		var free bool
		err := s.Write(context.Background(), func(tx *store.Tx) (err error) {
			free, err = tx.Jobs().Enqueue(store.Job{Kind: "work", Key: key})
			return errors.Join(err, errBoom) // only looking
		})
		return errors.Is(err, errBoom) && free
	}, time.Minute, 5*time.Millisecond)
}

// effects numbers the events that handlers wrote and returns how often each key
// is among them.
func effects(t *testing.T, s *store.Store) map[string]int {
	t.Helper()
	require.NoError(t, s.Write(t.Context(), func(tx *store.Tx) error { _, _, err := tx.Events().Number(1000); return err }))
	all, err := s.Events(t.Context()).After(0, 1000)
	require.NoError(t, err)
	out := map[string]int{}
	for _, e := range all {
		out[e.Key]++
		require.Equal(t, 1, out[e.Key], "the effect of %s happened twice", e.Key)
	}
	return out
}

func TestFailures(t *testing.T) {
	t.Parallel()

	failing := map[string]func(){
		"AnError": nil,
		"APanic":  func() { panic("boom") },
		"AGoexit": func() { runtime.Goexit() },
	}
	for name, how := range failing {
		rule(t, name+"IsTriedAgainAfterTheBackoff", func(t *testing.T, db *storetest.DB) {
			attempts := make(chan int, 10)
			opts := often()
			opts.Lease = 10 * time.Hour // so that its end is not taken for the next attempt
			r := jobs.New(db.Store, opts)
			r.Handle("work", func(_ context.Context, j *jobs.Job) error {
				attempts <- j.Attempt
				if j.Attempt == 3 {
					return nil
				}
				if how != nil {
					how()
				}
				return errBoom
			}, jobs.Policy{Backoff: time.Minute})
			start(t, r)
			enqueue(t, db.Store, store.Job{Kind: "work"})
			require.Equal(t, 1, testkit.Receive(t, attempts))
			requireDueIn(t, db, 30*time.Second, 90*time.Second)
			require.Empty(t, attempts, "not before its time")
			db.Clock.Advance(90 * time.Second)
			require.Equal(t, 2, testkit.Receive(t, attempts))
			requireDueIn(t, db, 60*time.Second, 180*time.Second)
			db.Clock.Advance(180 * time.Second)
			require.Equal(t, 3, testkit.Receive(t, attempts))
			requireGone(t, db.Store, "work")
		})
	}

	rule(t, "AreGivenUpAfterTheLastAttempt", func(t *testing.T, db *storetest.DB) {
		var out log
		var calls atomic.Int32
		opts := often()
		opts.Logger = slog.New(slog.NewTextHandler(&out, nil))
		r := jobs.New(db.Store, opts)
		r.Handle("work", func(context.Context, *jobs.Job) error { calls.Add(1); return errBoom },
			jobs.Policy{MaxAttempts: 3, Backoff: time.Second, MaxBackoff: time.Second})
		start(t, r)
		enqueue(t, db.Store, store.Job{Kind: "work", Key: "hopeless"})
		for range 2 { // the clock moves between attempts only, so that no lease ends
			requireDueIn(t, db, time.Nanosecond, time.Second)
			db.Clock.Advance(time.Second)
		}
		requireGone(t, db.Store, "work")
		require.EqualValues(t, 3, calls.Load())
		require.Equal(t, 1, out.count("in its last attempt"))
		require.Equal(t, 1, out.count("key=hopeless"))
	})

	rule(t, "CountWhenTheProcessEndedWithThem", func(t *testing.T, db *storetest.DB) {
		enqueue(t, db.Store, store.Job{Kind: "work"})
		for range 3 { // a worker claims it and is killed
			require.Len(t, claimAll(t, db.Store, "work"), 1)
			db.Clock.Advance(time.Minute)
		}
		ran := make(chan jobs.Job, 1)
		r := jobs.New(db.Store, often())
		r.Handle("work", done(ran), jobs.Policy{MaxAttempts: 3})
		start(t, r)
		requireGone(t, db.Store, "work")
		require.Empty(t, ran, "it would take this process down, too")
	})
}

// requireDueIn waits until the failure was stored and checks when the next
// attempt is due.
func requireDueIn(t *testing.T, db *storetest.DB, least, most time.Duration) {
	t.Helper()
	require.Eventually(t, func() bool {
		at, found, err := db.Jobs(context.Background()).NextAt([]string{"work"})
		in := at.Sub(db.Now())
		return err == nil && found && in >= least && in <= most
	}, time.Minute, 5*time.Millisecond)
}

func TestLease(t *testing.T) {
	t.Parallel()

	rule(t, "OfAKilledWorkerEndsAndAnotherRunsTheJob", func(t *testing.T, db *storetest.DB) {
		enqueue(t, db.Store, store.Job{Kind: "work", Key: "a"})
		require.Len(t, claimAll(t, db.Store, "work"), 1)
		ran := make(chan jobs.Job, 10)
		r := jobs.New(db.Store, often())
		r.Handle("work", done(ran), jobs.Policy{})
		start(t, r)
		requireRunning(t, db.Store, ran)
		db.Clock.Advance(time.Minute)
		j := testkit.Receive(t, ran)
		require.Equal(t, "a", j.Key)
		require.Equal(t, 2, j.Attempt)
		requireGone(t, db.Store, "work")
	})

	rule(t, "OutlivesTheHandlersContext", func(t *testing.T, db *storetest.DB) {
		left := make(chan time.Duration, 10)
		opts := often()
		opts.Lease = 100 * time.Millisecond
		r := jobs.New(db.Store, opts)
		r.Handle("work", func(ctx context.Context, j *jobs.Job) error {
			deadline, _ := ctx.Deadline()
			left <- time.Until(deadline)
			if j.Attempt == 1 {
				<-ctx.Done() // it hangs
			}
			return ctx.Err()
		}, jobs.Policy{Backoff: time.Microsecond, MaxBackoff: time.Microsecond})
		start(t, r)
		enqueue(t, db.Store, store.Job{Kind: "work"})
		require.LessOrEqual(t, testkit.Receive(t, left), 90*time.Millisecond)
		require.Eventually(t, func() bool { db.Clock.Advance(time.Microsecond); return len(left) > 0 }, time.Minute, 5*time.Millisecond)
		requireGone(t, db.Store, "work")
	})

	rule(t, "LostToAnotherKeepsTheEffectOut", func(t *testing.T, db *storetest.DB) {
		hang, finished := make(chan struct{}), make(chan error, 2)
		r := jobs.New(db.Store, often())
		r.Handle("work", func(_ context.Context, j *jobs.Job) error {
			if j.Attempt == 1 {
				<-hang // longer than its lease, whatever its context says
			}
			err := db.Write(context.Background(), func(tx *store.Tx) error {
				return errors.Join(tx.Events().Emit("worked", "effect", nil), j.Finish(tx))
			})
			finished <- err
			return err
		}, jobs.Policy{})
		start(t, r)
		enqueue(t, db.Store, store.Job{Kind: "work"})
		require.Eventually(t, func() bool {
			at, found, err := db.Jobs(context.Background()).NextAt([]string{"work"})
			return err == nil && found && at.After(db.Now()) // it is claimed
		}, time.Minute, 5*time.Millisecond)
		db.Clock.Advance(time.Minute)
		require.NoError(t, testkit.Receive(t, finished), "the second attempt")
		close(hang)
		require.ErrorIs(t, testkit.Receive(t, finished), store.ErrLeaseLost)
		require.Len(t, effects(t, db.Store), 1)
	})
}

// log is a buffer that several goroutines may use.
type log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *log) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), text)
}
