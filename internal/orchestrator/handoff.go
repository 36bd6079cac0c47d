package orchestrator

import (
	"cmp"
	"context"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/models"
)

// maxChildren is how many subtasks may be handed off from one task.
const maxChildren = 100

// HandOff has another agent do part of a task (PROTOCOL_V5 §5.3). The subtask is one level
// deeper, in the same session, and its budget is taken from its parent. The agent that hands off
// is notified of the end. The parent continues and ends by itself; its end cancels the subtask.
//
// HandOff returns errs.InvalidRequest for several workers, errs.NotFound for a task that the
// agent does not have, errs.TaskState for one that has ended, errs.LimitReached if depth+1 is not
// below the limit that the requested agent declared or else the policy's MaxDepth (§5.4),
// errs.BudgetExceeded if the parent has not enough tokens left, and the errors of Submit.
func (o *Orchestrator) HandOff(ctx context.Context, by models.Principal, agentID, taskID string, sub Submission) (SubmitResult, error) {
	if err := sub.prepare(o.opts.Classes); err != nil {
		return SubmitResult{}, err
	}
	if sub.Override.Workers != 0 {
		return SubmitResult{}, input.Violated("/workers", "conflict", "a task is handed off to one agent, not to several")
	}
	sub.Override.Notify = true
	parent, err := o.Task(ctx, taskID)
	if err != nil {
		return SubmitResult{}, err
	}
	if in, err := o.store.Tasks(ctx).Input(parent); err == nil && sub.Traceparent == "" {
		sub.Traceparent = in.Trace // it continues the trace of its parent
	}
	sub.Session, sub.SessionID, sub.parentID = nil, parent.SessionID, &parent.ID
	sub.Fingerprint += "\x00" + agentID + "\x00" + parent.ID // from another task it is another request
	sub.requestDigest = sub.digest(o.opts.Classes[sub.Class])
	ctx, span := o.startSubmitSpan(ctx, &sub)
	o.resolveReferences(ctx, by, &sub)
	var out SubmitResult
	err = o.transact(ctx, func(op *operation) (err error) {
		out, err = op.handOff(by, agentID, taskID, sub)
		return err
	})
	endSpan(span, err)
	return out, err
}

func (op *operation) handOff(by models.Principal, agentID, taskID string, sub Submission) (SubmitResult, error) {
	t, err := op.lockTask(taskID)
	if err != nil {
		return SubmitResult{}, err
	}
	sub.handedOffBy = agentID
	if out, replayed, err := op.findRequest(by, sub); err != nil || replayed {
		return out, err
	}
	a, p, err := op.openAttempt(t, agentID, op.lockForHandOff)
	if err != nil {
		return SubmitResult{}, err
	}
	before := t
	if most := op.maxDepthOf(sub.AgentID, p); t.Depth+1 >= most {
		return SubmitResult{}, errs.New(errs.LimitReached, "the task %q is %d hand-offs deep; at most %d are allowed", t.ID, t.Depth, most-1).
			With("depth", t.Depth).With("max_depth", most)
	}
	if t.Subtasks >= maxChildren {
		return SubmitResult{}, errs.New(errs.LimitReached, "a task may have at most %d subtasks", maxChildren).With("limit", maxChildren)
	}
	if err := op.lockCandidates(sub, t, t.Depth+1, 1, agentID); err != nil { // before the account of the parent
		return SubmitResult{}, err
	}
	if err := cmp.Or(op.carveBudget(&t, &a, sub.Budget), op.markAccepted(&t, &a)); err != nil {
		return SubmitResult{}, err
	}
	t.Subtasks++
	if t.WaitingFor == models.NotWaiting { // the agent is alive
		t.Deadline = p.deadline(t, op.tx.Now(), p.Timeout)
	}
	if err := op.saveTask(before, &t); err != nil {
		return SubmitResult{}, err
	}
	sub.SessionID, sub.parentID, sub.depth = t.SessionID, &t.ID, t.Depth+1
	by.AgentID = &agentID
	return op.submitNew(by, sub)
}

// maxDepthOf returns the depth from which on an agent accepts no hand-offs: its own limit or else
// the policy's (PROTOCOL_V5 §2.4, §5.4).
func (op *operation) maxDepthOf(agentID string, p Policy) int {
	if w := op.index.Worker(agentID); agentID != "" && w.MaxDepth != 0 {
		return min(w.MaxDepth, models.MaxTaskDepth+1)
	}
	return p.MaxDepth
}

// carveBudget takes the budget of a subtask from its parent. It does nothing without a budget.
func (op *operation) carveBudget(t *models.Task, a *models.Attempt, budget *int64) error {
	if budget == nil || t.Budget == nil {
		return nil
	}
	left := *t.Budget - t.Tokens - *budget
	if left < 1 {
		return errs.New(errs.BudgetExceeded, "the task %q has %d tokens left, which do not cover %d for a subtask", t.ID, *t.Budget-t.Tokens, *budget).
			With("requested", *budget).With("remaining", *t.Budget-t.Tokens)
	}
	t.Budget = new(*t.Budget - *budget)
	if a.ReservationID != "" {
		err := op.ledger.ReleaseIn(op.tx, a.AgentID, a.ReservationID)
		if err != nil && !errs.Is(err, errs.ReservationEnded) { // the agent may have ended it
			return err
		}
		r, err := op.ledger.ReserveIn(op.tx, a.AgentID, left, maxHold)
		if err != nil {
			return err
		}
		a.ReservationID = r.ID
		t.SetNewestAttempt(*a)
	}
	return nil
}
