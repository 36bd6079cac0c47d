// Package selection selects the agents that may take a task, best first. It holds an index of
// agents by capability and the checks and rankings by which one of them is chosen (PROTOCOL_V5 §5.1;
// Genesis §Message Routing uses another ranking).
//
// It works in memory only, without a database, clock or goroutine. The orchestrator fills the
// index from SQL, updates it from events and heartbeats, and queries it before every assignment.
// The result depends only on the index and the request, so replicas with the same agents decide
// the same.
//
// # Performance
//
// A Select reads only the agents that have one of the required capabilities. Selects do not block
// each other. Changes of load, state or breaker replace a snapshot of one agent and block
// nothing. Only a change of an agent's capabilities, type, sphere or activity, or of the set of
// agents, takes the lock of the index for a moment.
package selection

import "time"

// State is the state of an agent.
type State uint8

// The states; the zero value is Offline.
const (
	Offline State = iota
	Online
	Busy // connected, but accepts no tasks
)

// Agent is an agent in the index.
type Agent struct {
	ID string
	// Type is the type of the agent, "" for none.
	Type string
	// SphereID is 1-9, 0 for none.
	SphereID int
	// Capabilities are as registered. They match with or without the prefix custom:.
	Capabilities []string
	// MaxDepth is the depth from which on it accepts no hand-offs, 1 to 6; 0 for the limit of the
	// request.
	MaxDepth int
	// Active is false for an agent that was deactivated in the registry.
	Active bool
	State  State
	// Concurrency is how many assignments it takes at the same time; with 0 it takes none.
	Concurrency int
	InFlight    int
	// Load is the percentage that it reported, 0-100.
	Load           int
	LastAssignedAt time.Time // zero for never
	LastSeenAt     time.Time
	// BreakerUntil is when an open breaker becomes half-open; zero is a closed one. It stays set,
	// and rejects the agent, until a probe or a heartbeat closes the breaker. No task is used as
	// a probe.
	BreakerUntil time.Time
}

// BreakerClosed reports whether the agent's breaker is closed, that is neither open nor
// half-open.
func (a *Agent) BreakerClosed() bool { return a.BreakerUntil.IsZero() }

// Saturated reports whether the agent has no free slot.
func (a *Agent) Saturated() bool { return a.InFlight >= a.Concurrency }

// EffectiveLoad is the greater of the reported load and the share of slots in use, in whole
// percent, rounded down, 0-100.
func (a *Agent) EffectiveLoad() int {
	if a.Saturated() {
		return 100
	}
	return min(100, max(0, a.Load, 100*a.InFlight/a.Concurrency))
}
