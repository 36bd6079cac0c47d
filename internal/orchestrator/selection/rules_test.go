package selection_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/orchestrator/selection"
	"comet/models"
)

// baseRequest is a request that the agent w1 of type infra in sphere 3 matches.
func baseRequest() selection.Request {
	return selection.Request{Capabilities: []string{"web_search", "summarize"}, AgentType: "infra", SphereID: 3, AgentID: "w1", Exclude: []string{"w9"}}
}

func matchingAgent() selection.Agent {
	return with(onlineAgent("w1", "web_search", "summarize"), func(a *selection.Agent) { a.Type, a.SphereID = "infra", 3 })
}

// TestFirstFailedCheckIsTheReason fails the checks one after the other, from the last to the
// first: the reason is always the newest one.
func TestFirstFailedCheckIsTheReason(t *testing.T) {
	t.Parallel()
	a, r := matchingAgent(), baseRequest()
	x := indexOf(a)
	d := x.Select(r)
	require.Equal(t, selection.Chosen, d.Verdict)
	require.Equal(t, []string{"w1"}, ids(d.Candidates))
	require.Empty(t, d.Rejected)

	for _, c := range []struct {
		reason  selection.Reason
		verdict selection.Verdict
		breakIt func()
	}{
		{selection.ReasonSaturated, selection.Saturated, func() { a.Worker.InFlight = a.Worker.Concurrency }},
		{selection.ReasonBusy, selection.Saturated, func() { a.Worker.State = models.WorkerBusy }},
		{selection.ReasonExcluded, selection.Excluded, func() { r.Exclude = append(r.Exclude, "w1") }},
		{selection.ReasonBreakerOpen, selection.Unavailable, func() { a.Worker.BreakerUntil = minute(1) }},
		{selection.ReasonOffline, selection.Unavailable, func() { a.Worker.State = models.WorkerOffline }},
		{selection.ReasonBelowThreshold, selection.Unsupported, func() { a.Capabilities = []string{"summarize"}; r.Threshold = 0.51 }},
		{selection.ReasonNotRequested, selection.Unsupported, func() { r.AgentID = "w2" }},
		{selection.ReasonWrongSphere, selection.Unsupported, func() { a.SphereID = 4 }},
		{selection.ReasonWrongType, selection.Unsupported, func() { a.Type = "code" }},
		{selection.ReasonInactive, selection.Unsupported, func() { a.Active = false }},
	} {
		c.breakIt()
		put(x, a)
		d := x.Select(r)
		require.Equal(t, c.verdict, d.Verdict, c.reason)
		require.Equal(t, []string{"w1: " + string(c.reason)}, reasons(d))
		require.Empty(t, d.Candidates)
		require.Equal(t, 1, d.Considered)
		require.Zero(t, d.Eligible)
	}
}

func TestEachReasonRejectsAlone(t *testing.T) {
	t.Parallel()
	for reason, c := range map[selection.Reason]struct {
		agent   func(*selection.Agent)
		request func(*selection.Request)
	}{
		selection.ReasonInactive:       {agent: func(a *selection.Agent) { a.Active = false }},
		selection.ReasonWrongType:      {request: func(r *selection.Request) { r.AgentType = "code" }},
		selection.ReasonWrongSphere:    {request: func(r *selection.Request) { r.SphereID = 1 }},
		selection.ReasonNotRequested:   {request: func(r *selection.Request) { r.AgentID = "w2" }},
		selection.ReasonBelowThreshold: {request: func(r *selection.Request) { r.Capabilities = append(r.Capabilities, "a", "b", "c") }},
		selection.ReasonOffline:        {agent: func(a *selection.Agent) { a.Worker.State = models.WorkerOffline }},
		selection.ReasonBreakerOpen:    {agent: func(a *selection.Agent) { a.Worker.BreakerUntil = minute(-60) }},
		selection.ReasonExcluded:       {request: func(r *selection.Request) { r.Exclude = []string{"w0", "w1"} }},
		selection.ReasonBusy:           {agent: func(a *selection.Agent) { a.Worker.State = models.WorkerBusy }},
		selection.ReasonSaturated:      {agent: func(a *selection.Agent) { a.Worker.InFlight = 5 }},
	} {
		t.Run(string(reason), func(t *testing.T) {
			t.Parallel()
			a, r := matchingAgent(), baseRequest()
			if c.agent != nil {
				c.agent(&a)
			}
			if c.request != nil {
				c.request(&r)
			}
			require.Equal(t, []string{"w1: " + string(reason)}, reasons(indexOf(a).Select(r)))
		})
	}
}

