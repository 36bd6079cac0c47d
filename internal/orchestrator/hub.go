package orchestrator

import (
	"sync"

	"comet/internal/errs"
)

// WakeKind is what a wake-up is about.
type WakeKind string

// The kinds of wake-ups.
const (
	// WakeInbox is an agent that has something to be told.
	WakeInbox WakeKind = "inbox"
	// WakeTask is a task that has changed.
	WakeTask WakeKind = "task"
	// WakeEnd is a task that has ended. It stays in this process: to others each WakeTask
	// may be one.
	WakeEnd WakeKind = "end"
	// WakeQueue is a worker that may have a place free, or a task that waits.
	WakeQueue WakeKind = "line"
	// WakeWorker is a worker that has changed.
	WakeWorker WakeKind = "worker"
)

type wake struct {
	kind WakeKind
	id   string
}

// waiters wakes those who wait in this process. What it hands out is a channel with room
// for one wake-up, so that nobody who wakes ever waits and none that comes while its
// receiver is at work is lost.
type waiters struct {
	mu       sync.Mutex
	channels map[wake]map[chan struct{}]bool
	filled   bool // the index of agents is
}

func newWaiters() *waiters { return &waiters{channels: map[wake]map[chan struct{}]bool{}} }

// subscribe returns a channel that receives after each wake-up, and what ends it.
func (h *waiters) subscribe(kind WakeKind, id string) (<-chan struct{}, func()) {
	w, ch := wake{kind, id}, make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.channels[w] == nil {
		h.channels[w] = map[chan struct{}]bool{}
	}
	h.channels[w][ch] = true
	return ch, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if delete(h.channels[w], ch); len(h.channels[w]) == 0 {
			delete(h.channels, w)
		}
	}
}

func (h *waiters) wake(w wake) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for ch := range h.channels[w] {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// wakeAll wakes everybody, for when wake-ups may have been lost.
func (h *waiters) wakeAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, all := range h.channels {
		for ch := range all {
			select {
			case ch <- struct{}{}:
			default:
			}
		}
	}
}

func (h *waiters) fill() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.filled = true
}

func (h *waiters) isFilled() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.filled
}

func (h *waiters) ready() error {
	if !h.isFilled() {
		return errs.New(errs.Unavailable, "the agents are not read yet")
	}
	return nil
}

// OnWake takes a wake-up of another replica.
func (o *Orchestrator) OnWake(kind WakeKind, id string) {
	o.waiters.wake(wake{kind, id})
	switch kind {
	case WakeQueue, WakeWorker:
		o.workersChanged.Store(true)
		o.waiters.wake(wake{WakeQueue, ""})
	case WakeTask:
		o.waiters.wake(wake{WakeEnd, id})
	}
}

// OnWakeAll is for when wake-ups of other replicas may have been lost.
func (o *Orchestrator) OnWakeAll() {
	o.workersChanged.Store(true)
	o.waiters.wakeAll()
}

// Inbox returns a channel that receives when there may be something new to tell an
// agent, and what ends it.
func (o *Orchestrator) Inbox(agentID string) (<-chan struct{}, func()) {
	return o.waiters.subscribe(WakeInbox, agentID)
}
