package storetest_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/events"
	"comet/store"
	"comet/store/storetest"
)

func TestBacklog(t *testing.T) {
	t.Parallel()

	t.Run("CountsCommittedWork", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, db *storetest.DB) {
			require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error {
				for range 3 {
					if err := tx.Events().Emit(events.AgentCreated, "a", nil); err != nil {
						return err
					}
				}
				if _, err := tx.Jobs().Enqueue(store.Job{Kind: "now"}); err != nil {
					return err
				}
				_, err := tx.Jobs().Enqueue(store.Job{Kind: "later", RunAt: tx.Now().Add(time.Hour)})
				return err
			}))
			waiting, err := db.Backlog(t.Context())
			require.NoError(t, err)
			want := store.Backlog{Events: 3, Jobs: 1}
			if db.Alone() {
				want.Events = 0 // they have positions from the start
			}
			require.Equal(t, want, waiting)
			require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error {
				if _, err := tx.Jobs().Claim([]string{"now"}, 10, time.Minute); err != nil {
					return err
				}
				_, _, err := tx.Events().Number(1000)
				return err
			}))
			waiting, err = db.Backlog(t.Context())
			require.NoError(t, err)
			require.Zero(t, waiting)
		})
	})

	t.Run("CountsWaitingCallers", func(t *testing.T) {
		t.Parallel()
		s, err := store.Open(t.Context(), store.Options{Dir: t.TempDir()})
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		begun, release := make(chan struct{}), make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := s.Write(t.Context(), func(*store.Tx) error { close(begun); <-release; return nil }); err != nil {
				t.Errorf("write: %v", err)
			}
		})
		<-begun
		wg.Go(func() {
			if err := s.Write(t.Context(), func(*store.Tx) error { return nil }); err != nil {
				t.Errorf("write: %v", err)
			}
		})
		require.Eventually(t, func() bool {
			waiting, err := s.Backlog(t.Context())
			return err == nil && waiting.Writes == 1
		}, time.Minute, 5*time.Millisecond)
		close(release)
		wg.Wait()
	})
}

func TestOnCommitReceivesEveryCommit(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		var commits, callers atomic.Int64
		opts := db.Options
		opts.OnCommit = func(n int, took time.Duration) {
			commits.Add(1)
			callers.Add(int64(n))
			if took <= 0 {
				t.Errorf("a commit took %s", took)
			}
		}
		s, err := store.Open(t.Context(), opts)
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if err := s.Write(t.Context(), func(*store.Tx) error { return nil }); err != nil {
					t.Errorf("write: %v", err)
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, 20, callers.Load())
		require.LessOrEqual(t, commits.Load(), callers.Load())
	})
}
