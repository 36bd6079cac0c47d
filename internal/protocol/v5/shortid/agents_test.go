package shortid_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/protocol/v5/shortid"
	"comet/models"
	"comet/store"
)

// agents registers the root agent and orchestrators below it.
func (f fixture) agents(t *testing.T, ids ...string) {
	t.Helper()
	f.write(t, func(tx *store.Tx) error {
		root := models.Agent{
			ID: models.RootAgentID, Name: "NOVA", Level: models.LevelSystem, FrequencyHz: 999, Capabilities: []string{},
			BudgetScope: models.ScopeOwn, IsActive: true, Version: 1, CreatedAt: f.Now(), UpdatedAt: f.Now(),
		}
		err := tx.Agents().Insert(root)
		for _, id := range ids {
			a := root
			a.ID, a.Level, a.FrequencyHz, a.SphereID, a.ParentID = id, models.LevelOrchestrator, 888, new(1), new(models.RootAgentID)
			a.TokenBudget = new(int64(100_000))
			if err == nil {
				err = tx.Agents().Insert(a)
			}
		}
		return err
	})
}

func TestAgentNumbers(t *testing.T) {
	t.Parallel()
	testOnDatabases(t, "an agent keeps the number that it got first", func(t *testing.T, f fixture) {
		f.agents(t, "ada", "bob", "eve")
		for range 2 {
			for i, id := range []string{"bob", "ada"} {
				n, err := shortid.AgentNumber(t.Context(), f.Store, id)
				require.NoError(t, err)
				require.EqualValues(t, i+1, n)
			}
		}
		id, err := shortid.AgentID(t.Context(), f.Store, 1)
		require.NoError(t, err)
		require.Equal(t, "bob", id)
		_, err = shortid.AgentID(t.Context(), f.Store, 3)
		require.True(t, errs.Is(err, errs.NotFound), err)
		_, err = shortid.AgentNumber(t.Context(), f.Store, "unknown")
		require.True(t, errs.Is(err, errs.NotFound), err)

		got, err := shortid.AgentNumbers(t.Context(), f.Store, []string{"ada", "bob", "eve", "unknown"})
		require.NoError(t, err)
		require.Equal(t, map[string]int64{"ada": 2, "bob": 1}, got, "agents without a number are absent")
		got, err = shortid.AgentNumbers(t.Context(), f.Store, nil)
		require.NoError(t, err)
		require.Empty(t, got)
	})

	testOnDatabases(t, "concurrent transactions assign every number once, without a gap", func(t *testing.T, f fixture) {
		const agents = 16
		ids := make([]string, agents)
		for n := range ids {
			ids[n] = fmt.Sprint("agent-", n)
		}
		f.agents(t, ids...)
		got := make([][2]int64, agents)
		var all sync.WaitGroup
		for n, id := range ids {
			for twice := range 2 {
				all.Go(func() { got[n][twice], _ = shortid.AgentNumber(t.Context(), f.Store, id) })
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
