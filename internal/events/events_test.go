package events_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"comet/internal/events"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patient keeps a test that waits for nothing from waiting for ever.
func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// setup starts a relay that hardly ever polls: it finds events by wake-ups.
func setup(t *testing.T, s *store.Store) *events.Feed {
	t.Helper()
	return start(t, s, &events.Options{Poll: time.Hour})
}

func start(t *testing.T, s *store.Store, opts *events.Options) *events.Feed {
	t.Helper()
	feed := events.NewFeed(s, opts)
	relay := events.NewRelay(s, feed, opts)
	require.NoError(t, relay.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, relay.Stop(context.Background())) })
	return feed
}

// dropTables undoes every migration.
func dropTables(t *testing.T, m *store.Migrator) {
	t.Helper()
	for {
		undone, err := m.Down(t.Context())
		require.NoError(t, err)
		if len(undone) == 0 {
			return
		}
	}
}

func emit(s *store.Store, keys ...string) error {
	return s.Write(context.Background(), func(tx *store.Tx) error {
		for _, key := range keys {
			if err := tx.Events().Emit(events.AgentUpdated, key, nil); err != nil {
				return err
			}
		}
		return nil
	})
}

// purge deletes events older than retention, after the relay has handled all.
func purge(t *testing.T, db *storetest.DB, retention time.Duration) {
	t.Helper()
	require.Eventually(t, func() bool {
		waiting, err := db.Events(t.Context()).Pending()
		return err == nil && !waiting
	}, time.Minute, 5*time.Millisecond)
	require.NoError(t, events.Purge(db.Store, retention)(t.Context()))
}

// writers commit events from 16 goroutines, some of them after transactions that
// fail, and return the key of every event that was acknowledged.
func writers(s *store.Store, rounds int) (acknowledged map[string]bool, err error) {
	var mu sync.Mutex
	acknowledged = map[string]bool{}
	var failures []error
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() {
			for i := range rounds {
				key := fmt.Sprintf("%d-%d", w, i)
				lost := s.Write(context.Background(), func(tx *store.Tx) error {
					return errors.Join(tx.Events().Emit(events.AgentUpdated, "lost", nil), context.Canceled)
				})
				err := emit(s, key+"-a", key+"-b")
				mu.Lock()
				acknowledged[key+"-a"], acknowledged[key+"-b"] = true, true
				if err != nil || !errors.Is(lost, context.Canceled) {
					failures = append(failures, err, lost)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return acknowledged, errors.Join(failures...)
}

// read takes want events, in pages of random size, from a subscription that is
// dropped and taken up again at its position now and then.
func read(ctx context.Context, want int, feeds ...*events.Feed) ([]models.Event, error) {
	var got []models.Event
	sub := feeds[0].Subscribe(0)
	for len(got) < want {
		page, err := sub.Next(ctx, 1+rand.IntN(50))
		if err != nil {
			return got, fmt.Errorf("after %d events: %w", len(got), err)
		}
		got = append(got, page...)
		if rand.IntN(4) == 0 {
			sub = feeds[rand.IntN(len(feeds))].Subscribe(sub.Position())
		}
	}
	return got, nil
}

func requireEachOnceInOrder(t *testing.T, acknowledged map[string]bool, got []models.Event) {
	t.Helper()
	require.Len(t, got, len(acknowledged))
	seen := map[string]bool{}
	for i, e := range got {
		require.EqualValues(t, i+1, e.Position, "gapless and in order")
		require.True(t, acknowledged[e.Key], e.Key)
		require.False(t, seen[e.ID+e.Key], "%s came twice", e.Key)
		seen[e.ID+e.Key] = true
	}
}

func TestFeedUnderConcurrentWriters(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		feed := setup(t, db.Store)
		ctx := patient(t)
		const rounds, subscribers = 12, 4
		type result struct {
			events []models.Event
			err    error
		}
		results := make(chan result, subscribers)
		for range subscribers {
			go func() {
				got, err := read(ctx, 16*rounds*2, feed)
				results <- result{got, err}
			}()
		}
		acknowledged, err := writers(db.Store, rounds)
		require.NoError(t, err)
		for range subscribers {
			r := <-results
			require.NoError(t, r.err)
			requireEachOnceInOrder(t, acknowledged, r.events)
		}
	})
}

// TestTwoReplicas is for the database that several processes share.
func TestTwoReplicas(t *testing.T) {
	t.Parallel()
	for _, name := range storetest.Databases() {
		if name == "sqlite" {
			continue // belongs to one process
		}
		t.Run("ShareOneStream/"+name, func(t *testing.T) {
			t.Parallel()
			db := storetest.Open(t, name)
			other, err := store.Open(t.Context(), db.Options)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, other.Close()) })
			often := &events.Options{Poll: 5 * time.Millisecond}
			here, there := start(t, db.Store, often), start(t, other, often)
			const rounds = 6
			writeBoth := make(chan error, 2)
			var mu sync.Mutex
			acknowledged := map[string]bool{}
			for i, s := range []*store.Store{db.Store, other} {
				go func() {
					keys, err := writers(s, rounds)
					mu.Lock()
					defer mu.Unlock()
					for k := range keys {
						acknowledged[fmt.Sprint(i, k)] = true
					}
					writeBoth <- err
				}()
			}
			ctx := patient(t)
			first, err := read(ctx, 2*16*rounds*2, here, there)
			require.NoError(t, err)
			second, err := read(ctx, 2*16*rounds*2, there)
			require.NoError(t, err)
			require.NoError(t, errors.Join(<-writeBoth, <-writeBoth))
			require.Equal(t, first, second, "both replicas tell the same")
			require.Len(t, first, len(acknowledged))
			for i, e := range first {
				require.EqualValues(t, i+1, e.Position)
			}
		})
	}
}

