package v5_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	v5 "comet/internal/protocol/v5"
	"comet/internal/registry"
)

// TestSelfRegistration: the mark of an agent that registered itself does not depend on what the agent
// declares. A program without proof cannot act as an agent without the mark.
func TestSelfRegistration(t *testing.T) {
	t.Parallel()
	testOnDatabases(t, "without proof", func(t *testing.T, f *fixture) {
		reg := registry.New(f.db.Store, nil)
		enroll := v5.SelfRegistration(reg, true)
		id, err := enroll(t.Context(), "shouter", false)
		require.NoError(t, err)
		require.NoError(t, f.work.ReindexAgent(t.Context(), id))
		f.send(t, id, "M1|W1>O1|J|T0|-|-|-|0|S0|-|desc=Shouts", 0)
		agent, err := f.work.Agent(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, "Shouts", agent.Description)
		require.True(t, agent.SelfRegistered)
		again, err := enroll(t.Context(), "shouter", false)
		require.NoError(t, err)
		require.Equal(t, id, again)
		f.agent(t, "v5-known")
		require.NotContains(t, f.sendOne(t, "v5-known", "M1|W1>O1|J|T0|-|-|-|0|S0|-|desc=registered itself over TCP"), "|E10|")
		_, err = enroll(t.Context(), "known", false)
		require.ErrorContains(t, err, "it needs token=")
		_, err = v5.SelfRegistration(reg, false)(t.Context(), "shouter", false)
		require.ErrorContains(t, err, "token= is missing")
	})
	testOnDatabases(t, "with proof", func(t *testing.T, f *fixture) {
		reg := registry.New(f.db.Store, nil)
		enroll := v5.SelfRegistration(reg, false)
		id, err := enroll(t.Context(), "shouter", true)
		require.NoError(t, err)
		detail, err := reg.Get(t.Context(), id)
		require.NoError(t, err)
		require.False(t, detail.SelfRegistered)
		_, err = v5.SelfRegistration(reg, true)(t.Context(), "shouter", false)
		require.ErrorContains(t, err, "it needs token=")
		id, err = v5.SelfRegistration(reg, true)(t.Context(), "other", false)
		require.NoError(t, err)
		_, err = enroll(t.Context(), "other", true)
		require.NoError(t, err)
		detail, err = reg.Get(t.Context(), id)
		require.NoError(t, err)
		require.False(t, detail.SelfRegistered, "a program with proof takes the agent over")
	})
}
