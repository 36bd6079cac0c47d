package selection_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/orchestrator/selection"
	"comet/models"
)

// TestVerdict covers several agents that are rejected for different reasons.
func TestVerdict(t *testing.T) {
	t.Parallel()
	var (
		free     = onlineAgent("free", "plan")
		full     = with(onlineAgent("full", "plan"), func(a *selection.Agent) { a.Worker.InFlight = 4 })
		busy     = with(onlineAgent("busy", "plan"), func(a *selection.Agent) { a.Worker.State = models.WorkerBusy })
		failed   = onlineAgent("failed", "plan")
		failFull = with(onlineAgent("failed", "plan"), func(a *selection.Agent) { a.Worker.InFlight = 4 })
		failDown = with(onlineAgent("failed", "plan"), func(a *selection.Agent) { a.Worker.State = models.WorkerOffline })
		down     = with(onlineAgent("down", "plan"), func(a *selection.Agent) { a.Worker.State = models.WorkerOffline })
		broken   = with(onlineAgent("broken", "plan"), func(a *selection.Agent) { a.Worker.BreakerUntil = minute(1) })
		gone     = with(onlineAgent("gone", "plan"), func(a *selection.Agent) { a.Active = false })
		other    = onlineAgent("other", "reason")
	)
	for name, c := range map[string]struct {
		agents []selection.Agent
		want   selection.Verdict
	}{
		"one that is free is chosen, whatever the others are": {[]selection.Agent{down, full, failed, free}, selection.Chosen},
		"no agent has the capability":                         {[]selection.Agent{other}, selection.Unsupported},
		"no agents":                                           {nil, selection.Unsupported},
		"only a deactivated one has it":                       {[]selection.Agent{gone, other}, selection.Unsupported},
		"the only agent is offline":                           {[]selection.Agent{down, gone}, selection.Unavailable},
		"the only agent has an open breaker":                  {[]selection.Agent{broken}, selection.Unavailable},
		"all are offline or have open breakers":               {[]selection.Agent{down, broken}, selection.Unavailable},
		"one is full and the other offline":                   {[]selection.Agent{down, full}, selection.Saturated},
		"one is busy":                                         {[]selection.Agent{down, busy}, selection.Saturated},
		"one is full and the other excluded":                  {[]selection.Agent{failed, full}, selection.Saturated},
		"the only one is excluded":                            {[]selection.Agent{failed}, selection.Excluded},
		"the only online agent is excluded":                   {[]selection.Agent{failed, down, broken}, selection.Excluded},
		"the excluded agent is also full":                     {[]selection.Agent{failFull, down}, selection.Excluded},
		"the excluded agent is also offline":                  {[]selection.Agent{failDown, broken}, selection.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := indexOf(c.agents...).Select(selection.Request{Capabilities: []string{"plan"}, Exclude: []string{"failed"}})
			require.Equal(t, c.want, d.Verdict)
			require.Equal(t, c.want == selection.Chosen, len(d.Candidates) > 0)
		})
	}
}

// TestMismatchIsUnsupported checks that an offline agent with the capability makes the work
// unavailable only if it matches the rest of the request.
func TestMismatchIsUnsupported(t *testing.T) {
	t.Parallel()
	x := indexOf(with(onlineAgent("w1", "plan"), func(a *selection.Agent) { a.Type, a.SphereID, a.Worker.State = "infra", 3, models.WorkerOffline }))
	for name, c := range map[string]struct {
		request selection.Request
		want    selection.Verdict
	}{
		"a match":               {selection.Request{AgentType: "infra", SphereID: 3, AgentID: "w1"}, selection.Unavailable},
		"another type":          {selection.Request{AgentType: "code"}, selection.Unsupported},
		"another sphere":        {selection.Request{SphereID: 4}, selection.Unsupported},
		"another agent":         {selection.Request{AgentID: "w2"}, selection.Unsupported},
		"too many capabilities": {selection.Request{Capabilities: []string{"a", "b"}}, selection.Unsupported},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.request.Capabilities = append(c.request.Capabilities, "plan")
			require.Equal(t, c.want, x.Select(c.request).Verdict)
		})
	}
}
