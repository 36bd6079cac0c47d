package orchestrator

import (
	"context"
	"encoding/json"
	"strconv"

	"comet/internal/events"
	"comet/internal/usage"
	"comet/models"
	"comet/store"
)

// Result is the report of an agent that ends an attempt.
type Result struct {
	// Failure is "" for a success.
	Failure Failure
	// Text is the reason of a failure; Detail is JSON that the protocol stores with it.
	Text     string
	Detail   json.RawMessage
	ExitCode *int
	// Output is the complete result, empty if it came in chunks before or there is none.
	Output []byte
	// Tokens is the number of tokens used; Model and Kind are recorded with it in the ledger.
	Tokens      int64
	Model, Kind string
	// Needed is the number of tokens needed if the budget did not cover the attempt, 0 if unknown.
	Needed int64
	// Attempt is the number of the attempt, 0 for the newest one of the agent.
	Attempt int
	// MessageID makes a repeated message take effect only once; "" disables that.
	MessageID string
}

// Complete ends an attempt with the agent's result. It also ends the task, unless the failure is retried. A late
// success, after its attempt was ended, still ends an open task; the attempt that runs instead is cancelled.
//
// A repeated result changes nothing. Complete returns errs.NotFound for a task that the agent never had, and
// errs.TaskState for a task that has ended without it; the tokens are charged nevertheless.
func (o *Orchestrator) Complete(ctx context.Context, agentID, taskID string, r Result) (out models.Task, err error) {
	late := false
	err = o.transact(ctx, func(op *operation) error {
		out, late, err = op.complete(agentID, taskID, r)
		return err
	})
	if err == nil && late {
		err = errTaskEnded(out)
	}
	return out, err
}

func (op *operation) complete(agentID, taskID string, r Result) (t models.Task, late bool, err error) {
	id := r.MessageID
	if r.Failure == "" {
		id = "" // a repeated success changes nothing
	}
	t, fresh, err := op.lockForMessage(agentID, taskID, id)
	if err != nil || !fresh {
		return t, false, err
	}
	a, err := op.attemptOf(t, agentID, r.Attempt)
	if err != nil {
		return t, false, err
	}
	before := t
	in, p, err := op.lockForEnd(t)
	if err != nil {
		return t, false, err
	}
	rep := r.attemptEnd(in)
	switch {
	case a.State == models.AttemptSucceeded || a.State == models.AttemptFailed:
		return t, false, nil // a repeated result
	case t.State.Ended():
		err = op.chargeLate(&t, &a, rep)
		return t, true, err
	case a.State.Ended():
		if r.Failure != "" {
			err = op.chargeLate(&t, &a, rep)
			return t, false, err
		}
		err = op.adoptLateSuccess(before, &t, &a, r, rep, p)
		return t, false, err
	}
	op.setAccepted(&t, &a) // if the result is the first report, task.started is not emitted
	if err := op.endAttempt(&t, &a, rep, p); err != nil {
		return t, false, err
	}
	err = op.applyResult(before, &t, a, r, rep, p)
	return t, false, err
}

// applyResult applies the result of an ended attempt to the task.
func (op *operation) applyResult(before models.Task, t *models.Task, a models.Attempt, r Result, rep attemptEnd, p Policy) error {
	t.ExitCode = r.ExitCode
	if err := op.finishOutput(t, a, r.Output); err != nil {
		return err
	}
	t.Detail = r.Detail
	if r.Failure != "" {
		if err := op.retryOrFail(t, a, rep, p); err != nil {
			return err
		}
		return op.saveTask(before, t)
	}
	return op.completeTask(before, t)
}

// completeTask ends a task that has succeeded.
func (op *operation) completeTask(before models.Task, t *models.Task) error {
	t.State, t.WaitingFor, t.Progress, t.EndedAt = models.TaskDone, models.NotWaiting, 100, new(op.tx.Now())
	op.emitTaskEvent(events.TaskCompleted, *t, func(d *events.TaskData) { d.ExitCode, d.Tokens = t.ExitCode, t.Tokens })
	return op.saveTask(before, t)
}

// adoptLateSuccess ends a task with a success that came after its attempt was ended.
func (op *operation) adoptLateSuccess(before models.Task, t *models.Task, a *models.Attempt, r Result, rep attemptEnd, p Policy) error {
	if t.AgentID != "" && (t.WaitingFor == models.NotWaiting || t.WaitingFor == models.WaitForReply) {
		other, err := op.heldAttempt(*t)
		if err == nil {
			err = op.ledger.LockIn(op.tx, []string{other.AgentID, a.AgentID})
		}
		if err == nil {
			err = op.cancelAttempt(t, &other, "another attempt has succeeded", p)
		}
		if err == nil {
			err = op.storeAttempt(t, other)
		}
		if err != nil {
			return err
		}
	}
	if err := op.chargeLate(t, a, rep); err != nil {
		return err
	}
	t.AgentID = a.AgentID
	a.State, a.ErrorCode, a.Error = models.AttemptSucceeded, "", ""
	if err := op.tx.Tasks().SaveAttempt(*a); err != nil {
		return err
	}
	return op.applyResult(before, t, *a, r, rep, p)
}

