package registry_test

import (
	"testing"

	"github.com/stretchr/testify/require"

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
