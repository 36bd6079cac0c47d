package store

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/models"
	"comet/store/txconn"
)

func openSQLiteForTest(t *testing.T) (*Store, *groupWriter) {
	t.Helper()
	s, err := Open(t.Context(), Options{Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Write(t.Context(), func(tx *Tx) error { return tx.Agents().Insert(testRoot()) }))
	return s, s.writes.(*groupWriter)
}

func testRoot() models.Agent {
	now := time.Now()
	return models.Agent{ID: "nova", Name: "NOVA", FrequencyHz: 999, Capabilities: []string{}, IsActive: true, Version: 1, CreatedAt: now, UpdatedAt: now}
}

func testAgent(id string) models.Agent {
	now := time.Now()
	return models.Agent{
		ID: id, Name: id, Level: 1, SphereID: new(1), FrequencyHz: 888, ParentID: new("nova"), TokenBudget: new(int64(5000)),
		Capabilities: []string{"plan"}, IsActive: true, Version: 1, CreatedAt: now, UpdatedAt: now,
	}
}

func insert(id string) func(*Tx) error {
	return func(tx *Tx) error { return tx.Agents().Insert(testAgent(id)) }
}

func requireExists(t *testing.T, s *Store, id string, want bool) {
	t.Helper()
	_, err := s.Agents(t.Context()).Get(id)
	if want {
		require.NoError(t, err, id)
	} else {
		require.Equal(t, errs.NotFound, errs.CodeOf(err), id)
	}
}

// oneBatch runs the closures in one batch: the first is held until the others
// wait behind it. It returns their errors in order.
func oneBatch(t *testing.T, w *groupWriter, fns ...func(*Tx) error) []error {
	t.Helper()
	entered, release := make(chan struct{}), make(chan struct{})
	letGo := sync.OnceFunc(func() { close(release) })
	defer letGo() // whatever happens, the writer must not be held for ever
	var once sync.Once
	out := make([]error, len(fns))
	var wg sync.WaitGroup
	wg.Go(func() {
		out[0] = w.write(t.Context(), func(tx *Tx) error {
			once.Do(func() { close(entered); <-release })
			return fns[0](tx)
		})
	})
	<-entered
	for i, fn := range fns[1:] {
		wg.Go(func() { out[i+1] = w.write(t.Context(), fn) })
		require.Eventually(t, func() bool { return len(w.queue) == i+1 }, time.Minute, 50*time.Microsecond)
	}
	letGo()
	wg.Wait()
	return out
}

// modes runs a case with and without savepoints.
func modes(t *testing.T, run func(t *testing.T, savepoints int)) {
	t.Helper()
	for name, savepoints := range map[string]int{"Without": 0, "With": 1000} {
		t.Run(name+"Savepoints", func(t *testing.T) {
			t.Parallel()
			run(t, savepoints)
		})
	}
}

func TestGroupWriterIsolatesMembers(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")

	// Each case breaks the middle one of three writers that share a batch.
	cases := map[string]struct {
		fail  func(*Tx) error
		check func(t *testing.T, err error)
	}{
		"ReturnsAnError": {
			func(tx *Tx) error { return errors.Join(insert("broken")(tx), boom) },
			func(t *testing.T, err error) { require.ErrorIs(t, err, boom) },
		},
		"Panics": {
			func(tx *Tx) error { _ = insert("broken")(tx); panic("boom") },
			func(t *testing.T, err error) {
				require.Equal(t, errs.Internal, errs.CodeOf(err))
				require.ErrorContains(t, err, "panic in a write: boom")
			},
		},
		"EndsItsGoroutine": {
			func(tx *Tx) error { _ = insert("broken")(tx); runtime.Goexit(); return nil },
			func(t *testing.T, err error) { require.ErrorIs(t, err, errGoexit) },
		},
		"BreaksAConstraint": {
			func(tx *Tx) error {
				_ = insert("broken")(tx)
				_, err := tx.exec("INSERT INTO agent_capabilities (capability, agent_id) VALUES ('x', 'missing')")
				return err
			},
			func(t *testing.T, err error) { require.Equal(t, errs.Conflict, errs.CodeOf(err)) },
		},
		"SwallowsAConstraintError": {
			func(tx *Tx) error {
				_ = insert("broken")(tx)
				_, _ = tx.exec("UPDATE agents SET level = 7 WHERE id = 'broken'")
				return nil
			},
			func(t *testing.T, err error) { require.Equal(t, errs.Conflict, errs.CodeOf(err)) },
		},
		"SwallowsAnErrorOfTheObjectMapper": {
			func(tx *Tx) error {
				_ = insert("broken")(tx)
				_ = tx.db().Exec("INSERT INTO no_such_table VALUES (1)").Error
				return nil
			},
			func(t *testing.T, err error) { require.ErrorContains(t, err, "no such table") },
		},
		"WritesOnAfterAFailedStatement": {
			func(tx *Tx) error {
				_, _ = tx.exec("INSERT INTO no_such_table VALUES (1)")
				err := insert("broken")(tx)
				require.ErrorContains(t, err, "the transaction has failed")
				return nil
			},
			func(t *testing.T, err error) { require.Error(t, err) },
		},
		"RollsTheWholeTransactionBackItself": {
			func(tx *Tx) error {
				_ = insert("broken")(tx)
				_, _ = tx.exec("INSERT OR ROLLBACK INTO agents SELECT * FROM agents") // as SQLite does after an interrupt or a full disk
				return nil
			},
			func(t *testing.T, err error) { require.Equal(t, errs.Conflict, errs.CodeOf(err)) },
		},
		"RollsTheTransactionBackBehindTheWritersBack": {
			func(tx *Tx) error { _, _ = tx.exec("ROLLBACK"); return nil },
			func(t *testing.T, err error) { require.ErrorContains(t, err, "a control statement in a write") },
		},
		"HasOnlyReadBeforeItFails": {
			func(tx *Tx) error {
				_, err := tx.Agents().Get("before")
				return errors.Join(err, boom)
			},
			func(t *testing.T, err error) { require.Equal(t, "boom", err.Error()) },
		},
		"CommitsBehindTheWritersBack": {
			func(tx *Tx) error { _, _ = tx.exec("RELEASE member"); return boom },
			func(t *testing.T, err error) { require.Error(t, err) },
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			modes(t, func(t *testing.T, savepoints int) {
				s, w := openSQLiteForTest(t)
				w.savepoints = savepoints
				out := oneBatch(t, w, insert("before"), c.fail, insert("after"))
				require.NoError(t, out[0])
				require.NoError(t, out[2])
				c.check(t, out[1])
				requireExists(t, s, "before", true)
				requireExists(t, s, "after", true)
				requireExists(t, s, "broken", false)
			})
		})
	}
}