func TestSubscription(t *testing.T) {
	t.Parallel()

	run := func(name string, fn func(t *testing.T, db *storetest.DB, feed *events.Feed)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t *testing.T, db *storetest.DB) { fn(t, db, setup(t, db.Store)) })
		})
	}
	next := func(t *testing.T, sub *events.Subscription, limit int) (keys []string) {
		t.Helper()
		got, err := sub.Next(patient(t), limit)
		require.NoError(t, err)
		for _, e := range got {
			keys = append(keys, e.Key)
		}
		return keys
	}

	run("StartsBehindItsPosition", func(t *testing.T, db *storetest.DB, feed *events.Feed) {
		require.NoError(t, emit(db.Store, "a", "b", "c", "d"))
		sub := feed.Subscribe(1)
		require.Equal(t, []string{"b", "c"}, next(t, sub, 2))
		require.EqualValues(t, 3, sub.Position())
		require.Equal(t, []string{"d"}, next(t, sub, 2))
	})

	run("FromTheNewestSeesOnlyWhatComesAfter", func(t *testing.T, db *storetest.DB, feed *events.Feed) {
		require.NoError(t, emit(db.Store, "old"))
		require.Equal(t, []string{"old"}, next(t, feed.Subscribe(0), 10))
		sub, err := feed.SubscribeNew(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 1, sub.Position())
		require.NoError(t, emit(db.Store, "new"))
		require.Equal(t, []string{"new"}, next(t, sub, 10))
	})

	run("ThatIsSlowMissesNothingAndDelaysNoOther", func(t *testing.T, db *storetest.DB, feed *events.Feed) {
		slow, quick := feed.Subscribe(0), feed.Subscribe(0)
		for i := range 20 {
			require.NoError(t, emit(db.Store, fmt.Sprint(i)))
			require.Equal(t, []string{fmt.Sprint(i)}, next(t, quick, 10))
		}
		require.Len(t, next(t, slow, 100), 20)
	})

	run("WaitsUntilItsContextEnds", func(t *testing.T, _ *storetest.DB, feed *events.Feed) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		sub := feed.Subscribe(0)
		go func() {
			_, err := sub.Next(ctx, 10)
			ended <- err
		}()
		feed.Wake() // for nothing
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.Zero(t, sub.Position())
	})

	run("GoesOnBehindWhatWasPurged", func(t *testing.T, db *storetest.DB, feed *events.Feed) {
		require.NoError(t, emit(db.Store, "a", "b"))
		require.Len(t, next(t, feed.Subscribe(0), 10), 2)
		db.Clock.Advance(time.Hour)
		require.NoError(t, emit(db.Store, "c"))
		require.Equal(t, []string{"c"}, next(t, feed.Subscribe(2), 10))
		purge(t, db, time.Minute)
		sub := feed.Subscribe(0)
		require.Equal(t, []string{"c"}, next(t, sub, 10))
		require.EqualValues(t, 3, sub.Position())
	})
}

func TestPurge(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		feed := setup(t, db.Store)
		require.NoError(t, emit(db.Store, make([]string, 2500)...))
		read, err := read(patient(t), 2500, feed)
		require.NoError(t, err)
		require.Len(t, read, 2500)
		purge(t, db, time.Hour)
		kept, err := db.Events(t.Context()).After(0, 5000)
		require.NoError(t, err)
		require.Len(t, kept, 2500, "young events are kept")
		db.Clock.Advance(time.Hour + time.Microsecond)
		purge(t, db, time.Hour)
		kept, err = db.Events(t.Context()).After(0, 5000)
		require.NoError(t, err)
		require.Empty(t, kept, "however many they are")
	})
}

