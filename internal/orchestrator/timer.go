package orchestrator

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"comet/internal/errs"
	"comet/internal/jobs"
	"comet/internal/orchestrator/selection"
	"comet/models"
)

// handleTimer does what is due about a task: it gives up an attempt that was silent for too
// long, a wait in the line or for an answer, or begins the next attempt. One that comes
// too early, because the deadline has moved, is set again.
func (o *Orchestrator) handleTimer(ctx context.Context, job *jobs.Job) error {
	return o.transact(ctx, func(op *operation) error {
		t, err := op.tx.Task(job.Key) // before its timer, as in every verb
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
		return op.onDeadline(ctx, t)
	})
}

// The patience with agents after a time in which nobody could hear them: longer than
// they wait before they try to connect again.
const (
	lateTimer    = 5 * time.Second
	restartGrace = 30 * time.Second
)

// missedWhileStopped reports whether an attempt's deadline passed while no server was there to hear
// its agent: it comes late, and this one has begun only a moment ago. Whoever worked on
// meanwhile may bring the result yet.
func (op *operation) missedWhileStopped(t models.Task) bool {
	now := op.tx.Now()
	return t.WaitingFor == models.NotWaiting && now.Sub(t.Deadline) > lateTimer && now.Sub(time.UnixMicro(op.startedAt.Load())) < restartGrace
}

// grantRestartGrace gives an attempt more time.
func (op *operation) grantRestartGrace(t models.Task) error {
	before := t
	t.Deadline = op.tx.Now().Add(restartGrace)
	if err := op.saveTask(before, &t); err != nil {
		return err
	}
	return op.armTimer(t)
}

// onDeadline is what happens at the deadline.
func (op *operation) onDeadline(ctx context.Context, t models.Task) error {
	before := t
	in, p, err := op.lockForEnd(t)
	if err != nil {
		return err
	}
	switch t.WaitingFor {
	case models.WaitForWorker:
		err = op.failTask(&t, FailureSaturated, "no agent had a place free in time")
	case models.WaitForRetry:
		err = op.startRetry(&t, in, p)
	case models.WaitForReply:
		err = op.onReplyTimeout(ctx, &t, p)
	case models.NotWaiting:
		if t.AgentID == "" {
			return op.failParent(before, t, FailureWork, "its subtasks have not ended in time")
		}
		err = op.failAttempt(&t, attemptEnd{state: models.AttemptTimedOut, failure: FailureTimeout, text: "the agent was silent for too long", outcome: models.OutcomeTimeout}, p)
	}
	if err != nil {
		return err
	}
	if err := op.saveTask(before, &t); err != nil || t.State.Ended() || op.timerSet {
		return err
	}
	return op.armTimer(t) // the old timer is used up
}

// onReplyTimeout takes the first option of a question that nobody has answered, where the
// policy wants that and there is one (PROTOCOL_V5 §7.2), and else ends the attempt.
func (op *operation) onReplyTimeout(ctx context.Context, t *models.Task, p Policy) error {
	if p.UseFirstOption {
		asked, err := op.OpenQuestion(ctx, *t) // it was committed long ago
		if err != nil {
			return err
		}
		if len(asked.Options) > 0 {
			return op.deliverReply(t, asked.Options[0], p)
		}
	}
	r := attemptEnd{state: models.AttemptTimedOut, failure: FailureUnanswered, text: "nobody answered the agent's question in time", outcome: models.OutcomeTimeout}
	return op.failAttempt(t, r, p)
}

// startRetry makes the next attempt.
func (op *operation) startRetry(t *models.Task, in models.TaskInput, p Policy) error {
	exclude, err := op.agentsToAvoid(*t, p)
	if err != nil {
		return err
	}
	if taken, err := op.assignFallback(t, in, p, exclude); err != nil || taken {
		return err
	}
	failure, err := op.assignOrQueue(t, in, p, exclude)
	if err != nil || failure == "" {
		return err
	}
	return op.failTask(t, failure, assignFailureText(failure))
}

// assignFallback gives a task that failed elsewhere to the agent that its asker has named for
// that, and reports whether that one takes it.
func (op *operation) assignFallback(t *models.Task, in models.TaskInput, p Policy, exclude []string) (bool, error) {
	o, err := overrideOf(in)
	if err != nil || o.Fallback == "" || len(exclude) == 0 || slices.Contains(exclude, o.Fallback) {
		return false, err
	}
	in.RequestedAgentID = o.Fallback
	verdict, err := op.assign(t, in, p, nil)
	return verdict == selection.Chosen, err
}

// failAttempt ends the newest attempt and goes on.
func (op *operation) failAttempt(t *models.Task, r attemptEnd, p Policy) error {
	a, err := op.tx.Attempt(t.ID, t.Attempt)
	if err != nil {
		return err
	}
	agent := a.AgentID
	t.Detail = nil // of an earlier attempt: its agent has said nothing of this one's end
	if err := op.endAttempt(t, &a, r, p); err != nil {
		return err
	}
	if err := op.sendCancel(*t, a, agent, r.failure); err != nil {
		return err
	}
	return op.retryOrFail(t, r, p)
}

// sendCancel tells an agent that may still work on an attempt that it is given up.
func (op *operation) sendCancel(t models.Task, a models.Attempt, agent string, why Failure) error {
	if a.AcceptedAt == nil { // it never said that it has it
		return nil
	}
	data, err := json.Marshal(map[string]string{"reason": string(why)})
	if err != nil {
		return err
	}
	op.wakeAfterCommit(WakeInbox, agent)
	_, err = op.tx.EnqueueMessage(models.InboxMessage{
		AgentID: agent, Kind: models.MessageCancel, Priority: models.MaxPriority, TaskID: t.ID, Attempt: a.Attempt, Data: data,
	})
	return err
}