// TestGroupWriterUsesSavepointsAfterAFailure counts the control statements of batches of three.
func TestGroupWriterUsesSavepointsAfterAFailure(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	reads := func(tx *Tx) error { _, err := tx.Agents().Get("nova"); return errors.Join(err, boom) }
	writes := func(tx *Tx) error { return errors.Join(insert("broken")(tx), boom) }
	s, w := openSQLiteForTest(t)
	counts := map[string]int{}
	w.conn.FailControl = func(st string) error { counts[st]++; return nil }
	batch := func(want map[string]int, fns ...func(*Tx) error) {
		t.Helper()
		clear(counts)
		oneBatch(t, w, fns...)
		require.NoError(t, s.Write(t.Context(), func(*Tx) error { return nil }), "the writer has ended the batch")
		want[begin]++
		want[commit]++
		require.Equal(t, want, counts)
	}
	batch(map[string]int{begin: 1, commit: 1}, insert("a"), insert("b"), insert("c"))
	batch(map[string]int{begin: 1, commit: 1}, insert("d"), reads, insert("e"))
	batch(map[string]int{begin: 1}, writes)
	requireExists(t, s, "broken", false)
	batch(map[string]int{begin: 2, commit: 1, savepoint: 4, rollbackTo: 1, release: 4}, insert("f"), writes, insert("g"))
	require.Equal(t, savepointBatches-1, w.savepoints)
	batch(map[string]int{begin: 1, commit: 1, savepoint: 4, rollbackTo: 1, release: 4}, insert("h"), writes, insert("i"))
	for w.savepoints > 0 {
		require.NoError(t, s.Write(t.Context(), func(*Tx) error { return nil }))
	}
	batch(map[string]int{begin: 1, commit: 1}, insert("j"), insert("k"), insert("l"))
	for _, id := range strings.Split("abcdefghijkl", "") {
		requireExists(t, s, id, true)
	}
}

