package wakeups

import (
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// ackDelay is the maximum time for which acknowledgements are only in memory. Most tasks change earlier.
	ackDelay = 5 * time.Second
	// MaxPendingAcks is the maximum number of acknowledgements of an agent that are only in memory.
	MaxPendingAcks = 100
)

// Acks contains the acknowledgements that are not in the database yet. It is safe for concurrent use.
type Acks struct {
	mu      sync.Mutex
	byAgent map[string][]string // ids of messages
	since   time.Time           // when the first one was added to an empty byAgent, or all were last due
}

// NewAcks returns an empty list of acknowledgements.
func NewAcks() *Acks { return &Acks{byAgent: map[string][]string{}} }

// Add adds acknowledgements of an agent and returns the number of its pending ones.
func (a *Acks) Add(agentID string, ids []string, now time.Time) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.byAgent) == 0 {
		a.since = now
	}
	a.byAgent[agentID] = append(a.byAgent[agentID], ids...)
	return len(a.byAgent[agentID])
}

// Remove removes acknowledgements that are in the database, or that it does not need any more.
func (a *Acks) Remove(agentID string, ids ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byAgent[agentID] = slices.DeleteFunc(a.byAgent[agentID], func(id string) bool { return slices.Contains(ids, id) }); len(a.byAgent[agentID]) == 0 {
		delete(a.byAgent, agentID)
	}
}

// Of returns the ids of the messages of an agent whose acknowledgements are pending.
func (a *Acks) Of(agentID string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.byAgent[agentID])
}

// Due returns the agents whose acknowledgements must be written, none before ackDelay has passed.
func (a *Acks) Due(now time.Time) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.Sub(a.since) < ackDelay {
		return nil
	}
	a.since = now // for acknowledgements that are added while these are written
	return slices.Sorted(maps.Keys(a.byAgent))
}
