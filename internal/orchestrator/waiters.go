package orchestrator

import (
	"context"
	"sync"
	"time"

	"comet/internal/errs"
	"comet/internal/places"
	"comet/models"
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

// acquireWaiter returns what gives the place of a request that waits for a task back, or
// errs.Busy where there is none: each of them costs a goroutine and a look at the database
// now and then. A who of "" needs none.
func (o *Orchestrator) acquireWaiter(who string) (release func(), err error) {
	if who == "" {
		return func() {}, nil
	}
	release, room := o.waitLimit.Take(who)
	switch room {
	case places.Full:
		return nil, errs.New(errs.Busy, "%d requests wait for tasks already", o.opts.MaxWaiters)
	case places.FullForOne:
		return nil, errs.New(errs.Busy, "the token has %d requests that wait for tasks already", o.opts.MaxWaitersPerToken)
	}
	return release, nil
}

// Wait returns the task once it has ended, or as it is when ctx ends or patience has
// passed. Who waits is the token; where it, or all of them together, wait for as much
// as they may, the task comes back as it is, with errs.Busy. A who of "" is somebody whose
// number is bounded elsewhere.
func (o *Orchestrator) Wait(ctx context.Context, who, id string, patience time.Duration) (models.Task, error) {
	return o.waitFor(ctx, WakeEnd, who, id, patience, func(t models.Task) bool { return t.State.Ended() })
}

// WaitForChange is Wait for any change after a version.
func (o *Orchestrator) WaitForChange(ctx context.Context, who, id string, version int64, patience time.Duration) (models.Task, error) {
	return o.waitFor(ctx, WakeTask, who, id, patience, func(t models.Task) bool { return t.Version > version || t.State.Ended() })
}

func (o *Orchestrator) waitFor(ctx context.Context, kind WakeKind, who, id string, patience time.Duration, enough func(models.Task) bool) (models.Task, error) {
	changed, stop := o.waiters.subscribe(kind, id)
	defer stop()
	over := time.NewTimer(patience)
	defer over.Stop()
	for placed := false; ; {
		t, err := o.Task(ctx, id)
		if err != nil || enough(t) {
			return t, err
		}
		if !placed {
			release, err := o.acquireWaiter(who)
			if err != nil {
				return t, err
			}
			defer release()
			placed = true
		}
		look := time.NewTimer(pollsPerRecheck * o.opts.Poll) // what another replica does may not be heard
		select {
		case <-changed:
		case <-look.C:
		case <-over.C:
			look.Stop()
			return t, nil
		case <-ctx.Done():
			look.Stop()
			return t, nil
		}
		look.Stop()
	}
}

// pollsPerRecheck is how many polls pass before somebody who waits looks without being woken:
// there may be thousands.
const pollsPerRecheck = 4
