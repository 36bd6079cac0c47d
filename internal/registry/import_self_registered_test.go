package registry_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/registry"
	"comet/models"
)

// TestImportKeepsSelfRegistered: a roster does not mention how an agent was registered.
func TestImportKeepsSelfRegistered(t *testing.T) {
	t.Parallel()
	onEveryDatabase(t, func(t *testing.T, f *fixture) {
		d := specialist("finance", "orch-personnel")
		d.SelfRegistered = true
		f.create(t, d)
		_, err := f.load(t, models.System(), "version: 1\nagents:\n  - {id: finance, name: Renamed, level: 2, sphere_id: 1, parent_id: orch-personnel}\n")
		require.NoError(t, err)
		require.Equal(t, "Renamed", f.agent(t, "finance").Name)
		require.True(t, f.agent(t, "finance").SelfRegistered)
	})
}

// TestSelfRegisteredIsClearedFromAbove: a token that is bound to an agent which registered itself may not
// clear the agent's self_registered; one that is bound to an agent above it may.
func TestSelfRegisteredIsClearedFromAbove(t *testing.T) {
	t.Parallel()
	onEveryDatabase(t, func(t *testing.T, f *fixture) {
		d := specialist("finance", "orch-personnel")
		d.SelfRegistered = true
		f.create(t, d)
		patch := registry.AgentPatch{SelfRegistered: models.Some(false)}
		by := writer()
		by.AgentID = new("finance")
		_, err := f.Update(t.Context(), by, "finance", patch, nil)
		require.Equal(t, errs.ForeignAgent, errs.CodeOf(err))
		require.ErrorContains(t, err, "self_registered")
		require.True(t, f.agent(t, "finance").SelfRegistered)
		_, err = f.Update(t.Context(), by, "finance", registry.AgentPatch{Name: models.Some("Renamed")}, nil)
		require.NoError(t, err)
		by.AgentID = new("orch-personnel")
		_, err = f.Update(t.Context(), by, "finance", patch, nil)
		require.NoError(t, err)
		require.False(t, f.agent(t, "finance").SelfRegistered)
	})
}
