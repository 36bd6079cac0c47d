package cache

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"comet/models"
)

// inboxes contains the inboxes of the agents: the assigned tasks that are messages, and the agents
// that may have other messages.
type inboxes struct {
	mu       sync.RWMutex
	assigned map[string]map[string]models.InboxMessage // by agent and task
	agents   map[string]string                         // by task, its agent in assigned
	stored   map[string]int                            // agents that may have other messages, with their newest change
	changes  int                                       // numbers the changes of stored
	writing  map[string]bool                           // agents whose messages the current commit changes
}

// Load replaces the inboxes and the number of queued tasks: assigned has all tasks that are messages,
// stored the agents with other messages.
func (c *Cache) Load(assigned []models.InboxMessage, stored []string, queued int64) {
	c.queued.Store(queued)
	x := &c.inboxes
	x.mu.Lock()
	defer x.mu.Unlock()
	x.assigned, x.agents, x.stored, x.writing = map[string]map[string]models.InboxMessage{}, map[string]string{}, map[string]int{}, nil
	for _, m := range assigned {
		x.assign(m)
	}
	x.store(stored)
}

// Assign records that a task is a message in the inbox of its agent, or none if it has no MessageID.
func (c *Cache) Assign(own *Change, t models.Task) {
	if own.assigned == nil {
		own.assigned = map[string]models.InboxMessage{}
	}
	own.assigned[t.ID] = models.InboxMessage{
		AgentID: t.AgentID, ID: t.MessageID, Kind: models.MessageAssign, Priority: t.Priority, TaskID: t.ID, Attempt: t.Attempt,
		CreatedAt: t.AssignedAt,
	}
}

// AddMessages records that agents get messages other than tasks.
func (c *Cache) AddMessages(own *Change, agentIDs ...string) {
	own.stored = append(own.stored, agentIDs...)
}

// begin marks the agents whose messages a commit changes: until publish they are read from the
// database, which may be newer.
func (x *inboxes) begin(changes []*Change) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.writing = map[string]bool{}
	for _, change := range changes {
		for taskID, m := range change.assigned {
			x.writing[m.AgentID], x.writing[x.agents[taskID]] = true, true
		}
		for _, agentID := range change.stored {
			x.writing[agentID] = true
		}
	}
}

func (x *inboxes) publish(changes []*Change) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.writing = nil
	for _, change := range changes {
		for _, m := range change.assigned {
			x.assign(m)
		}
		x.store(change.stored)
	}
}

// store records that agents got messages other than tasks. No number is used twice.
func (x *inboxes) store(agentIDs []string) {
	x.changes++
	for _, agentID := range agentIDs {
		x.stored[agentID] = x.changes
	}
}

// assign replaces the message of a task.
func (x *inboxes) assign(m models.InboxMessage) {
	if before, known := x.agents[m.TaskID]; known {
		delete(x.agents, m.TaskID)
		if delete(x.assigned[before], m.TaskID); len(x.assigned[before]) == 0 {
			delete(x.assigned, before)
		}
	}
	if m.ID == "" {
		return
	}
	if x.assigned[m.AgentID] == nil {
		x.assigned[m.AgentID] = map[string]models.InboxMessage{}
	}
	x.assigned[m.AgentID][m.TaskID], x.agents[m.TaskID] = m, m.AgentID
}

// Messages returns up to limit messages of an agent, those of higher priority first, then the
// oldest. ok is false if the agent may have other messages, or if a commit changes its messages;
// the caller then passes change to Listed.
func (c *Cache) Messages(agentID string, limit int) (list []models.InboxMessage, change int, ok bool) {
	if c.shared {
		return nil, 0, false
	}
	x := &c.inboxes
	x.mu.RLock()
	defer x.mu.RUnlock()
	if n := x.stored[agentID]; n != 0 || x.writing[agentID] {
		return nil, n, false
	}
	list = slices.SortedFunc(maps.Values(x.assigned[agentID]), func(a, b models.InboxMessage) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.ID, b.ID))
	})
	return list[:min(limit, len(list))], 0, true
}

// Listed receives the whole inbox of an agent as read from the database. If it contains only known
// tasks and no message was added since, the agent has no other messages. While a commit changes
// them it does nothing: the database may be newer than the cache.
func (c *Cache) Listed(agentID string, change int, list []models.InboxMessage) {
	if c.shared {
		return
	}
	x := &c.inboxes
	x.mu.Lock()
	defer x.mu.Unlock()
	other := func(m models.InboxMessage) bool { return x.assigned[agentID][m.TaskID].ID != m.ID }
	if !x.writing[agentID] && x.stored[agentID] == change && !slices.ContainsFunc(list, other) {
		delete(x.stored, agentID)
	}
}
