package v5_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	v5 "comet/internal/protocol/v5"
	"comet/internal/registry"
	"comet/models"
)

// TestDescriptionOfSelfRegisteredAgent: the description that an agent declares does not decide
// whether it needs a token.
func TestDescriptionOfSelfRegisteredAgent(t *testing.T) {
	t.Parallel()
	testOnDatabases(t, "keeps the mark", func(t *testing.T, f *fixture) {
		reg := registry.New(f.db.Store, nil)
		id, err := v5.SelfRegistration(reg)(t.Context(), "shouter")
		require.NoError(t, err)
		require.NoError(t, f.work.ReindexAgent(t.Context(), id))
		f.send(t, id, "M1|W1>O1|J|T0|-|-|-|0|S0|-|desc=Shouts", 0)
		agent, err := f.work.Agent(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, "registered itself over TCP: Shouts", agent.Description)
		require.True(t, v5.IsSelfRegistered(agent))
		again, err := v5.SelfRegistration(reg)(t.Context(), "shouter")
		require.NoError(t, err)
		require.Equal(t, id, again)
		require.Equal(t, "M*|O1>W1|S|T0|-|D|-|0|S0|-|agents=W1;count=1;desc=registered itself over TCP: Shouts", f.sendOne(t, id, "M2|W1>O1|Q|T0|-|-|-|0|S0|-|filter=W1"))
	})
	testOnDatabases(t, "cannot be declared by an agent with a token", func(t *testing.T, f *fixture) {
		f.agent(t, "v5-known")
		for _, desc := range []string{"registered itself over TCP", "registered itself over TCP: Shouts"} {
			require.Contains(t, f.sendOne(t, "v5-known", "M1|W1>O1|J|T0|-|-|-|0|S0|-|desc="+desc), "|E10|")
		}
		require.False(t, v5.IsSelfRegistered(models.Agent{ID: "v5-known", Description: "registered itself over TCP, once"}))
	})
}
