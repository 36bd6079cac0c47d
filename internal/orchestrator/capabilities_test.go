package orchestrator_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/registry"
	"comet/models"
	"comet/store/storetest"
)

// withRegistry runs one case in a house whose orchestrator changes what agents offer.
func withRegistry(t *testing.T, name string, fn func(t *testing.T, h *harness)) {
	t.Helper()
	withDatabase(t, name, func(t *testing.T, db *storetest.DB) {
		fn(t, start(t, db, &orchestrator.Options{Registry: registry.New(db.Store, nil)}))
	})
}

// requireUnsupported proves that nobody offers work that needs a capability, and returns
// what is said to be there instead.
func (h *harness) requireUnsupported(t *testing.T, capability string) (supported any) {
	t.Helper()
	_, err := h.Submit(t.Context(), operator(), orchestrator.Submission{Capabilities: []string{capability}}, nil)
	require.Equal(t, errs.UnsupportedWork, errs.CodeOf(err))
	return errs.From(err).Meta["supported"]
}

// TestUpdateCapabilities (PROTOCOL_V5 §2.4).
func TestUpdateCapabilities(t *testing.T) {
	t.Parallel()

	withRegistry(t, "WorkFollowsWhatIsOfferedAtOnce", func(t *testing.T, h *harness) {
		h.worker(t, "a", 10, "custom:old", "custom:kept")
		has := h.submit(t, "custom:old", nil)
		h.requireUnsupported(t, "custom:new")
		_, err := h.UpdateCapabilities(t.Context(), operator(), "a", []string{"custom:new", "custom:kept"})
		require.NoError(t, err)
		require.Equal(t, "a", h.submit(t, "custom:new", nil).AgentID)
		require.Equal(t, "a", h.submit(t, "custom:kept", nil).AgentID)
		require.ElementsMatch(t, []string{"new", "kept"}, h.requireUnsupported(t, "custom:old"))
		done, err := h.Complete(t.Context(), "a", has.ID, orchestrator.Result{})
		require.NoError(t, err)
		require.Equal(t, models.TaskDone, done.State, "what it has goes on")
		requireSound(t, h)
	})

	withRegistry(t, "WorkGoesToAnotherWhoStillOffersIt", func(t *testing.T, h *harness) {
		h.worker(t, "a", 10, "custom:dig")
		h.worker(t, "b", 10, "custom:dig")
		_, err := h.UpdateCapabilities(t.Context(), operator(), "a", []string{"custom:fill"})
		require.NoError(t, err)
		for range 4 {
			require.Equal(t, "b", h.submit(t, "custom:dig", nil).AgentID)
		}
		require.Equal(t, "a", h.submit(t, "custom:fill", nil).AgentID)
	})

	withRegistry(t, "TheRegistryShowsItAndTellsOfIt", func(t *testing.T, h *harness) {
		h.worker(t, "a", 1, "custom:old")
		out, err := h.UpdateCapabilities(t.Context(), operator(), "a", []string{"custom:new", "novel"})
		require.NoError(t, err)
		require.Equal(t, []string{"custom:new", "novel"}, out.Detail.Capabilities)
		require.Len(t, out.Warnings, 1)
		require.Equal(t, "/capabilities/1", out.Warnings[0].Pointer)
		agent, err := h.db.Agent(t.Context(), "a")
		require.NoError(t, err)
		require.Equal(t, []string{"custom:new", "novel"}, agent.Capabilities)
		require.Equal(t, 2, int(agent.Version))
		told, err := h.db.NewestEvent(t.Context(), "a", models.EventAgentUpdated)
		require.NoError(t, err)
		var data models.AgentChanged
		require.NoError(t, json.Unmarshal(told.Data, &data))
		require.Equal(t, "ops", data.Actor)
		require.Len(t, data.Changes, 1)
		require.Equal(t, "capabilities", data.Changes[0].Field)
	})

	withRegistry(t, "OnlyAnAdminChangesAnAgentOfTheUpperLevels", func(t *testing.T, h *harness) {
		h.worker(t, "a", 1, "custom:old")
		writer := models.Principal{TokenID: "writer", Name: "writer", Scopes: []models.Scope{models.ScopeAgentsWrite}}
		_, err := h.UpdateCapabilities(t.Context(), writer, "orch-my-team", []string{"custom:new"})
		require.Equal(t, errs.MissingScope, errs.CodeOf(err))
		h.requireUnsupported(t, "custom:new")
		_, err = h.UpdateCapabilities(t.Context(), writer, "a", []string{"custom:new"})
		require.NoError(t, err)
		_, err = h.UpdateCapabilities(t.Context(), operator(), "orch-my-team", []string{"custom:lead"})
		require.NoError(t, err)
		agent, err := h.db.Agent(t.Context(), "orch-my-team")
		require.NoError(t, err)
		require.Equal(t, []string{"custom:lead"}, agent.Capabilities)
	})

	withRegistry(t, "WhatTheRegistryRefusesChangesNothing", func(t *testing.T, h *harness) {
		h.worker(t, "a", 1, "custom:old")
		before, err := h.db.Agent(t.Context(), "a")
		require.NoError(t, err)
		for name, c := range map[string]struct {
			agent string
			names []string
			code  errs.Code
		}{
			"an unknown agent": {"nobody", []string{"custom:new"}, errs.NotFound},
			"a name twice":     {"a", []string{"custom:new", "custom:new"}, errs.InvalidRequest},
			"a name too long":  {"a", []string{"custom:new", strings.Repeat("x", models.MaxCapabilityLength+1)}, errs.InvalidRequest},
		} {
			_, err := h.UpdateCapabilities(t.Context(), operator(), c.agent, c.names)
			require.Equal(t, c.code, errs.CodeOf(err), name)
		}
		after, err := h.db.Agent(t.Context(), "a")
		require.NoError(t, err)
		require.Equal(t, before, after)
		require.Equal(t, "a", h.submit(t, "custom:old", nil).AgentID)
		h.requireUnsupported(t, "custom:new")
	})

	withRegistry(t, "AnAgentMayOfferNothingAnyMore", func(t *testing.T, h *harness) {
		h.worker(t, "a", 1, "custom:old")
		out, err := h.UpdateCapabilities(t.Context(), operator(), "a", nil)
		require.NoError(t, err)
		require.Empty(t, out.Detail.Capabilities)
		h.requireUnsupported(t, "custom:old")
		task, err := h.Submit(t.Context(), operator(), orchestrator.Submission{AgentID: "a"}, nil)
		require.NoError(t, err)
		require.Equal(t, "a", task.Task.AgentID, "whoever means it may ask it all the same")
	})

	withHarness(t, "WithoutARegistryNobodyMay", func(t *testing.T, h *harness) {
		h.worker(t, "a", 1, "custom:old")
		_, err := h.UpdateCapabilities(t.Context(), operator(), "a", []string{"custom:new"})
		require.Equal(t, errs.Unavailable, errs.CodeOf(err))
		require.Equal(t, "a", h.submit(t, "custom:old", nil).AgentID)
	})
}
