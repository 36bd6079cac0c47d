package storetest_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/store"
	"comet/store/storetest"
)

func TestAgentNumbers(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		number := func(id string) (n int64, err error) {
			err = db.Write(t.Context(), func(tx *store.Tx) (err error) { n, err = tx.Agents().AssignNumber(id); return err })
			return n, err
		}
		insert(t, db, nova(db), orchestrator(db, "ada", 1), orchestrator(db, "bob", 2))
		_, err := db.Agents(t.Context()).Number("ada")
		require.True(t, errs.Is(err, errs.NotFound))
		for range 2 { // a number never changes
			n, err := number("bob")
			require.NoError(t, err)
			require.EqualValues(t, 1, n)
			n, err = number("ada")
			require.NoError(t, err)
			require.EqualValues(t, 2, n)
		}
		n, err := db.Agents(t.Context()).Number("ada")
		require.NoError(t, err)
		require.EqualValues(t, 2, n)
		id, err := db.Agents(t.Context()).OfNumber(1)
		require.NoError(t, err)
		require.Equal(t, "bob", id)
		_, err = db.Agents(t.Context()).OfNumber(3)
		require.True(t, errs.Is(err, errs.NotFound))
		_, err = number("unknown")
		require.True(t, errs.Is(err, errs.Conflict), err)
	})
}

// TestAgentNumbersOfMany reads the numbers of several agents; agents without a number are absent.
func TestAgentNumbersOfMany(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		insert(t, db, nova(db), orchestrator(db, "ada", 1), orchestrator(db, "bob", 2), orchestrator(db, "eve", 3))
		require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error {
			_, err := tx.Agents().AssignNumber("bob")
			if err == nil {
				_, err = tx.Agents().AssignNumber("ada")
			}
			return err
		}))
		got, err := db.Agents(t.Context()).Numbers([]string{"ada", "bob", "eve", "unknown"})
		require.NoError(t, err)
		require.Equal(t, map[string]int64{"ada": 2, "bob": 1}, got)
		got, err = db.Agents(t.Context()).Numbers(nil)
		require.NoError(t, err)
		require.Empty(t, got)
	})
}

// TestConcurrentAgentNumbers assigns numbers in concurrent transactions: no number twice, no gap.
func TestConcurrentAgentNumbers(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		const agents = 16
		insert(t, db, nova(db))
		for n := range agents {
			insert(t, db, orchestrator(db, fmt.Sprint("agent-", n), 1))
		}
		got := make([][2]int64, agents)
		var all sync.WaitGroup
		for n := range agents {
			for twice := range 2 {
				all.Go(func() {
					_ = db.Write(t.Context(), func(tx *store.Tx) (err error) {
						got[n][twice], err = tx.Agents().AssignNumber(fmt.Sprint("agent-", n))
						return err
					})
				})
			}
		}
		all.Wait()
		seen := map[int64]bool{}
		for _, n := range got {
			require.Equal(t, n[0], n[1])
			require.Positive(t, n[0])
			require.LessOrEqual(t, n[0], int64(agents))
			seen[n[0]] = true
		}
		require.Len(t, seen, agents)
	})
}
