package orchestrator_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/input"
	"comet/internal/orchestrator"
	"comet/internal/registry"
	"comet/models"
	"comet/store/storetest"
)

// withRegistry runs one case with an orchestrator that has a registry.
func withRegistry(t *testing.T, name string, fn func(t *testing.T, h *harness)) {
	t.Helper()
	withDatabase(t, name, func(t *testing.T, db *storetest.DB) {
		fn(t, start(t, db, &orchestrator.Options{Registry: registry.New(db.Store, nil)}))
	})
}

// requireUnsupported checks that no agent offers a capability, and returns the supported ones of
// the error.
func (h *harness) requireUnsupported(t *testing.T, capability string) (supported any) {
	t.Helper()
	_, err := h.Submit(t.Context(), operator(), orchestrator.Submission{Capabilities: []string{capability}}, nil)
	require.Equal(t, errs.UnsupportedWork, errs.CodeOf(err))
	return errs.From(err).Meta["supported"]
}

// TestUnsupportedCapability: the error of a submission names the nearest offered capability.
func TestUnsupportedCapability(t *testing.T) {
	t.Parallel()

	withRegistry(t, "suggests the nearest capability", func(t *testing.T, h *harness) {
		h.worker(t, "a", 10, "web_search", "custom:dig")
		for capability, want := range map[string]string{
			"web-search": "no agent offers web-search; did you mean web_search?", "custom:digg": "no agent offers custom:digg; did you mean dig?",
			"unlike": "no agent offers unlike",
		} {
			_, err := h.Submit(t.Context(), operator(), orchestrator.Submission{Capabilities: []string{capability}}, nil)
			require.Equal(t, want, errs.From(err).Detail)
		}
		_, err := h.Submit(t.Context(), operator(), orchestrator.Submission{AgentType: "infar"}, nil)
		require.Equal(t, `no agent of the type "infar" offers this work`, errs.From(err).Detail)
		_, err = h.Submit(t.Context(), operator(), orchestrator.Submission{AgentType: "infar", SphereID: 7, Capabilities: []string{"dig"}}, nil)
		require.Equal(t, `no agent of the type "infar" in sphere 7 offers dig`, errs.From(err).Detail)
	})
}

