package selection_test

import (
	stdjson "encoding/json"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"comet/internal/orchestrator/selection"
)

// TestDecisionJSON checks the stored form with both JSON packages. Tasks that were stored long ago must
// remain readable, so each form must stay accepted.
func TestDecisionJSON(t *testing.T) {
	t.Parallel()
	x := indexOf(
		with(onlineAgent("w1", "plan"), func(a *selection.Agent) { a.Worker.Load, a.Worker.LastAssignedAt = 20, minute(21) }),
		onlineAgent("w2", "plan", "reason"),
		with(onlineAgent("w3", "plan"), func(a *selection.Agent) { a.Worker.InFlight, a.Worker.LastAssignedAt = 4, minute(1) }),
	)
	for want, d := range map[string]selection.Decision{
		`{"verdict":"chosen","considered":3,"eligible":2,` +
			`"candidates":[["w2",1,0,0],["w1",0.5,20,1768796460000000]],"rejected":[["w3",0.5,100,1768795260000000,"saturated"]]}`: x.Select(selection.Request{Capabilities: []string{"plan", "reason"}}),
		`{"verdict":"unsupported","considered":0,"eligible":0,"candidates":[],"rejected":[]}`: x.Select(selection.Request{Capabilities: []string{"translate"}}),
	} {
		v1, err := stdjson.Marshal(d)
		require.NoError(t, err)
		require.Equal(t, want, string(v1))
		v2, err := json.Marshal(d)
		require.NoError(t, err)
		require.Equal(t, want, string(v2))
		var back selection.Decision
		require.NoError(t, json.Unmarshal(v2, &back))
		require.Equal(t, d, back)
	}
}

func TestDecisionOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	var d selection.Decision
	require.NoError(t, json.Unmarshal([]byte(`{"verdict":"chosen","considered":3,"eligible":2,`+
		`"candidates":[{"agent_id":"w2","score":1,"load":0},{"agent_id":"w1","score":0.5,"load":20,"last_used":"2026-01-19T04:21:00Z"}],`+
		`"rejected":[{"agent_id":"w3","score":0.5,"load":100,"last_used":"2026-01-19T04:01:00Z","reason":"saturated"}]}`), &d))
	require.Equal(t, selection.Decision{
		Verdict: selection.Chosen, Considered: 3, Eligible: 2,
		Candidates: []selection.Ranked{{AgentID: "w2", Score: 1}, {AgentID: "w1", Score: 0.5, Load: 20, LastAssignedAt: minute(21)}},
		Rejected:   []selection.Ranked{{AgentID: "w3", Score: 0.5, Load: 100, LastAssignedAt: minute(1), Reason: selection.ReasonSaturated}},
	}, d)
}

func TestDecisionConstants(t *testing.T) {
	t.Parallel()
	require.Equal(t, []selection.Verdict{"chosen", "saturated", "excluded", "unavailable", "unsupported"},
		[]selection.Verdict{selection.Chosen, selection.Saturated, selection.Excluded, selection.Unavailable, selection.Unsupported})
	require.Equal(t,
		[]selection.Reason{
			"inactive", "wrong_type", "wrong_sphere", "not_wanted", "below_threshold", "offline", "breaker_open", "excluded", "busy", "saturated",
		},
		[]selection.Reason{
			selection.ReasonInactive, selection.ReasonWrongType, selection.ReasonWrongSphere, selection.ReasonNotRequested, selection.ReasonBelowThreshold,
			selection.ReasonOffline, selection.ReasonBreakerOpen, selection.ReasonExcluded, selection.ReasonBusy, selection.ReasonSaturated,
		})
}