// TestSelfRegisteredAgent: an agent that registered itself gets no task whose requirements another agent
// meets, whatever the state of that agent, unless the task names the self-registered agent.
func TestSelfRegisteredAgent(t *testing.T) {
	t.Parallel()
	itself := with(onlineAgent("w1", "plan"), func(a *selection.Agent) { a.SelfRegistered = true })
	plan := selection.Request{Capabilities: []string{"plan"}}
	require.Equal(t, []string{"w1"}, ids(indexOf(itself).Select(plan).Candidates), "no other agent meets the requirements")
	for name, c := range map[string]struct {
		change  func(*selection.Agent)
		verdict selection.Verdict
	}{
		"online":    {func(*selection.Agent) {}, selection.Chosen},
		"offline":   {func(a *selection.Agent) { a.Worker = models.Worker{} }, selection.Unavailable},
		"saturated": {func(a *selection.Agent) { a.Worker.InFlight = 4 }, selection.Saturated},
		"partly":    {func(a *selection.Agent) { a.Capabilities = []string{"plan", "reason"} }, selection.Chosen},
	} {
		d := indexOf(itself, with(onlineAgent("w2", "plan"), c.change)).Select(plan)
		require.Equal(t, c.verdict, d.Verdict, name)
		require.Contains(t, reasons(d), "w1: self_registered", name)
	}
	d := indexOf(itself, with(onlineAgent("w2", "plan"), func(a *selection.Agent) { a.Active = false })).Select(plan)
	require.Equal(t, []string{"w1"}, ids(d.Candidates), "an inactive agent is not considered")
	plan.AgentID = "w1"
	require.Equal(t, []string{"w1"}, ids(indexOf(itself, onlineAgent("w2", "plan")).Select(plan).Candidates), "the task names it")
	plan.AgentID, plan.Exclude = "", []string{"w2"}
	require.Equal(t, selection.Excluded, indexOf(itself, onlineAgent("w2", "plan")).Select(plan).Verdict, "also when the other one has failed")
}

func TestAgentWithoutTypeDoesNotMatchAType(t *testing.T) {
	t.Parallel()
	x := indexOf(onlineAgent("w1", "plan"))
	require.Equal(t, []string{"w1: wrong_type"}, reasons(x.Select(selection.Request{Capabilities: []string{"plan"}, AgentType: "infra"})), "no agent has the type")
	put(x, with(onlineAgent("w2", "plan"), func(a *selection.Agent) { a.Type = "infra" }))
	d := x.Select(selection.Request{Capabilities: []string{"plan"}, AgentType: "infra"})
	require.Equal(t, []string{"w2"}, ids(d.Candidates))
	require.Equal(t, []string{"w1: wrong_type"}, reasons(d), "another agent has it")
}

func TestNoConcurrencyTakesNothing(t *testing.T) {
	t.Parallel()
	x := indexOf(with(onlineAgent("w1", "plan"), func(a *selection.Agent) { a.Worker.Concurrency = 0 }))
	require.Equal(t, []string{"w1: saturated"}, reasons(x.Select(selection.Request{Capabilities: []string{"plan"}})))
}

