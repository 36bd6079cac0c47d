package selection_test

import (
	"time"

	"comet/internal/orchestrator/selection"
)

// onlineAgent is an agent that is free to take work.
func onlineAgent(id string, capabilities ...string) selection.Agent {
	return selection.Agent{ID: id, Capabilities: capabilities, Active: true, State: selection.Online, Concurrency: 4}
}

// with changes an agent before it is put in.
func with(a selection.Agent, change func(*selection.Agent)) selection.Agent {
	change(&a)
	return a
}

func indexOf(agents ...selection.Agent) *selection.Index {
	x := selection.New()
	x.Replace(agents)
	return x
}

// minute is a moment of the day on which the tests play.
func minute(n int) time.Time {
	return time.Date(2026, 1, 19, 4, 0, 0, 0, time.UTC).Add(time.Duration(n) * time.Minute)
}

func ids(candidates []selection.Ranked) (out []string) {
	for _, c := range candidates {
		out = append(out, c.AgentID)
	}
	return out
}

// reasons is why who is out, in the order of the decision.
func reasons(d selection.Decision) (out []string) {
	for _, r := range d.Rejected {
		out = append(out, r.AgentID+": "+string(r.Reason))
	}
	return out
}