// TestUpdateAgent covers PROTOCOL_V5 §2.4.
func TestUpdateAgent(t *testing.T) {
	t.Parallel()

	withRegistry(t, "assigns work to new capabilities at once", func(t *testing.T, h *harness) {
		h.worker(t, "a", 10, "custom:old", "custom:same")
		has := h.submit(t, "custom:old", nil)
		h.requireUnsupported(t, "custom:new")
		_, err := h.UpdateAgent(t.Context(), operator(), "a", registry.AgentPatch{Capabilities: models.Some([]string{"custom:new", "custom:same"})})
		require.NoError(t, err)
		require.Equal(t, "a", h.submit(t, "custom:new", nil).AgentID)
		require.Equal(t, "a", h.submit(t, "custom:same", nil).AgentID)
		require.ElementsMatch(t, []string{"new", "same"}, h.requireUnsupported(t, "custom:old"))
		done, err := h.Complete(t.Context(), "a", has.ID, orchestrator.Result{})
		require.NoError(t, err)
		require.Equal(t, models.TaskDone, done.State, "its attempts continue")
		requireSound(t, h)
	})

	withRegistry(t, "assigns work to another agent", func(t *testing.T, h *harness) {
		h.worker(t, "a", 10, "custom:dig")
		h.worker(t, "b", 10, "custom:dig")
		_, err := h.UpdateAgent(t.Context(), operator(), "a", registry.AgentPatch{Capabilities: models.Some([]string{"custom:fill"})})
		require.NoError(t, err)
		for range 4 {
			require.Equal(t, "b", h.submit(t, "custom:dig", nil).AgentID)
		}
		require.Equal(t, "a", h.submit(t, "custom:fill", nil).AgentID)
	})

	withRegistry(t, "updates the registry and emits its event", func(t *testing.T, h *harness) {
		h.worker(t, "a", 1, "custom:old")
		out, err := h.UpdateAgent(t.Context(), operator(), "a", registry.AgentPatch{Capabilities: models.Some([]string{"custom:new", "novel"})})
		require.NoError(t, err)
		require.Equal(t, []string{"custom:new", "novel"}, out.Detail.Capabilities)
		require.Len(t, out.Warnings, 1)
		require.Equal(t, "/capabilities/1", out.Warnings[0].Pointer)
		agent, err := h.DB.Agents(t.Context()).Get("a")
		require.NoError(t, err)
		require.Equal(t, []string{"custom:new", "novel"}, agent.Capabilities)
		require.Equal(t, 2, int(agent.Version))
		event, err := h.DB.Events(t.Context()).Newest("a", events.AgentUpdated)
		require.NoError(t, err)
		var data registry.AgentChanged
		require.NoError(t, json.Unmarshal(event.Data, &data))
		require.Equal(t, "ops", data.Actor)
		require.Len(t, data.Changes, 1)
		require.Equal(t, "capabilities", data.Changes[0].Field)
	})

	withRegistry(t, "needs an admin for upper levels", func(t *testing.T, h *harness) {
		h.worker(t, "a", 1, "custom:old")
		writer := models.Principal{TokenID: "writer", Name: "writer", Scopes: []models.Scope{models.ScopeAgentsWrite}}
		_, err := h.UpdateAgent(t.Context(), writer, "orch-my-team", registry.AgentPatch{Capabilities: models.Some([]string{"custom:new"})})
		require.Equal(t, errs.MissingScope, errs.CodeOf(err))
		h.requireUnsupported(t, "custom:new")
		_, err = h.UpdateAgent(t.Context(), writer, "a", registry.AgentPatch{Capabilities: models.Some([]string{"custom:new"})})
		require.NoError(t, err)
		_, err = h.UpdateAgent(t.Context(), operator(), "orch-my-team", registry.AgentPatch{Capabilities: models.Some([]string{"custom:lead"})})
		require.NoError(t, err)
		agent, err := h.DB.Agents(t.Context()).Get("orch-my-team")
		require.NoError(t, err)
		require.Equal(t, []string{"custom:lead"}, agent.Capabilities)
	})

	withRegistry(t, "keeps the old ones when the registry rejects the new ones", func(t *testing.T, h *harness) {
		h.worker(t, "a", 1, "custom:old")
		before, err := h.DB.Agents(t.Context()).Get("a")
		require.NoError(t, err)
		for name, c := range map[string]struct {
			agent string
			names []string
			code  errs.Code
		}{
			"an unknown agent": {"unknown", []string{"custom:new"}, errs.NotFound},
			"a name twice":     {"a", []string{"custom:new", "custom:new"}, errs.InvalidRequest},
			"a name too long":  {"a", []string{"custom:new", strings.Repeat("x", input.MaxCapability+1)}, errs.InvalidRequest},
		} {
			_, err := h.UpdateAgent(t.Context(), operator(), c.agent, registry.AgentPatch{Capabilities: models.Some(c.names)})
			require.Equal(t, c.code, errs.CodeOf(err), name)
		}
		after, err := h.DB.Agents(t.Context()).Get("a")
		require.NoError(t, err)
		require.Equal(t, before, after)
		require.Equal(t, "a", h.submit(t, "custom:old", nil).AgentID)
		h.requireUnsupported(t, "custom:new")
	})

	withRegistry(t, "accepts no capabilities", func(t *testing.T, h *harness) {
		h.worker(t, "a", 1, "custom:old")
		out, err := h.UpdateAgent(t.Context(), operator(), "a", registry.AgentPatch{Capabilities: models.Some[[]string](nil)})
		require.NoError(t, err)
		require.Empty(t, out.Detail.Capabilities)
		h.requireUnsupported(t, "custom:old")
		task, err := h.Submit(t.Context(), operator(), orchestrator.Submission{AgentID: "a"}, nil)
		require.NoError(t, err)
		require.Equal(t, "a", task.Task.AgentID, "it can still be requested by id")
	})

	withHarness(t, "needs a registry", func(t *testing.T, h *harness) {
		h.worker(t, "a", 1, "custom:old")
		_, err := orchestrator.New(h.DB.Store, h.Ledger, nil).UpdateAgent(t.Context(), operator(), "a", registry.AgentPatch{Capabilities: models.Some([]string{"custom:new"})})
		require.Equal(t, errs.Unavailable, errs.CodeOf(err))
		require.Equal(t, "a", h.submit(t, "custom:old", nil).AgentID)
	})
}
