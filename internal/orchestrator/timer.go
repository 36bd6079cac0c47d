package orchestrator

import (
	"context"
	"slices"
	"time"

	"comet/internal/errs"
	"comet/internal/jobs"
	"comet/internal/orchestrator/selection"
	"comet/internal/usage"
	"comet/models"
)

// handleTimer runs at the deadline of a task: it fails a silent attempt, ends a wait in the queue
// or for a reply, or starts the next attempt. If the deadline has moved, it sets the timer again.
func (o *Orchestrator) handleTimer(ctx context.Context, job *jobs.Job) error {
	return o.transact(ctx, func(op *operation) error {
		t, err := op.tx.Tasks().Lock(job.Key) // before its timer, as in every operation
		if err != nil && !errs.Is(err, errs.NotFound) {
			return err
		}
		if e := job.Finish(op.tx); e != nil || err != nil || t.State.Ended() {
			return e
		}
		if op.tx.Now().Before(t.Deadline) {
			return op.armTimer(t)
		}
		if op.missedWhileStopped(t) {
			return op.grantRestartGrace(t)
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

// missedWhileStopped reports whether the deadline of an attempt passed while no server could
// receive messages: the timer runs late and this process has started a moment ago. The agent may
// still send its result.
func (op *operation) missedWhileStopped(t models.Task) bool {
	now := op.tx.Now()
	return t.WaitingFor == models.NotWaiting && now.Sub(t.Deadline) > lateTimer && now.Sub(time.UnixMicro(op.startedAt.Load())) < restartGrace
}

// grantRestartGrace extends the deadline of an attempt by restartGrace.
func (op *operation) grantRestartGrace(t models.Task) error {
	before := t
	t.Deadline = op.tx.Now().Add(restartGrace)
	if err := op.saveTask(before, &t); err != nil {
		return err
	}
	return op.armTimer(t)
}

// onDeadline handles the deadline of a task.
func (op *operation) onDeadline(t models.Task) error {
	before := t
	in, p, err := op.lockForEnd(t)
	if err != nil {
		return err
	}
	switch t.WaitingFor {
	case models.WaitForWorker:
		err = op.failTask(&t, FailureSaturated, "no agent had a free slot in time")
	case models.WaitForRetry:
		err = op.startRetry(&t, in, p)
	case models.WaitForReply:
		err = op.onReplyTimeout(&t, p)
	case models.NotWaiting:
		if t.AgentID == "" {
			return op.failParent(before, t, FailureWork, "its subtasks have not ended in time")
		}
		err = op.failAttempt(&t, attemptEnd{state: models.AttemptTimedOut, failure: FailureTimeout, text: "the agent was silent for too long", outcome: usage.OutcomeTimeout}, p)
	}
	if err != nil {
		return err
	}
	if err := op.saveTask(before, &t); err != nil || t.State.Ended() || op.timerSet {
		return err
	}
	return op.armTimer(t) // the old timer has run
}

// onReplyTimeout replies with the first option of an unanswered question, if the policy says so
// and there is one (PROTOCOL_V5 §7.2). Otherwise it fails the attempt.
func (op *operation) onReplyTimeout(t *models.Task, p Policy) error {
	if p.UseFirstOption {
		asked, err := openQuestion(*t, op.tx.Events().EventReader)
		if err != nil {
			return err
		}
		if len(asked.Options) > 0 {
			return op.deliverReply(t, asked.Options[0], p)
		}
	}
	r := attemptEnd{state: models.AttemptTimedOut, failure: FailureUnanswered, text: "the agent's question got no reply in time", outcome: usage.OutcomeTimeout}
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
	a, err := op.tx.Tasks().Attempt(t.ID, t.Attempt)
	if err != nil {
		return err
	}
	t.Detail = nil // the detail belongs to an earlier attempt
	if err := op.endAttempt(t, &a, r, p); err != nil {
		return err
	}
	if a.AcceptedAt != nil { // its agent may still work on it
		if err := op.send(a.AgentID, models.MessageCancel, *t, map[string]string{"reason": string(r.failure)}); err != nil {
			return err
		}
	}
	return op.retryOrFail(t, r, p)
}
