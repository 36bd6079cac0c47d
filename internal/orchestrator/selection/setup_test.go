package selection_test

import (
	"cmp"
	"time"

	"comet/internal/orchestrator/selection"
	"comet/models"
)

// onlineAgent returns an agent with free slots.
func onlineAgent(id string, capabilities ...string) selection.Agent {
	return selection.Agent{ID: id, Capabilities: capabilities, Active: true, Worker: models.Worker{AgentID: id, State: models.WorkerOnline, Concurrency: 4}}
}

// with returns a changed agent.
func with(a selection.Agent, change func(*selection.Agent)) selection.Agent {
	change(&a)
	return a
}

func indexOf(agents ...selection.Agent) *selection.Index {
	x := selection.New()
	for _, a := range agents {
		put(x, a)
	}
	return x
}

// put adds or replaces an agent.
func put(x *selection.Index, a selection.Agent) {
	x.Change(a.ID, func(now *selection.Agent) bool { *now = a; return true })
}

// update changes an agent and reports whether it is known.
func update(x *selection.Index, id string, fn func(*selection.Agent)) bool {
	_, known := x.Agent(id)
	x.Change(id, func(a *selection.Agent) bool {
		if known {
			fn(a)
		}
		return known
	})
	return known
}

// minute returns a minute of the day of the tests.
func minute(n int) time.Time {
	return time.Date(2026, 1, 19, 4, 0, 0, 0, time.UTC).Add(time.Duration(n) * time.Minute)
}

func ids(candidates []selection.Ranked) (out []string) {
	for _, c := range candidates {
		out = append(out, c.AgentID)
	}
	return out
}

// reasons returns the reasons of rejected agents, in the order of the decision.
func reasons(d selection.Decision) (out []string) {
	for _, r := range d.Rejected {
		out = append(out, r.AgentID+": "+string(r.Reason))
	}
	return out
}

// byLoad is a ranking of another protocol: the lowest load first.
func byLoad(a, b *selection.Ranked) int {
	return cmp.Or(cmp.Compare(a.Load, b.Load), selection.ByScore(a, b))
}
