package selection_test

import (
	"fmt"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"comet/internal/orchestrator/selection"
	"comet/models"
)

// loaded returns an online agent with a load in percent.
func loaded(id string, load int, capabilities ...string) selection.Agent {
	return with(onlineAgent(id, capabilities...), func(a *selection.Agent) { a.Worker.Load = load })
}

// weighted selects for an intent as Genesis §Routing Algorithm does.
func weighted(x *selection.Index, capabilities ...string) selection.Decision {
	return x.Select(selection.Request{Capabilities: capabilities, Weighted: true})
}

// TestRouting covers Genesis §Routing Algorithm: agents with the intent, only those that are available,
// 0.5 similarity + 0.3 availability + 0.2 free load, three selected and two alternatives.
func TestRouting(t *testing.T) {
	t.Parallel()
	x := indexOf(
		loaded("idle-folded", 0, "Analyze-Data"), // 0.95, as busy-exact, but less similar
		loaded("busy-exact", 25, "custom:analyze_data"),
		loaded("half", 50, "analyze_data"),
		loaded("idle", 0, "analyze_data"),
		loaded("full", 99, "analyze_data"),
		loaded("folded", 90, "analyze-data"),
		loaded("other", 0, "analyze_date"),
		with(loaded("offline", 0, "analyze_data"), func(a *selection.Agent) { a.Worker.State = models.WorkerOffline }),
		with(loaded("taken", 0, "analyze_data"), func(a *selection.Agent) { a.Worker.InFlight = 4 }),
	)
	d := weighted(x, "analyze_data")
	want := &selection.Routing{
		Selected:     []selection.Routed{{"idle", 1, 1}, {"busy-exact", 0.95, 1}, {"idle-folded", 0.95, 0.9}},
		Alternatives: []selection.Routed{{"half", 0.9, 1}, {"full", 0.802, 1}},
		Reason:       "Best match for intent", Confidence: 1, Similarity: 1,
	}
	require.Equal(t, want, d.Routing())
	require.Equal(t, []string{"taken: saturated", "offline: offline"}, reasons(d), "another name is not considered")
	require.InDelta(t, 0.7, d.Rejected[1].Weight(), 1e-9, "without availability")
	require.Equal(t, d, weighted(x, "custom:analyze_data"))

	text, err := json.Marshal(d)
	require.NoError(t, err)
	var stored selection.Decision
	require.NoError(t, json.Unmarshal(text, &stored))
	require.Equal(t, want, stored.Routing(), "it is kept in the stored form")

	folded := weighted(x, "ANALYZE-DATA")
	require.Equal(t, selection.Routed{AgentID: "idle", Score: 0.95, Similarity: 0.9}, folded.Routing().Selected[0])
	exact := x.Select(selection.Request{Capabilities: []string{"analyze_data"}})
	require.Nil(t, exact.Routing())
	require.Equal(t, 4, exact.Eligible, "other requests match the exact name")
}

// TestRoutingOfFewAgents covers decisions with fewer than five agents, and requests without capabilities.
func TestRoutingOfFewAgents(t *testing.T) {
	t.Parallel()
	x := indexOf(with(loaded("one", 20, "plan-trip", "plan_trip"), func(a *selection.Agent) { a.Type = "code" }))
	d := weighted(x, "plan_trip")
	require.Equal(t, &selection.Routing{
		Selected: []selection.Routed{{"one", 0.96, 1}}, Alternatives: []selection.Routed{}, Reason: "Best match for intent", Confidence: 0.96, Similarity: 1,
	}, d.Routing())
	require.Equal(t, 1, d.Considered, "an agent with several forms of a name is found once")
	none := weighted(x, "fly")
	require.Equal(t, selection.Unsupported, none.Verdict)
	require.Zero(t, none.Routing().Confidence)
	require.Empty(t, none.Routing().Selected)
	for _, r := range []selection.Request{{AgentID: "one"}, {AgentType: "code"}, {AgentID: "one", Capabilities: []string{"PLAN_TRIP"}}} {
		r.Weighted = true
		require.Equal(t, []string{"one"}, ids(x.Select(r).Candidates))
	}
	two := weighted(x, "Plan_Trip", "fly")
	require.InDelta(t, 0.45, two.Rejected[0].Score, 1e-9)
	require.Equal(t, selection.ReasonBelowThreshold, two.Rejected[0].Reason)
	require.InDelta(t, 0.95, weighted(x, "Plan_Trip", "plan-trip").Candidates[0].Score, 1e-9)
}

// TestFoldedNamesFollowChanges checks that changed capabilities are found under their new names only.
func TestFoldedNamesFollowChanges(t *testing.T) {
	t.Parallel()
	x := selection.New()
	for i := range 100 {
		put(x, loaded(fmt.Sprintf("w%d", i%7), i, fmt.Sprintf("Do-%d", i%3), "do_1", fmt.Sprintf("dO_%d", i%5)))
		require.NoError(t, selection.Verify(x))
	}
	put(x, loaded("w0", 0, "rest"))
	require.NotContains(t, ids(weighted(x, "do_1").Candidates), "w0")
	require.NotContains(t, x.CapabilitiesOf(""), "do_2", "a folded name is not offered")
	require.NoError(t, selection.Verify(x))
}
