// Package selection says who may take a piece of work, best first: the index of
// agents by capability, and the rules by which one of them is chosen
// (PROTOCOL_V5 §5.1; Genesis §Message Routing asks the same index with another
// ranking).
//
// It is memory alone: no database, no clock, no goroutine. The orchestrator fills
// the index from SQL, keeps it so with what events and heartbeats tell, and asks it
// before every dispatch. The answer is a function of the index and the request, so
// replicas that know the same agents decide the same.
//
// # What is fast
//
// A Select looks at the holders of the required capabilities and at nobody else,
// whatever the number of registered agents. Selects do not wait for each other, nor
// for changes of load, state or breaker, which put a new snapshot of one agent in
// its place; only a change of an agent's capabilities or type, of whether it is
// active, or of the roster itself takes the index for a moment.
package selection

import "time"

// State is what an agent, or its line, says of itself.
type State uint8

// The states; the zero value is Offline.
const (
	Offline State = iota
	Online
	Busy // up, but says itself that it takes nothing
)

// Agent is what selection knows of an agent that can take work.
type Agent struct {
	ID string
	// Type is the agent's type, by which some dialects address it; "" where it has none.
	Type string
	// SphereID is 1-9, 0 where it has none.
	SphereID int
	// Capabilities are as registered: a name matches with or without its custom:
	// prefix.
	Capabilities []string
	// MaxDepth is the depth from which on it takes nothing that was handed off, 1 to 6;
	// 0 where it did not say, which is the request's.
	MaxDepth int
	// Active is whether the registry has not deactivated it.
	Active bool
	State  State
	// Concurrency is how many assignments that have not ended it takes at a time; with
	// none it takes nothing.
	Concurrency int
	InFlight    int
	// Load is the percentage it reported itself, 0-100.
	Load           int
	LastAssignedAt time.Time // the last assignment; zero for never
	LastSeenAt     time.Time
	// BreakerUntil is when an open breaker becomes half-open; zero is a closed one.
	// It stays set, and keeps the agent out, until a probe or a heartbeat has closed
	// the breaker: no real task is the probe.
	BreakerUntil time.Time
}

// BreakerClosed reports whether the agent's breaker lets work through: it is neither
// open nor half-open.
func (a *Agent) BreakerClosed() bool { return a.BreakerUntil.IsZero() }

// Saturated reports whether the agent has as many assignments as it takes.
func (a *Agent) Saturated() bool { return a.InFlight >= a.Concurrency }

// EffectiveLoad is the greater of what the agent reported and of how full its window
// is, in whole percent, rounded down, 0-100.
func (a *Agent) EffectiveLoad() int {
	if a.Saturated() {
		return 100
	}
	return min(100, max(0, a.Load, 100*a.InFlight/a.Concurrency))
}
