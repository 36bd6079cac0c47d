package orchestrator

import (
	"context"
	"errors"
	"time"

	"comet/internal/background"
	"comet/internal/errs"
	"comet/internal/orchestrator/wakeups"
	"comet/models"
)

// WakeKind is the subject of a wake-up.
type WakeKind = wakeups.Kind

// The kinds of wake-ups between replicas.
const (
	WakeInbox    = wakeups.Inbox
	WakeProgress = wakeups.Progress
	WakeTask     = wakeups.Task
	WakeQueue    = wakeups.Queue
	WakeWorker   = wakeups.Worker
)

// OnWake receives a wake-up of another replica.
func (o *Orchestrator) OnWake(kind WakeKind, id string) {
	o.waiters.Wake(wakeups.Wake{Kind: kind, ID: id})
	switch kind {
	case WakeQueue, WakeWorker:
		o.workersChanged.Store(true)
		o.waiters.Wake(wakeups.Wake{Kind: WakeQueue})
	case WakeTask:
		o.waiters.Wake(wakeups.Wake{Kind: wakeups.End, ID: id})
	}
}

// OnWakeAll is called when wake-ups of other replicas may have been lost.
func (o *Orchestrator) OnWakeAll() {
	o.workersChanged.Store(true)
	o.waiters.WakeAll()
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
	return o.waitFor(ctx, wakeups.End, tokenID, id, timeout, func(t models.Task) bool { return t.State.Ended() })
}

// WaitUntil waits like Wait, but until done reports true. done is called at the start, after changes and after receipts and questions of subtasks.
func (o *Orchestrator) WaitUntil(ctx context.Context, tokenID, id string, timeout time.Duration, done func(models.Task) bool) (models.Task, error) {
	return o.waitFor(ctx, WakeTask, tokenID, id, timeout, done)
}

// WaitForChange is Wait for any change after a version.
func (o *Orchestrator) WaitForChange(ctx context.Context, tokenID, id string, version int64, timeout time.Duration) (models.Task, error) {
	return o.waitFor(ctx, WakeTask, tokenID, id, timeout, func(t models.Task) bool { return t.Version > version || t.State.Ended() })
}

func (o *Orchestrator) waitFor(ctx context.Context, kind WakeKind, tokenID, id string, timeout time.Duration, done func(models.Task) bool) (models.Task, error) {
	changed, stop := o.waiters.Subscribe(kind, id)
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