func TestThreshold(t *testing.T) {
	t.Parallel()
	x := indexOf(onlineAgent("w1", "c0", "c1", "c2", "c3", "c4", "c5", "c6"))
	required := func(n int) (names []string) {
		for i := range n {
			names = append(names, fmt.Sprintf("c%d", i))
		}
		return names
	}
	for name, c := range map[string]struct {
		required  int
		threshold float64
		score     float64
		reached   bool
	}{
		"exactly 0.5 is enough by default":    {14, 0, 0.5, true},
		"a little less is not":                {15, 0, 7.0 / 15, false},
		"exactly the threshold is enough":     {10, 0.7, 0.7, true},
		"thirds are as exact":                 {21, 1.0 / 3, 1.0 / 3, true},
		"the next larger number is not":       {10, 0.70000000000000007, 0.7, false},
		"everything":                          {7, 1, 1, true},
		"nothing reaches a threshold above 1": {7, 1.01, 1, false},
		"a small one accepts any match":       {700, 0.001, 0.01, true},
		"a negative one is the default":       {15, -1, 7.0 / 15, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := x.Select(selection.Request{Capabilities: required(c.required), Threshold: c.threshold})
			require.Equal(t, c.reached, d.Verdict == selection.Chosen)
			if c.reached {
				require.InDelta(t, c.score, d.Candidates[0].Score, 0)
			} else {
				require.InDelta(t, c.score, d.Rejected[0].Score, 0)
				require.Equal(t, selection.ReasonBelowThreshold, d.Rejected[0].Reason)
			}
		})
	}
}

func TestCapabilityPrefixIsOptional(t *testing.T) {
	t.Parallel()
	x := indexOf(onlineAgent("bare", "run_playbook"), onlineAgent("custom", "custom:run_playbook"), onlineAgent("both", "run_playbook", "custom:run_playbook"))
	for _, required := range [][]string{{"run_playbook"}, {"custom:run_playbook"}, {"run_playbook", "custom:run_playbook"}} {
		d := x.Select(selection.Request{Capabilities: required})
		require.Equal(t, []string{"bare", "both", "custom"}, ids(d.Candidates), required)
		require.Equal(t, 3, d.Considered, required)
		require.InDelta(t, 1.0, d.Candidates[0].Score, 0, required)
	}
	require.Equal(t, selection.Unsupported, x.Select(selection.Request{Capabilities: []string{"Run_Playbook"}}).Verdict, "names are case-sensitive")
}

func TestRepeatedCapabilityCountsOnce(t *testing.T) {
	t.Parallel()
	d := indexOf(onlineAgent("w1", "plan")).Select(selection.Request{Capabilities: []string{"plan", "plan", "custom:plan", "reason"}})
	require.InDelta(t, 0.5, d.Candidates[0].Score, 0)
	require.Equal(t, 1, d.Considered)
}

func TestRequestWithoutCapabilities(t *testing.T) {
	t.Parallel()
	x := indexOf(
		with(onlineAgent("w1", "plan"), func(a *selection.Agent) { a.Type = "infra" }),
		with(onlineAgent("w2"), func(a *selection.Agent) { a.Type = "infra" }),
		with(onlineAgent("w3"), func(a *selection.Agent) { a.Type = "code" }),
	)
	for name, c := range map[string]struct {
		request    selection.Request
		candidates []string
		rejected   []string
		considered int
	}{
		"an agent":                        {selection.Request{AgentID: "w3"}, []string{"w3"}, nil, 1},
		"a type":                          {selection.Request{AgentType: "infra"}, []string{"w1", "w2"}, nil, 2},
		"an agent of a type":              {selection.Request{AgentID: "w2", AgentType: "infra"}, []string{"w2"}, nil, 1},
		"an agent of another type":        {selection.Request{AgentID: "w3", AgentType: "infra"}, nil, []string{"w3: wrong_type"}, 1},
		"an unknown agent":                {selection.Request{AgentID: "w4"}, nil, nil, 0},
		"an unknown type":                 {selection.Request{AgentType: "desktop"}, nil, nil, 0},
		"no requirement matches no agent": {selection.Request{SphereID: 1}, nil, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := x.Select(c.request)
			require.Equal(t, c.candidates, ids(d.Candidates))
			require.Equal(t, c.rejected, reasons(d))
			require.Equal(t, c.considered, d.Considered)
			if c.candidates == nil {
				require.Equal(t, selection.Unsupported, d.Verdict)
			} else {
				require.InDelta(t, 1.0, d.Candidates[0].Score, 0)
			}
		})
	}
}
