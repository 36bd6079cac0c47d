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
	// WakeLine is a worker that may have a place free, or a task that waits.
	WakeLine WakeKind = "line"
	// WakeWorker is a worker that has changed.
	WakeWorker WakeKind = "worker"
)

type wake struct {
	kind WakeKind
	id   string
}

// hub wakes those who wait in this process. What it hands out is a channel with room
// for one wake-up, so that nobody who wakes ever waits and none that comes while its
// receiver is at work is lost.
type hub struct {
	mu      sync.Mutex
	waiting map[wake]map[chan struct{}]bool
	filled  bool // the index of agents is
}

func newHub() *hub { return &hub{waiting: map[wake]map[chan struct{}]bool{}} }

// listen returns a channel that receives after each wake-up, and what ends it.
func (h *hub) listen(kind WakeKind, id string) (<-chan struct{}, func()) {
	w, ch := wake{kind, id}, make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waiting[w] == nil {
		h.waiting[w] = map[chan struct{}]bool{}
	}
	h.waiting[w][ch] = true
	return ch, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if delete(h.waiting[w], ch); len(h.waiting[w]) == 0 {
			delete(h.waiting, w)
		}
	}
}

func (h *hub) wake(w wake) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for ch := range h.waiting[w] {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// wakeAll wakes everybody, for when wake-ups may have been lost.
func (h *hub) wakeAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, all := range h.waiting {
		for ch := range all {
			select {
			case ch <- struct{}{}:
			default:
			}
		}
	}
}

func (h *hub) fill() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.filled = true
}

func (h *hub) isFilled() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.filled
}

func (h *hub) ready() error {
	if !h.isFilled() {
		return errs.New(errs.Unavailable, "the agents are not read yet")
	}
	return nil
}

// OnWake takes a wake-up of another replica.
func (o *Orchestrator) OnWake(kind WakeKind, id string) {
	o.hub.wake(wake{kind, id})
	switch kind {
	case WakeLine, WakeWorker:
		o.behind.Store(true)
		o.hub.wake(wake{WakeLine, ""})
	case WakeTask:
		o.hub.wake(wake{WakeEnd, id})
	}
}

// OnWakeAll is for when wake-ups of other replicas may have been lost.
func (o *Orchestrator) OnWakeAll() {
	o.behind.Store(true)
	o.hub.wakeAll()
}

// Inbox returns a channel that receives when there may be something new to tell an
// agent, and what ends it.
func (o *Orchestrator) Inbox(agentID string) (<-chan struct{}, func()) {
	return o.hub.listen(WakeInbox, agentID)
}