// TestPurgeRecordsItsCutoff counts the commits of purges with and without old events.
func TestPurgeRecordsItsCutoff(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		require.NoError(t, db.Close())
		opts := db.Options
		var commits atomic.Int64
		opts.OnCommit = func(int, time.Duration) { commits.Add(1) }
		s, err := store.Open(t.Context(), opts)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		db = &storetest.DB{Store: s, Options: opts, Clock: db.Clock}
		feed := setup(t, s)
		require.NoError(t, emit(s, "a", "b"))
		_, err = read(patient(t), 2, feed)
		require.NoError(t, err)
		commitsOf := func(retention time.Duration) int64 {
			t.Helper()
			require.Eventually(t, func() bool {
				waiting, err := db.Events(t.Context()).Pending()
				return err == nil && !waiting
			}, time.Minute, 5*time.Millisecond)
			before := commits.Load()
			purge(t, db, retention)
			return commits.Load() - before
		}
		cutoffs := func() []int64 {
			t.Helper()
			all, err := store.Rows[int64](db.Reads(t.Context()), "SELECT cutoff FROM purges WHERE kind = 'events'")
			require.NoError(t, err)
			return all
		}
		require.EqualValues(t, 1, commitsOf(time.Hour))
		require.Empty(t, cutoffs(), "no event was deleted")
		db.Clock.Advance(2 * time.Hour)
		require.EqualValues(t, 1, commitsOf(time.Hour))
		require.Equal(t, []int64{db.Now().Add(-time.Hour).UnixMicro()}, cutoffs())
		kept, err := db.Events(t.Context()).After(0, 10)
		require.NoError(t, err)
		require.Empty(t, kept)
	})
}

func TestRelay(t *testing.T) {
	t.Parallel()

	t.Run("MayBeStoppedUnderLoadAndTheNextOneGoesOn", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, db *storetest.DB) {
			type outcome struct {
				acknowledged map[string]bool
				err          error
			}
			written := make(chan outcome, 1)
			go func() {
				acknowledged, err := writers(db.Store, 10)
				written <- outcome{acknowledged, err}
			}()
			for range 5 {
				feed := events.NewFeed(db.Store, nil)
				relay := events.NewRelay(db.Store, feed, nil)
				require.NoError(t, relay.Start(t.Context()))
				_, err := feed.Subscribe(0).Next(patient(t), 1)
				require.NoError(t, err)
				require.NoError(t, relay.Stop(patient(t)))
				require.NoError(t, relay.Stop(patient(t)), "twice is fine")
			}
			out := <-written
			require.NoError(t, out.err)
			got, err := read(patient(t), len(out.acknowledged), setup(t, db.Store))
			require.NoError(t, err)
			requireEachOnceInOrder(t, out.acknowledged, got)
		})
	})

	t.Run("NumbersWhatWasCommittedBeforeItStarted", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, db *storetest.DB) {
			require.NoError(t, emit(db.Store, make([]string, 2100)...))
			<-db.EventsWritten() // the earlier receiver has ended
			got, err := read(patient(t), 2100, setup(t, db.Store))
			require.NoError(t, err)
			require.Len(t, got, 2100)
		})
	})

	t.Run("OutlivesADatabaseThatFails", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, db *storetest.DB) {
			if db.Alone() {
				return // the relay does not read the database either
			}
			m, err := store.OpenMigrator(db.Options)
			require.NoError(t, err)
			defer func() { require.NoError(t, m.Close()) }()
			dropTables(t, m)
			var out log
			feed := start(t, db.Store, &events.Options{Poll: time.Millisecond, Logger: slog.New(slog.NewTextHandler(&out, nil))})
			got := make(chan error, 1)
			ctx := patient(t)
			go func() {
				_, err := feed.Subscribe(0).Next(ctx, 1)
				got <- err
			}()
			require.Eventually(t, func() bool { return out.count("failed; retrying") == 1 }, time.Minute, 5*time.Millisecond)
			_, err = m.Up(t.Context())
			require.NoError(t, err)
			require.NoError(t, emit(db.Store, "a"))
			require.NoError(t, <-got)
			require.Eventually(t, func() bool { return out.count("succeeded again") == 1 }, time.Minute, 5*time.Millisecond)
			require.Equal(t, 1, out.count("failed; retrying"), "only the relay reads: %s", &out)
		})
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

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *log) count(text string) int { return strings.Count(l.String(), text) }
