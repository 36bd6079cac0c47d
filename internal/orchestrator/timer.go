package orchestrator

import (
	"context"
	"slices"
	"time"

	"comet/internal/errs"
	"comet/internal/orchestrator/selection"
	"comet/internal/usage"
	"comet/models"
	"comet/store"
)

const (
	// timersBatch is the number of due tasks that are read together.
	timersBatch = 100
	// timerRetry is the delay before a deadline that could not be handled is handled again.
	timerRetry = 10 * time.Second
)

// runTimers handles the deadlines that have passed: it fails silent attempts, ends waits in queues
// or for replies, and starts next attempts.
func (o *Orchestrator) runTimers(ctx context.Context) (time.Duration, error) {
	if !o.indexLoaded.Load() { // all agents would seem to be missing
		return o.opts.Poll, nil
	}
	o.timers.SetNext(o.store.Now().Add(o.opts.Poll)) // before the read, so that no deadline is missed
	for {
		due, err := o.store.Tasks(ctx).Due(timersBatch)
		if err != nil { // deadlines that pass while the database is unavailable are not the agents' fault
			o.availableSince.Store(o.store.Now().UnixMicro())
			return 0, err
		}
		for _, id := range due {
			if err := o.handleDeadline(ctx, id); err != nil { // it is postponed, so that it does not delay others
				o.log.WarnContext(ctx, "handling the deadline of a task failed", "task", id, "error", err)
				err = o.store.Write(ctx, func(tx *store.Tx) error { return tx.Tasks().Postpone(id, tx.Now().Add(timerRetry)) })
				if err != nil {
					return 0, err
				}
			}
		}
		if len(due) < timersBatch {
			break
		}
	}
	next, ok, err := o.store.Tasks(ctx).NextDeadline()
	if err != nil || !ok {
		return o.opts.Poll, err
	}
	o.timers.Set(next)
	return min(max(next.Sub(o.store.Now()), time.Millisecond), o.opts.Poll), nil
}

// handleDeadline handles the deadline of a task, unless the deadline was changed.
func (o *Orchestrator) handleDeadline(ctx context.Context, taskID string) error {
	return o.transact(ctx, func(op *operation) error {
		t, err := op.tx.Tasks().Lock(taskID)
		if errs.Is(err, errs.NotFound) || err == nil && (t.State.Ended() || op.tx.Now().Before(t.Deadline)) {
			return nil
		}
		if err != nil {
			return err
		}
		if op.missedWhileStopped(t) {
			before := t
			t.Deadline = op.tx.Now().Add(restartGrace)
			return op.saveTask(before, &t)
		}
		return op.onDeadline(t)
	})
}

// The extra time for attempts whose deadline passed while no server ran: longer than agents wait
// before they connect again.
const (
	lateTimer    = 5 * time.Second
	restartGrace = 30 * time.Second
)

// missedWhileStopped reports whether the deadline of an attempt passed while no server could receive its
// result: the timer runs late, and this process or the database has started a moment ago.
func (op *operation) missedWhileStopped(t models.Task) bool {
	now := op.tx.Now()
	return t.WaitingFor == models.NotWaiting && now.Sub(t.Deadline) > lateTimer && now.Sub(time.UnixMicro(op.availableSince.Load())) < restartGrace
}

// onDeadline handles the deadline of a task.
func (op *operation) onDeadline(t models.Task) error {
	before := t
	in, p, err := op.lockForEnd(t)
	if err != nil {
		return err
	}
	r := p.overdue(t, op.tx.Now())
	works := t.WaitingFor == models.NotWaiting || t.WaitingFor == models.WaitForReply
	switch {
	case works && t.AgentID == "":
		return op.failParent(before, t, FailureWork, "its subtasks have not ended in time")
	case r.failure == FailureUnanswered:
		err = op.onReplyTimeout(&t, r, p)
	case works:
		err = op.failAttempt(&t, r, p)
	case r.failure == FailureExpired:
		op.failTask(&t, r.failure, r.text)
	case t.WaitingFor == models.WaitForWorker:
		op.failTask(&t, FailureSaturated, "no agent had a free slot in time")
	default:
		err = op.startRetry(&t, in, p)
	}
	if err != nil {
		return err
	}
	return op.saveTask(before, &t)
}

// overdue returns how a task that has reached its deadline ends its attempt.
func (p Policy) overdue(t models.Task, now time.Time) attemptEnd {
	r := attemptEnd{state: models.AttemptTimedOut, failure: FailureTimeout, text: "the agent was silent for too long", outcome: usage.OutcomeTimeout}
	switch {
	case !p.ExpiresAt.IsZero() && !now.Before(p.ExpiresAt):
		r.failure, r.text = FailureExpired, "the task did not end before its expires_at"
	case t.WaitingFor == models.WaitForReply:
		r.failure, r.text = FailureUnanswered, "the agent's question got no reply in time"
	case p.AttemptTimeout > 0 && !now.Before(t.AssignedAt.Add(p.AttemptTimeout)):
		r.text = "the attempt took too long"
	}
	return r
}

// onReplyTimeout replies with the first option of an unanswered question, if the policy says so
// and there is one (PROTOCOL_V5 §7.2). Otherwise it fails the attempt.
func (op *operation) onReplyTimeout(t *models.Task, r attemptEnd, p Policy) error {
	if p.UseFirstOption {
		asked, err := openQuestion(*t, op.tx.Events().EventReader)
		if err != nil {
			return err
		}
		if len(asked.Options) > 0 {
			return op.deliverReply(t, asked.Options[0], p)
		}
	}
	return op.failAttempt(t, r, p)
}

// startRetry starts the next attempt.
func (op *operation) startRetry(t *models.Task, in models.TaskInput, p Policy) error {
	exclude, err := op.agentsToAvoid(*t, p)
	if err != nil {
		return err
	}
	if taken, err := op.assignFallback(t, in, p, exclude); err != nil || taken {
		return err
	}
	return op.assignOrQueue(t, in, p, exclude)
}

// assignFallback assigns a task that failed before to its fallback agent, and reports whether
// that succeeded.
func (op *operation) assignFallback(t *models.Task, in models.TaskInput, p Policy, exclude []string) (bool, error) {
	o, err := overrideOf(in)
	if err != nil || o.Fallback == "" || len(exclude) == 0 || slices.Contains(exclude, o.Fallback) {
		return false, err
	}
	in.RequestedAgentID = o.Fallback
	verdict, err := op.assign(t, in, p, nil)
	return verdict == selection.Chosen, err
}

// failAttempt ends the newest attempt with a failure and retries or fails the task.
func (op *operation) failAttempt(t *models.Task, r attemptEnd, p Policy) error {
	a, err := op.heldAttempt(*t)
	if err != nil {
		return err
	}
	t.Detail = nil // the detail belongs to an earlier attempt
	if err := op.endAttempt(t, &a, r, p); err != nil {
		return err
	}
	if a.AcceptedAt != nil || r.state == models.AttemptTimedOut { // its agent may still work on it
		if err := op.send(a.AgentID, models.MessageCancel, *t, map[string]string{"reason": string(r.failure)}); err != nil {
			return err
		}
	}
	return op.retryOrFail(t, a, r, p)
}
