package registry_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/registry"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

func idOf(prefix string, a, b int) string { return fmt.Sprintf("%s-%d-%d", prefix, a, b+1) }

// having lists the agents with a capability.
func (f *fixture) having(t *testing.T, capability string) []string {
	t.Helper()
	page, err := f.List(t.Context(), store.AgentQuery{Capabilities: []string{capability}, Limit: 1000})
	require.NoError(t, err)
	ids := []string{}
	for _, a := range page.Agents {
		ids = append(ids, a.ID)
	}
	return ids
}

func TestCapabilities(t *testing.T) {
	t.Parallel()

	t.Run("ANameOutsideTheSetWithoutItsPrefixIsAcceptedWithAWarning", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, f *fixture) {
			d := specialist("spec", "orch-social")
			d.Capabilities = []string{"email", "custom_task_1", "custom:own", "web_fetch", "Custom_2"}
			created, err := f.Create(t.Context(), writer(), d, nil)
			require.NoError(t, err)
			require.Len(t, created.Warnings, 2)
			require.Equal(t, "/capabilities/1", created.Warnings[0].Pointer)
			require.Equal(t, "/capabilities/4", created.Warnings[1].Pointer)
			require.Equal(t, d.Capabilities, f.agent(t, "spec").Capabilities, "they stay as written and in order")

			updated, err := f.Update(t.Context(), writer(), "spec", registry.AgentPatch{Capabilities: models.Some([]string{"odd"})}, nil)
			require.NoError(t, err)
			require.Len(t, updated.Warnings, 1)
			updated, err = f.Update(t.Context(), writer(), "spec", registry.AgentPatch{Name: models.Some("other")}, nil)
			require.NoError(t, err)
			require.Empty(t, updated.Warnings, "who does not speak of capabilities hears nothing of them")
		})
	})

	t.Run("a warning names the nearest predefined capability", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, f *fixture) {
			d := specialist("spec", "orch-social")
			d.Capabilities = []string{"web-search", "odd"}
			created, err := f.Create(t.Context(), writer(), d, nil)
			require.NoError(t, err)
			require.Equal(t, `"web-search" is not a predefined capability; did you mean web_search? Otherwise write "custom:web-search"`, created.Warnings[0].Detail)
			require.Equal(t, `"odd" is not a predefined capability; write "custom:odd"`, created.Warnings[1].Detail)
			updated, err := f.Update(t.Context(), writer(), "spec", registry.AgentPatch{Capabilities: models.Some([]string{"emial"})}, nil)
			require.NoError(t, err)
			require.Contains(t, updated.Warnings[0].Detail, "did you mean email?")
		})
	})

	t.Run("AStrictServerRefusesIt", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, db *storetest.DB) {
			f := setup(t, db, &registry.Options{StrictCapabilities: true})
			d := specialist("spec", "orch-social")
			d.Capabilities = []string{"email", "odd", "custom:own"}
			_, err := f.Create(t.Context(), writer(), d, nil)
			require.Equal(t, []string{"invalid-request", "custom_prefix@/capabilities/1"}, broken(err))
			d.Capabilities = []string{"email", "custom:odd"}
			f.create(t, d)
			err = f.patch(t, "spec", registry.AgentPatch{Capabilities: models.Some([]string{"odd"})})
			require.Equal(t, []string{"invalid-request", "custom_prefix@/capabilities/0"}, broken(err))
			_, err = f.load(t, writer(), `
version: 1
agents:
  - {id: other, name: Other, level: 2, sphere_id: 6, frequency_hz: 555, parent_id: orch-social, capabilities: [email, odd]}
`)
			require.Equal(t, []string{"invalid-request", "custom_prefix@/agents/0/capabilities/1"}, broken(err))
		})
	})

	t.Run("TheIndexFollowsTheListWithOrWithoutThePrefix", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, f *fixture) {
			d := specialist("spec", "orch-social")
			d.Capabilities = []string{"custom:own", "own", "email"}
			f.create(t, d)
			require.Equal(t, []string{"spec"}, f.having(t, "own"))
			require.Equal(t, []string{"spec"}, f.having(t, "custom:own"))

			require.NoError(t, f.patch(t, "spec", registry.AgentPatch{Capabilities: models.Some([]string{"custom:own", "chat"})}))
			require.Equal(t, []string{"spec"}, f.having(t, "own"), "one of the two spellings is left")
			require.Empty(t, f.having(t, "email"))
			require.Equal(t, []string{"spec"}, f.having(t, "custom:chat"))

			require.NoError(t, f.patch(t, "spec", registry.AgentPatch{Capabilities: models.Some([]string(nil))}))
			require.Empty(t, f.having(t, "own"))
			require.Empty(t, f.having(t, "chat"))
			require.Equal(t, []string{}, f.agent(t, "spec").Capabilities)
		})
	})
}