func TestGroupWriterControlStatements(t *testing.T) {
	t.Parallel()
	for _, statement := range []string{begin, savepoint, release, commit} {
		t.Run("AFailed"+statement[:5]+"LosesNoWrite", func(t *testing.T) {
			t.Parallel()
			s, w := openSQLiteForTest(t)
			if statement == savepoint || statement == release {
				w.savepoints = 1
			}
			var failed atomic.Bool
			seen := 0
			w.conn.FailControl = func(st string) error {
				if st == statement {
					seen++
				}
				if st == statement && seen == 1 && failed.CompareAndSwap(false, true) {
					return errors.New("disk I/O error")
				}
				return nil
			}
			out := oneBatch(t, w, insert("a"), insert("b"), insert("c"))
			require.True(t, failed.Load())
			for i, id := range []string{"a", "b", "c"} {
				require.NoError(t, out[i])
				requireExists(t, s, id, true)
			}
		})
	}

	t.Run("ADatabaseThatCannotCommitIsReportedToEveryCaller", func(t *testing.T) {
		t.Parallel()
		s, w := openSQLiteForTest(t)
		w.conn.FailControl = func(st string) error {
			if st == commit {
				return errors.New("disk I/O error")
			}
			return nil
		}
		out := oneBatch(t, w, insert("a"), insert("b"))
		for i, id := range []string{"a", "b"} {
			require.Equal(t, errs.Unavailable, errs.CodeOf(out[i]))
			requireExists(t, s, id, false)
		}
	})
}

func TestGroupWriterContext(t *testing.T) {
	t.Parallel()

	t.Run("ACancelledCallerInTheQueueNeverRuns", func(t *testing.T) {
		t.Parallel()
		s, w := openSQLiteForTest(t)
		ctx, cancel := context.WithCancel(t.Context())
		entered, release, left := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		var wg sync.WaitGroup
		wg.Go(func() { _ = w.write(t.Context(), func(*Tx) error { close(entered); <-release; return nil }) })
		<-entered
		wg.Go(func() { left <- w.write(ctx, insert("late")) })
		require.Eventually(t, func() bool { return len(w.queue) == 1 }, time.Minute, 50*time.Microsecond)
		cancel()
		require.ErrorIs(t, <-left, context.Canceled, "it need not wait for the writer")
		close(release)
		wg.Wait()
		require.NoError(t, s.Write(t.Context(), insert("next")))
		requireExists(t, s, "late", false)
	})

	t.Run("ACancellationAfterTheStartIsNotAnAbort", func(t *testing.T) {
		t.Parallel()
		s, w := openSQLiteForTest(t)
		ctx, cancel := context.WithCancel(t.Context())
		err := w.write(ctx, func(tx *Tx) error {
			cancel()
			return insert("whole")(tx)
		})
		require.NoError(t, err, "it was begun, so it is finished and acknowledged")
		requireExists(t, s, "whole", true)
	})

	t.Run("ATransactionIsUnusableAfterItsEnd", func(t *testing.T) {
		t.Parallel()
		s, _ := openSQLiteForTest(t)
		var leaked *Tx
		require.NoError(t, s.Write(t.Context(), func(tx *Tx) error { leaked = tx; return nil }))
		require.ErrorIs(t, insert("ghost")(leaked), txconn.ErrOver)
		requireExists(t, s, "ghost", false)
	})

	t.Run("CloseFinishesWaitingWritesAndRefusesLaterOnes", func(t *testing.T) {
		t.Parallel()
		s, err := Open(t.Context(), Options{Dir: t.TempDir()})
		require.NoError(t, err)
		w := s.writes.(*groupWriter)
		entered, release := make(chan struct{}), make(chan struct{})
		results := make(chan error, 2)
		go func() {
			results <- s.Write(t.Context(), func(tx *Tx) error { close(entered); <-release; return tx.Agents().Insert(testRoot()) })
		}()
		<-entered
		go func() { results <- s.Write(t.Context(), func(*Tx) error { return nil }) }()
		require.Eventually(t, func() bool { return len(w.queue) == 1 }, time.Minute, 5*time.Millisecond)
		close(release)
		require.NoError(t, s.Close())
		require.NoError(t, <-results)
		require.NoError(t, <-results)
		require.Equal(t, errs.Unavailable, errs.CodeOf(s.Write(t.Context(), insert("x"))))
	})
}

