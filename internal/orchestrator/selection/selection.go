// Package selection selects the agents that may take a task, best first. It holds an index of
// agents by capability and the checks and rankings by which one of them is chosen (PROTOCOL_V5 §5.1,
// Genesis §Routing Algorithm).
//
// It works in memory only, without a database, clock or goroutine. The orchestrator fills the
// index from SQL, updates it from events and heartbeats, and queries it before every assignment.
// The result depends only on the index and the request, so replicas with the same agents decide
// the same.
//
// A Select reads only the agents that have one of the required capabilities, so its time does not
// depend on the number of agents. It ranks them without the lock of the index.
package selection

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"comet/models"
)

// Agent is an agent in the index.
type Agent struct {
	ID string
	// Type is the type of the agent, "" for none.
	Type string
	// SphereID is 1-9, 0 for none.
	SphereID int
	// Active is false for an agent that was deactivated in the registry.
	Active bool
	// SelfRegistered is true for an agent that registered itself without proof of its identity. It
	// gets no task whose requirements another agent meets, online or not.
	SelfRegistered bool
	// Worker is its state as a worker, the zero value for an agent that never joined. An open
	// breaker rejects the agent until a probe or a heartbeat closes it: no task is used as a probe.
	Worker models.Worker
	// Claims is the number of attempts in Worker.InFlight that the worker's row does not count.
	Claims int
	// Capabilities are as registered. They match with or without the prefix custom:.
	Capabilities []string
	// Version is the version of the registered agent, 0 for one that is not registered.
	Version int64
}

// saturated reports whether the agent has no free slot.
func (a *Agent) saturated() bool { return a.Worker.InFlight >= a.Worker.Concurrency }

// load is the greater of the reported load and the share of slots in use, in whole percent,
// rounded down, 0-100.
func (a *Agent) load() int {
	if a.saturated() {
		return 100
	}
	return min(100, max(0, a.Worker.Load, 100*a.Worker.InFlight/a.Worker.Concurrency))
}

// DefaultThreshold is the minimum share of the required capabilities (PROTOCOL_V5 §5.1).
const DefaultThreshold = 0.5

// Request describes the requirements of a task. Without capabilities it must name an agent or a
// type; otherwise nothing matches.
type Request struct {
	// Capabilities are required. A name matches with or without the prefix custom:, and counts once.
	Capabilities []string
	// AgentType is the required type, "" for any.
	AgentType string
	// SphereID is the required sphere, 0 for any.
	SphereID int
	// Depth is the number of hand-offs above the task. MaxDepth is the limit for agents without
	// one of their own, 0 for any depth.
	Depth, MaxDepth int
	// AgentID is the id of the required agent, "" for any.
	AgentID string
	// Exclude lists agents that failed the task before, or whose budget did not cover it.
	Exclude []string
	// Threshold is the minimum score of a candidate; 0 is DefaultThreshold. A small value accepts
	// any match.
	Threshold float64
	// Rank orders the candidates; nil is ByScore.
	Rank Ranking
	// Weighted finds capabilities also by names that differ only in case or "-" and "_", and orders
	// the candidates with ByWeight.
	Weighted bool
}

// tooDeep reports whether the depth of the task reaches the limit of an agent, or MaxDepth if that
// is 0 (PROTOCOL_V5 §4.3, §5.4).
func (r *Request) tooDeep(limit int) bool {
	if limit == 0 {
		limit = r.MaxDepth
	}
	return limit != 0 && r.Depth > 0 && r.Depth >= limit
}

// check returns the number of checks that the agent passes before the first that fails; reasons
// lists them.
func (r *Request) check(a *Agent, score float64) (passed int) {
	w := &a.Worker
	failed := [...]bool{
		!a.Active,
		r.AgentType != "" && a.Type != r.AgentType,
		r.SphereID != 0 && a.SphereID != r.SphereID,
		r.AgentID != "" && a.ID != r.AgentID,
		score < r.Threshold,
		r.tooDeep(w.MaxDepth),
		false, // ReasonSelfRegistered depends on the other agents; see decide
		w.State != models.WorkerOnline && w.State != models.WorkerBusy,
		!w.BreakerUntil.IsZero(),
		slices.Contains(r.Exclude, a.ID),
		w.State == models.WorkerBusy,
		a.saturated(),
		true,
	}
	return slices.Index(failed[:], true)
}

// reasons returns the reasons in the order of the checks, "" for an agent that passes all.
// Exclusion is checked before saturation, because waiting for an excluded agent is useless, and
// after availability, because lifting the exclusion does not bring an agent online.
func reasons() [13]Reason {
	return [...]Reason{
		ReasonInactive, ReasonWrongType, ReasonWrongSphere, ReasonNotRequested, ReasonBelowThreshold, ReasonTooDeep, ReasonSelfRegistered,
		ReasonOffline, ReasonBreakerOpen, ReasonExcluded, ReasonBusy, ReasonSaturated, "",
	}
}

// Requirements returns a text such as “no agent in sphere 2 offers dig”; offers is “offers” or “that offers”.
func Requirements(in models.TaskInput, offers string) string {
	text := "no agent"
	if in.AgentType != "" {
		text += fmt.Sprintf(" of the type %q", in.AgentType)
	}
	if in.Sphere != 0 {
		text += fmt.Sprintf(" in sphere %d", in.Sphere)
	}
	if in.RequestedAgentID != "" {
		text += fmt.Sprintf(" with the id %q", in.RequestedAgentID)
	}
	return text + " " + offers + " " + cmp.Or(strings.Join(in.Capabilities, ", "), "this work")
}
