// Package wakeups contains what the orchestrator keeps in memory about its waiting goroutines, and about
// acknowledgements that are not in the database yet.
package wakeups

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"comet/internal/background"
)

// Kind is the subject of a wake-up.
type Kind string

// The kinds of wake-ups.
const (
	// Inbox: an agent has new messages.
	Inbox Kind = "inbox"
	// Progress: a task that an agent requested has progressed.
	Progress Kind = "progress"
	// Task: a task has changed.
	Task Kind = "task"
	// End: a task has ended. It stays in this process; other replicas derive it from Task.
	End Kind = "end"
	// Queue: a worker may have a free slot, or a task was queued.
	Queue Kind = "queue"
	// Worker: a worker has changed.
	Worker Kind = "worker"
	// Closed: the end of a task has closed its session, because a request waits for that.
	// WakeAll does not send it, because it never leaves this process and so is never lost.
	Closed Kind = "closed"
)

// Wake is a wake-up. ID is the id of the agent, task or worker, "" for the queues; for Progress, it is
// the ids of the agent and the task, separated by a slash.
type Wake struct {
	Kind Kind
	ID   string
}

// Waiters wakes the waiting goroutines of this process. Each has a channel with a buffer of one
// wake-up: sending never blocks, and a wake-up that comes while the receiver is busy is not lost.
type Waiters struct {
	mu       sync.Mutex
	channels map[Wake]map[background.Signal]bool
	// progress has the tasks that have progressed, of each agent that waits for messages.
	progress map[string][]string
}

// NewWaiters returns waiters without goroutines.
func NewWaiters() *Waiters {
	return &Waiters{channels: map[Wake]map[background.Signal]bool{}, progress: map[string][]string{}}
}

// maxProgress is the maximum number of tasks whose progress waits for an agent that reads slowly.
const maxProgress = 1000

// addProgress records that a task that an agent requested has progressed, and wakes the goroutines that
// wait for messages of the agent. It does nothing if there are none. The caller must hold h.mu.
func (h *Waiters) addProgress(id string) {
	slash := strings.LastIndexByte(id, '/')
	agentID, taskID := id[:max(slash, 0)], id[slash+1:]
	inbox, all := h.channels[Wake{Inbox, agentID}], h.progress[agentID]
	if len(inbox) > 0 && len(all) < maxProgress && !slices.Contains(all, taskID) {
		h.progress[agentID] = append(all, taskID)
	}
	for ch := range inbox {
		ch.Set()
	}
}

// TakeProgress returns and forgets the tasks of an agent that have progressed.
func (h *Waiters) TakeProgress(agentID string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer delete(h.progress, agentID)
	return h.progress[agentID]
}

// Subscribe returns a channel that receives after each wake-up, and a function that ends the
// subscription.
func (h *Waiters) Subscribe(kind Kind, id string) (<-chan struct{}, func()) {
	w, ch := Wake{kind, id}, background.NewSignal()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.channels[w] == nil {
		h.channels[w] = map[background.Signal]bool{}
	}
	h.channels[w][ch] = true
	return ch, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if delete(h.channels[w], ch); len(h.channels[w]) == 0 {
			delete(h.channels, w)
			if kind == Inbox {
				delete(h.progress, id)
			}
		}
	}
}

// Waits reports whether a goroutine waits for w.
func (h *Waiters) Waits(w Wake) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.channels[w]) > 0
}

// Wake wakes the goroutines that wait for w.
func (h *Waiters) Wake(w Wake) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w.Kind == Progress {
		h.addProgress(w.ID)
	}
	for ch := range h.channels[w] {
		ch.Set()
	}
}

// WakeAll wakes all goroutines, because wake-ups may have been lost.
func (h *Waiters) WakeAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w, all := range h.channels {
		for ch := range all {
			if w.Kind != Closed {
				ch.Set()
			}
		}
	}
}

// Timers stores the earliest deadline of the open tasks.
type Timers struct {
	Changed background.Signal // receives when next becomes earlier
	mu      sync.Mutex
	next    time.Time // the next time at which the timers run
}

// Set schedules the timers for a deadline, unless they run earlier. It ignores the zero time.
func (t *Timers) Set(deadline time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !deadline.IsZero() && deadline.Before(t.next) {
		t.next = deadline
		t.Changed.Set()
	}
}

// SetNext sets the next time at which the timers run.
func (t *Timers) SetNext(next time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next = next
}

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
