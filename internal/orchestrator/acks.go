package orchestrator

import (
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// ackDelay is how long acknowledgements may be in memory only. Few of them are ever written.
	ackDelay = 5 * time.Second
	// maxPendingAcks is the number of acknowledgements of an agent that may be in memory only.
	maxPendingAcks = 100
)

// acks are the acknowledgements that are not in the database yet. It is safe for concurrent use.
type acks struct {
	mu      sync.Mutex
	byAgent map[string][]string // ids of messages
	since   time.Time           // when byAgent got its first one, or was last due
}

// add adds acknowledgements of an agent and returns how many it has.
func (a *acks) add(agentID string, ids []string, now time.Time) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.byAgent) == 0 {
		a.since = now
	}
	a.byAgent[agentID] = append(a.byAgent[agentID], ids...)
	return len(a.byAgent[agentID])
}

// remove removes acknowledgements that the database has, or that it does not need any more.
func (a *acks) remove(agentID string, ids ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byAgent[agentID] = slices.DeleteFunc(a.byAgent[agentID], func(id string) bool { return slices.Contains(ids, id) }); len(a.byAgent[agentID]) == 0 {
		delete(a.byAgent, agentID)
	}
}

// of returns the messages that an agent has acknowledged.
func (a *acks) of(agentID string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.byAgent[agentID])
}

// due returns the agents whose acknowledgements are to be written, none before ackDelay is over.
func (a *acks) due(now time.Time) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.Sub(a.since) < ackDelay {
		return nil
	}
	a.since = now // of those that are added while these are written
	return slices.Sorted(maps.Keys(a.byAgent))
}