// TestGroupWriterUnderChaos lets many callers write, fail, panic and give up at
// random and proves that the rows are exactly those of the acknowledged callers.
func TestGroupWriterUnderChaos(t *testing.T) {
	t.Parallel()
	s, w := openSQLiteForTest(t)
	var failures atomic.Int64
	w.conn.FailControl = func(string) error {
		if failures.Add(1)%97 == 0 {
			return errors.New("a control statement failed")
		}
		return nil
	}
	const callers, writes = 16, 60
	var mu sync.Mutex
	acknowledged := map[string]bool{}
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := range writes {
				id := fmt.Sprintf("agent-%d-%d", c, i)
				ctx, cancel := context.WithCancel(context.Background())
				err := s.Write(ctx, chaos(id, (c+i)%9, cancel))
				cancel()
				mu.Lock()
				acknowledged[id] = err == nil
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for id, want := range acknowledged {
		requireExists(t, s, id, want)
	}
}

// chaos is an insert that misbehaves in one of several ways.
func chaos(id string, how int, cancel context.CancelFunc) func(*Tx) error {
	return func(tx *Tx) error {
		if how == 1 {
			cancel()
		}
		if err := insert(id)(tx); err != nil {
			return err
		}
		switch how {
		case 2:
			panic("chaos")
		case 3:
			runtime.Goexit()
		case 4:
			_, _ = tx.exec("INSERT INTO no_such_table VALUES (1)")
		case 5:
			return errors.New("changed my mind")
		case 6:
			_, _ = tx.exec("INSERT OR ROLLBACK INTO agents SELECT * FROM agents")
		case 7:
			_, _ = tx.exec("ROLLBACK")
		}
		return nil
	}
}

func TestAPurgePausesNineTimesAsLongAsItsTransactions(t *testing.T) {
	t.Parallel()
	s, _ := openSQLiteForTest(t)
	now, pauses := time.Now(), []time.Duration{}
	s.clock = func() time.Time { return now }
	pause := s.pause
	s.pause = func(_ context.Context, d time.Duration) error {
		require.False(t, s.purging.TryAcquire(1), "no other purge runs meanwhile")
		pauses = append(pauses, d)
		return nil
	}
	sizes := []int64{purgeRows, purgeRows, purgeRows - 1}
	step := func(*Tx, int) (int64, error) {
		now = now.Add(time.Duration(len(sizes)) * time.Millisecond)
		n := sizes[0]
		sizes = sizes[1:]
		return n, nil
	}
	require.NoError(t, s.InBatches(t.Context(), step))
	require.Empty(t, sizes)
	require.Equal(t, []time.Duration{27 * time.Millisecond, 18 * time.Millisecond, 9 * time.Millisecond}, pauses)

	s.pause = pause
	ctx, cancel := context.WithCancel(t.Context())
	err := s.InBatches(ctx, func(*Tx, int) (int64, error) {
		now = now.Add(time.Hour)
		cancel()
		return purgeRows, nil
	})
	require.ErrorIs(t, err, context.Canceled, "the end of the context ends the pause")
}
