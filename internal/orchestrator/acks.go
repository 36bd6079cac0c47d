package orchestrator

import (
	"slices"
	"sync"
	"time"
)

const (
	// ackDelay is how long an acknowledgement may be in memory only. Most are never written: a
	// message goes when its agent accepts or ends the task.
	ackDelay = 5 * time.Second
	// maxPendingAcks is the number of acknowledgements of an agent that may be in memory only.
	maxPendingAcks = 100
	// ackBatch is how many agents' acknowledgements are written in one transaction.
	ackBatch = 100
)

// acks are the acknowledgements that are not in the database yet. It is safe for concurrent use.
type acks struct {
	mu      sync.Mutex
	byAgent map[string][]ack
}

type ack struct {
	messageID string
	at        time.Time
}

// add adds acknowledgements of an agent and returns how many it has.
func (a *acks) add(agentID string, ids []string, now time.Time) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byAgent == nil {
		a.byAgent = map[string][]ack{}
	}
	for _, id := range ids {
		a.byAgent[agentID] = append(a.byAgent[agentID], ack{id, now})
	}
	return len(a.byAgent[agentID])
}

// remove removes acknowledgements that the database has, or that it does not need any more.
func (a *acks) remove(agentID string, ids ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	left := slices.DeleteFunc(a.byAgent[agentID], func(k ack) bool { return slices.Contains(ids, k.messageID) })
	if len(left) > 0 {
		a.byAgent[agentID] = left
	} else {
		delete(a.byAgent, agentID)
	}
}

// of returns the messages that an agent has acknowledged.
func (a *acks) of(agentID string) (ids []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, k := range a.byAgent[agentID] {
		ids = append(ids, k.messageID)
	}
	return ids
}

// due returns the acknowledgements that are not newer than before, by agent.
func (a *acks) due(before time.Time) map[string][]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	due := map[string][]string{}
	for agentID, all := range a.byAgent {
		for _, k := range all {
			if !k.at.After(before) {
				due[agentID] = append(due[agentID], k.messageID)
			}
		}
	}
	return due
}
