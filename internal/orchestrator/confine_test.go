package orchestrator_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/models"
)

// TestBoundTokensNameAgentsOfTheirSubtree submits tasks with a token that is bound to the agent "a".
func TestBoundTokensNameAgentsOfTheirSubtree(t *testing.T) {
	t.Parallel()
	withHarness(t, "as the agent and as the fallback", func(t *testing.T, h *harness) {
		h.worker(t, "a", 2, "work")
		h.worker(t, "b", 2, "work")
		by := models.Principal{TokenID: "t", Name: "bound", Scopes: []models.Scope{models.ScopeMessagesSend}, AgentID: new("a")}
		for name, sub := range map[string]orchestrator.Submission{
			"agent":    {AgentID: "b"},
			"fallback": {Capabilities: []string{"work"}, Override: orchestrator.Override{Fallback: "b"}},
		} {
			_, err := h.Submit(t.Context(), by, sub, nil)
			require.True(t, errs.Is(err, errs.ForeignAgent), "%s: %v", name, err)
		}
		require.Empty(t, h.query(t, "SELECT id FROM tasks"))
		for _, sub := range []orchestrator.Submission{
			{AgentID: "a"}, {Capabilities: []string{"work"}}, {Capabilities: []string{"work"}, Override: orchestrator.Override{Fallback: "a"}},
		} {
			_, err := h.Submit(t.Context(), by, sub, nil)
			require.NoError(t, err)
		}
	})
}