// chargeLate records tokens that were reported after the attempt had ended. They are stored in the attempt, so that a
// repeated message records nothing.
func (op *operation) chargeLate(t *models.Task, a *models.Attempt, r attemptEnd) error {
	if r.tokens == 0 || a.Tokens != 0 {
		return nil
	}
	a.Tokens = r.tokens
	t.Tokens += r.tokens
	held := t.AttemptState != models.AttemptNone && a.Attempt == t.Attempt
	if err := op.tx.Tasks().AddTokens(t.ID, r.tokens, held); err != nil {
		return err
	}
	if !held {
		if err := op.tx.Tasks().SaveAttempt(*a); err != nil {
			return err
		}
	}
	if t.ParentID != nil { // the tokens of a parallel task are those of its subtasks
		late := store.Job{Kind: subtaskKind, Key: t.ID + lateMark + strconv.Itoa(a.Attempt)} // the job of its end may be running now
		if _, err := op.tx.Jobs().Enqueue(late); err != nil {
			return err
		}
	}
	r.labels.TaskID = t.ID
	return op.ledger.ChargeIn(op.tx, a.AgentID, usage.FactDraft{Tokens: &r.tokens, FactLabels: r.labels})
}

// attemptEnd returns how the result ends the attempt.
func (r Result) attemptEnd(in models.TaskInput) attemptEnd {
	rep := attemptEnd{
		state: models.AttemptSucceeded, tokens: r.Tokens, outcome: usage.OutcomeSuccess, failure: r.Failure, text: r.Text, needed: r.Needed,
		labels: models.FactLabels{Model: r.Model, Kind: r.Kind},
	}
	if rep.labels.Kind == "" && len(in.Capabilities) > 0 && len(in.Capabilities[0]) <= maxUsageKind {
		rep.labels.Kind = in.Capabilities[0]
	}
	if r.Failure != "" {
		rep.state, rep.outcome = models.AttemptFailed, usage.OutcomeFailed
	}
	return rep
}

// maxUsageKind is the maximum length of a kind in the ledger.
const maxUsageKind = 64

// loadPolicy returns the input of a task and its policy.
func (op *operation) loadPolicy(t models.Task) (models.TaskInput, Policy, error) {
	in, err := op.tx.Tasks().Input(t)
	if err != nil {
		return in, Policy{}, err
	}
	o, err := overrideOf(in)
	return in, op.policyOf(t, o), err
}

// lockForHandOff is loadPolicy for an operation that adds a task to the session: it locks the session.
func (op *operation) lockForHandOff(t models.Task) (in models.TaskInput, p Policy, err error) {
	if err = op.lockTaskSession(t); err == nil {
		in, p, err = op.loadPolicy(t)
	}
	return in, p, err
}

// lockForEnd is loadPolicy for an operation that may end the task. It also locks the open subtasks, then the session,
// then the accounts of the agents of all of them.
func (op *operation) lockForEnd(t models.Task) (in models.TaskInput, p Policy, err error) {
	var agents []string
	if t.Subtasks > 0 {
		if agents, err = op.lockSubtasks(t.ID); err != nil {
			return in, p, err
		}
	}
	if in, p, err = op.lockForHandOff(t); err == nil && len(agents) > 0 {
		err = op.ledger.LockIn(op.tx, append(agents, t.AgentID))
	}
	return in, p, err
}

// Cancel ends an open task and notifies its agent. A cancelled task stays unchanged; a task that has ended in another
// way is errs.TaskState.
func (o *Orchestrator) Cancel(ctx context.Context, taskID, why string, once *models.Idempotency) (out models.Task, err error) {
	err = o.transactOnce(ctx, once, func(op *operation) (any, error) {
		out, err = op.cancel(taskID, why)
		return out, err
	})
	return out, err
}

func (op *operation) cancel(taskID, why string) (models.Task, error) {
	t, err := op.lockTask(taskID)
	switch {
	case err != nil || t.State == models.TaskCancelled:
		return t, err
	case t.State.Ended():
		return t, errTaskEnded(t)
	}
	before := t
	_, p, err := op.lockForEnd(t)
	if err != nil {
		return t, err
	}
	if t.WaitingFor != models.WaitForWorker && t.WaitingFor != models.WaitForRetry {
		a, err := op.heldAttempt(t)
		if err != nil {
			return t, err
		}
		if err := op.cancelAttempt(&t, &a, why, p); err != nil { // the attempt of a parallel task has no agent
			return t, err
		}
	}
	if t.Subtasks > 0 {
		if err := op.cancelSubtasks(t.ID, why); err != nil {
			return t, err
		}
	}
	t.State, t.WaitingFor, t.Error, t.EndedAt = models.TaskCancelled, models.NotWaiting, why, new(op.tx.Now())
	op.emitTaskEvent(events.TaskCancelled, t, func(d *events.TaskData) { d.Error = why })
	err = op.saveTask(before, &t)
	return t, err
}

// lockSubtasks locks the open subtasks of a task, and theirs: tasks are locked before workers. It returns their agents.
func (op *operation) lockSubtasks(taskID string) (agents []string, err error) {
	subtasks, err := op.tx.Tasks().OpenChildren(taskID)
	for _, id := range subtasks {
		if err != nil {
			break
		}
		var t models.Task
		if t, err = op.tx.Tasks().Lock(id); err != nil {
			break
		}
		var more []string
		more, err = op.lockSubtasks(id)
		agents = append(append(agents, t.AgentID), more...)
	}
	return agents, err
}

// cancelSubtasks cancels the open subtasks of a task.
func (op *operation) cancelSubtasks(taskID, why string) error {
	subtasks, err := op.tx.Tasks().OpenChildren(taskID)
	for _, id := range subtasks {
		if err != nil {
			break
		}
		_, err = op.cancel(id, why)
	}
	return err
}
