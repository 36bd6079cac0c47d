package selection_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/orchestrator/selection"
	"comet/models"
)

func candidateIDs(x *selection.Index, capabilities ...string) []string {
	return ids(x.Select(selection.Request{Capabilities: capabilities}).Candidates)
}

func TestPutAddsOrReplaces(t *testing.T) {
	t.Parallel()
	x := selection.New()
	put(x, onlineAgent("w1", "plan", "reason"))
	put(x, onlineAgent("w2", "plan"))
	require.Equal(t, []string{"w1", "w2"}, candidateIDs(x, "plan"))

	put(x, with(onlineAgent("w1", "reason", "summarize"), func(a *selection.Agent) { a.Worker.Load = 9 }))
	require.Equal(t, []string{"w2"}, candidateIDs(x, "plan"))
	require.Equal(t, []string{"w1"}, candidateIDs(x, "reason"))
	require.Equal(t, []string{"w1"}, candidateIDs(x, "summarize"))
	got, ok := x.Agent("w1")
	require.True(t, ok)
	require.Equal(t, with(onlineAgent("w1", "reason", "summarize"), func(a *selection.Agent) { a.Worker.Load = 9 }), got)
}

// TestUpdateChangesEveryField changes one field after the other, with Put and with Update, and
// makes a request that depends on the field.
func TestUpdateChangesEveryField(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change  func(*selection.Agent)
		request selection.Request
		before  selection.Verdict
		after   selection.Verdict
	}{
		"capabilities": {func(a *selection.Agent) { a.Capabilities = []string{"reason"} }, selection.Request{Capabilities: []string{"reason"}}, selection.Unsupported, selection.Chosen},
		"type":         {func(a *selection.Agent) { a.Type = "code" }, selection.Request{AgentType: "code"}, selection.Unsupported, selection.Chosen},
		"no type":      {func(a *selection.Agent) { a.Type = "" }, selection.Request{AgentType: "infra"}, selection.Chosen, selection.Unsupported},
		"sphere":       {func(a *selection.Agent) { a.SphereID = 9 }, selection.Request{Capabilities: []string{"plan"}, SphereID: 9}, selection.Unsupported, selection.Chosen},
		"active":       {func(a *selection.Agent) { a.Active = false }, selection.Request{AgentID: "w1"}, selection.Chosen, selection.Unsupported},
		"state":        {func(a *selection.Agent) { a.Worker.State = models.WorkerOffline }, selection.Request{AgentID: "w1"}, selection.Chosen, selection.Unavailable},
		"window":       {func(a *selection.Agent) { a.Worker.Concurrency = 0 }, selection.Request{AgentID: "w1"}, selection.Chosen, selection.Saturated},
		"in flight":    {func(a *selection.Agent) { a.Worker.InFlight = 4 }, selection.Request{AgentID: "w1"}, selection.Chosen, selection.Saturated},
		"breaker":      {func(a *selection.Agent) { a.Worker.BreakerUntil = minute(1) }, selection.Request{AgentID: "w1"}, selection.Chosen, selection.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			was := with(onlineAgent("w1", "plan"), func(a *selection.Agent) { a.Type, a.SphereID = "infra", 1 })
			for way, change := range map[string]func(x *selection.Index){
				"Put":    func(x *selection.Index) { put(x, with(was, c.change)) },
				"Update": func(x *selection.Index) { require.True(t, update(x, "w1", c.change)) },
			} {
				x := indexOf(was)
				require.Equal(t, c.before, x.Select(c.request).Verdict, way)
				change(x)
				require.Equal(t, c.after, x.Select(c.request).Verdict, way)
				put(x, was)
				require.Equal(t, c.before, x.Select(c.request).Verdict, way)
			}
		})
	}
}

func TestUpdateIgnoresUnknownAgent(t *testing.T) {
	t.Parallel()
	x := indexOf(onlineAgent("w1", "plan"))
	require.False(t, update(x, "w2", func(*selection.Agent) { t.Error("called") }))
	_, ok := x.Agent("w2")
	require.False(t, ok)
}

func TestUpdateKeepsID(t *testing.T) {
	t.Parallel()
	x := indexOf(onlineAgent("w1", "plan"))
	require.True(t, update(x, "w1", func(a *selection.Agent) { a.ID, a.Worker.Load = "w2", 5 }))
	_, ok := x.Agent("w2")
	require.False(t, ok)
	require.Equal(t, []string{"w1"}, candidateIDs(x, "plan"))
}

// TestIndexCopiesItsInput changes the input and the output of the index, which must have no
// effect.
func TestIndexCopiesItsInput(t *testing.T) {
	t.Parallel()
	added, first, updated := []string{"plan"}, []string{"plan"}, []string{"plan"}
	x := indexOf(onlineAgent("w1", first...), onlineAgent("w3"))
	put(x, onlineAgent("w2", added...))
	require.True(t, update(x, "w3", func(a *selection.Agent) { a.Capabilities = updated }))
	got, _ := x.Agent("w1")
	added[0], first[0], updated[0], got.Capabilities[0] = "reason", "reason", "reason", "reason"
	for _, id := range []string{"w1", "w2", "w3"} {
		a, _ := x.Agent(id)
		require.Equal(t, []string{"plan"}, a.Capabilities)
		require.True(t, update(x, id, func(a *selection.Agent) { a.Active = false }))
	}
	require.Empty(t, x.CapabilitiesOf(""))

	d := indexOf(onlineAgent("w1", "plan"), with(onlineAgent("w2", "plan"), func(a *selection.Agent) { a.Active = false })).Select(selection.Request{Capabilities: []string{"plan"}})
	indexOf(onlineAgent("w8", "plan")).Select(selection.Request{Capabilities: []string{"plan"}})
	require.Equal(t, []string{"w1"}, ids(d.Candidates), "the caller owns the decision")
	require.Equal(t, []string{"w2: inactive"}, reasons(d))
}

func TestCapabilitiesOfActiveAgents(t *testing.T) {
	t.Parallel()
	x := indexOf(
		with(onlineAgent("w1", "custom:run_playbook"), func(a *selection.Agent) { a.Type, a.Worker.State = "infra", models.WorkerOffline }),
		with(onlineAgent("w2", "run_playbook", "plan"), func(a *selection.Agent) { a.Type, a.Worker.BreakerUntil = "code", minute(1) }),
		with(onlineAgent("w3", "reason", "run_playbook", "custom:reason"), func(a *selection.Agent) { a.Active = false }),
		onlineAgent("w4", "summarize"),
	)
	require.Equal(t, []string{"run_playbook"}, x.CapabilitiesOf("infra"), "in canonical form")
	require.Equal(t, []string{"plan", "run_playbook"}, x.CapabilitiesOf("code"))
	require.Equal(t, []string{"plan", "run_playbook", "summarize"}, x.CapabilitiesOf(""), "of all agents that are not deactivated")
	require.NotNil(t, x.CapabilitiesOf("desktop"))
	require.Empty(t, x.CapabilitiesOf("desktop"))

	require.True(t, update(x, "w3", func(a *selection.Agent) { a.Active = true }))
	require.Contains(t, x.CapabilitiesOf(""), "reason")
	require.True(t, update(x, "w1", func(a *selection.Agent) { a.Active = false }))
	require.Contains(t, x.CapabilitiesOf(""), "run_playbook", "other agents still have it")
	require.Empty(t, x.CapabilitiesOf("infra"))
	require.True(t, update(x, "w4", func(a *selection.Agent) { a.Active = false }))
	require.NotContains(t, x.CapabilitiesOf(""), "summarize")
}
