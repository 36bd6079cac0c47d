package orchestrator

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"comet/internal/background"
	"comet/internal/errs"
	"comet/models"
)

// WakeKind is the subject of a wake-up.
type WakeKind string

// The kinds of wake-ups.
const (
	// WakeInbox: an agent has new messages.
	WakeInbox WakeKind = "inbox"
	// WakeTask: a task has changed.
	WakeTask WakeKind = "task"
	// WakeEnd: a task has ended. It stays in this process; other replicas derive it from WakeTask.
	WakeEnd WakeKind = "end"
	// WakeQueue: a worker may have a free slot, or a task was queued.
	WakeQueue WakeKind = "queue"
	// WakeWorker: a worker has changed.
	WakeWorker WakeKind = "worker"
	// WakeProgress: a task has progressed. The id is that of the requesting agent, "/" and that of the
	// task. It stays in this process.
	WakeProgress WakeKind = "progress"
	// wakeClosed: the end of a task has closed its session, because a request waits for that.
	// wakeAll does not send it, because it never leaves this process and so is never lost.
	wakeClosed WakeKind = "closed"
)

type wake struct {
	kind WakeKind
	id   string
}

// waiters wakes the waiting goroutines of this process. Each has a channel with a buffer of one
// wake-up: sending never blocks, and a wake-up that comes while the receiver is busy is not lost.
type waiters struct {
	mu       sync.Mutex
	channels map[wake]map[background.Signal]bool
	// progress has the tasks that have progressed, of each agent that waits for messages.
	progress map[string][]string
}

// takeProgress returns and forgets the tasks of an agent that have progressed.
func (h *waiters) takeProgress(agentID string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer delete(h.progress, agentID)
	return h.progress[agentID]
}

// subscribe returns a channel that receives after each wake-up, and a function that ends the
// subscription.
func (h *waiters) subscribe(kind WakeKind, id string) (<-chan struct{}, func()) {
	w, ch := wake{kind, id}, background.NewSignal()
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
			delete(h.progress, id)
		}
	}
}

// waits reports whether a goroutine waits for w.
func (h *waiters) waits(w wake) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.channels[w]) > 0
}

func (h *waiters) wake(w wake) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w.kind == WakeProgress {
		agentID, taskID, _ := strings.Cut(w.id, "/")
		w = wake{WakeInbox, agentID}
		if len(h.channels[w]) > 0 && !slices.Contains(h.progress[agentID], taskID) {
			h.progress[agentID] = append(h.progress[agentID], taskID)
		}
	}
	for ch := range h.channels[w] {
		ch.Set()
	}
}

// wakeAll wakes all goroutines, because wake-ups may have been lost.
func (h *waiters) wakeAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w, all := range h.channels {
		for ch := range all {
			if w.kind != wakeClosed {
				ch.Set()
			}
		}
	}
}

// timers stores the earliest deadline of the open tasks.
type timers struct {
	changed background.Signal // receives when next becomes earlier
	mu      sync.Mutex
	next    time.Time // the next time at which the timers run
}

// set schedules the timers for a deadline, unless they run earlier. It ignores the zero time.
func (t *timers) set(deadline time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !deadline.IsZero() && deadline.Before(t.next) {
		t.next = deadline
		t.changed.Set()
	}
}

func (t *timers) setNext(next time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next = next
}

// OnWake receives a wake-up of another replica.
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

// OnWakeAll is called when wake-ups of other replicas may have been lost.
func (o *Orchestrator) OnWakeAll() {
	o.workersChanged.Store(true)
	o.waiters.wakeAll()
}

// acquireWaiter counts a request that waits for a task and returns a function that removes it, or
// errs.Busy if too many wait: each costs a goroutine and some database reads. Requests without a
// token are not counted.
func (o *Orchestrator) acquireWaiter(tokenID string) (release func(), err error) {
	if tokenID == "" {
		return func() {}, nil
	}
	release, err = o.waitLimit.Acquire(tokenID)
	switch {
	case errors.Is(err, background.ErrFull):
		return nil, errs.New(errs.Busy, "%d requests are already waiting for tasks; try again later", o.opts.MaxWaiters)
	case err != nil:
		return nil, errs.New(errs.Busy, "the token already has %d requests that wait for tasks", o.opts.MaxWaitersPerToken)
	}
	return release, nil
}

// Wait returns a task once it has ended, or as it is when ctx ends or after timeout. If the
// token, or all tokens together, wait for too many tasks, it returns the task as it is with
// errs.Busy. A tokenID of "" is not limited.
func (o *Orchestrator) Wait(ctx context.Context, tokenID, id string, timeout time.Duration) (models.Task, error) {
	return o.waitFor(ctx, WakeEnd, tokenID, id, timeout, func(t models.Task) bool { return t.State.Ended() })
}

// WaitForChange is Wait for any change after a version.
func (o *Orchestrator) WaitForChange(ctx context.Context, tokenID, id string, version int64, timeout time.Duration) (models.Task, error) {
	return o.waitFor(ctx, WakeTask, tokenID, id, timeout, func(t models.Task) bool { return t.Version > version || t.State.Ended() })
}

func (o *Orchestrator) waitFor(ctx context.Context, kind WakeKind, tokenID, id string, timeout time.Duration, done func(models.Task) bool) (models.Task, error) {
	changed, stop := o.waiters.subscribe(kind, id)
	defer stop()
	expired := time.After(timeout)
	for counted := false; ; {
		t, err := o.ended(ctx, id)
		if err != nil || done(t) {
			return t, err
		}
		if !counted {
			release, err := o.acquireWaiter(tokenID)
			if err != nil {
				return t, err
			}
			defer release()
			counted = true
		}
		select {
		case <-changed:
		case <-time.After(pollsPerRecheck * o.opts.Poll): // wake-ups of other replicas may be lost
		case <-expired:
			return t, nil
		case <-ctx.Done():
			return t, nil
		}
	}
}

// ended is Task, except that it does not read a task that has ended in this process a moment ago. Such a task no
// longer changes, except for tokens that are reported later.
func (o *Orchestrator) ended(ctx context.Context, id string) (models.Task, error) {
	if t := o.store.Tasks(ctx).Committed(id); t != nil && t.State.Ended() && o.store.Now().Sub(*t.EndedAt) < time.Minute {
		return *t, nil
	}
	return o.Task(ctx, id)
}

// pollsPerRecheck is how many polls pass before a waiting goroutine reads its task without a
// wake-up. There may be thousands of them.
const pollsPerRecheck = 4
