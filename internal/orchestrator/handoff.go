package orchestrator

import (
	"context"

	"comet/internal/errs"
	"comet/models"
)

// maxChildren is how many tasks one may be handed off into.
const maxChildren = 100

// HandOff has another agent do a part of what an agent has (PROTOCOL_V5 §5.3): a task
// of its own, one deeper, in the same session, whose budget is carved out of its
// source's. The agent that hands off is told the end; the source goes on meanwhile and
// ends by itself. With the end of the source the part is cancelled.
//
// It returns errs.InvalidRequest for several workers, errs.NotFound for a task that the agent does not have, errs.TaskState for
// one that has ended, errs.LimitReached where depth+1 is not below what the wanted agent has
// said when it came, or else the policy's MaxDepth (§5.4), errs.BudgetExceeded where the source has not so much left, and what Submit
// returns.
func (o *Orchestrator) HandOff(ctx context.Context, by models.Principal, agentID, taskID string, sub Submission) (SubmitResult, error) {
	if err := sub.prepare(o.opts.Classes); err != nil {
		return SubmitResult{}, err
	}
	if sub.Override.Workers != 0 {
		var v errs.Violations
		v.Add(errs.InvalidRequest, "/workers", "conflict", "a task is handed off to one agent, not to several")
		return SubmitResult{}, v.Err()
	}
	sub.Override.Notify = true
	if in, err := o.store.TaskInput(ctx, taskID); err == nil && sub.Traceparent == "" {
		sub.Traceparent = in.Trace // it goes on in its source's
	}
	source, err := o.Task(ctx, taskID)
	if err != nil {
		return SubmitResult{}, err
	}
	sub.SessionID, sub.parentID = source.SessionID, &source.ID
	sub.Fingerprint += "\x00" + agentID + "\x00" + source.ID // out of another task it is another request
	ctx, span := o.startSubmitSpan(ctx, &sub)
	o.resolveReferences(ctx, by, &sub)
	var out SubmitResult
	err = o.withCurrentIndex(ctx, func() error {
		return o.transact(ctx, func(op *operation) (err error) {
			out, err = op.handOff(by, agentID, taskID, sub)
			return err
		})
	})
	endSpan(span, err)
	return out, err
}

func (op *operation) handOff(by models.Principal, agentID, taskID string, sub Submission) (SubmitResult, error) {
	t, err := op.lockTask(taskID)
	if err != nil {
		return SubmitResult{}, err
	}
	whoever := by // of its agent: it may say it again at another door, with another token
	whoever.TokenID = "agent:" + agentID
	if out, replayed, err := op.claimRequest(whoever, sub); err != nil || replayed {
		return out, err
	}
	sub.requestClaimed = true
	a, p, err := op.openAttempt(t, agentID, op.lockForHandOff)
	if err != nil {
		return SubmitResult{}, err
	}
	before := t
	if most := op.maxDepthOf(sub.AgentID, p); t.Depth+1 >= most {
		return SubmitResult{}, errs.New(errs.LimitReached, "the task %q is %d hand-offs deep, and there may be %d", t.ID, t.Depth, most-1).
			With("depth", t.Depth).With("max_depth", most)
	}
	n, err := op.tx.CountChildren(t.ID, maxChildren)
	if err != nil {
		return SubmitResult{}, err
	}
	if n >= maxChildren {
		return SubmitResult{}, errs.New(errs.LimitReached, "a task may be handed off into %d others", maxChildren).With("limit", maxChildren)
	}
	if err := op.lockCandidates(sub, t, t.Depth+1, 1, agentID); err != nil { // before the source's account
		return SubmitResult{}, err
	}
	if err := op.carveBudget(&t, &a, sub.Budget); err != nil {
		return SubmitResult{}, err
	}
	if err := op.markAccepted(&before, &t, &a); err != nil {
		return SubmitResult{}, err
	}
	if t.WaitingFor == models.NotWaiting { // it shows that it lives
		t.Deadline = op.tx.Now().Add(p.Timeout)
	}
	if err := op.saveTask(before, &t); err != nil {
		return SubmitResult{}, err
	}
	sub.SessionID, sub.parentID, sub.depth = t.SessionID, &t.ID, t.Depth+1
	by.AgentID = &agentID
	return op.submit(by, sub)
}

// maxDepthOf is the depth from which on nothing is handed off to an agent: what it has said
// itself, and otherwise the policy's (PROTOCOL_V5 §2.4, §5.4).
func (op *operation) maxDepthOf(agentID string, p Policy) int {
	if w := op.workerCache.get(agentID); agentID != "" && w.MaxDepth != 0 {
		return min(w.MaxDepth, models.MaxTaskDepth+1)
	}
	return p.MaxDepth
}

// carveBudget takes a part's budget out of its source's. A source without a budget has no
// bound to keep, and neither has a part that names none.
func (op *operation) carveBudget(t *models.Task, a *models.Attempt, part *int64) error {
	if part == nil || t.Budget == nil {
		return nil
	}
	left := *t.Budget - t.Tokens - *part
	if left < 1 {
		return errs.New(errs.BudgetExceeded, "the task %q has %d tokens left, which do not cover %d for another one", t.ID, *t.Budget-t.Tokens, *part).
			With("requested", *part).With("remaining", *t.Budget-t.Tokens)
	}
	t.Budget = new(*t.Budget - *part)
	if a.ReservationID != "" {
		err := op.ledger.ReleaseIn(op.tx, a.AgentID, a.ReservationID)
		if err != nil && !errs.Is(err, errs.ReservationEnded) { // its agent may have ended it by itself
			return err
		}
		r, err := op.ledger.ReserveIn(op.tx, a.AgentID, left, maxHold)
		if err != nil {
			return err
		}
		a.ReservationID = r.ID
	}
	return op.tx.Rebudget(t.ID, *t.Budget, a.Attempt, a.ReservationID)
}

// lockSubtasks locks what a task was handed off into, and that in its turn: tasks are
// locked before workers. It returns the agents that have a part.
func (op *operation) lockSubtasks(taskID string) (agents []string, err error) {
	parts, err := op.tx.OpenChildren(taskID)
	for _, id := range parts {
		if err != nil {
			break
		}
		var t models.Task
		if t, err = op.tx.Task(id); err != nil {
			break
		}
		var more []string
		more, err = op.lockSubtasks(id)
		agents = append(append(agents, t.AgentID), more...)
	}
	return agents, err
}

// cancelSubtasks cancels what a task was handed off into.
func (op *operation) cancelSubtasks(taskID, why string) error {
	parts, err := op.tx.OpenChildren(taskID)
	for _, id := range parts {
		if err != nil {
			break
		}
		_, err = op.cancel(id, why)
	}
	return err
}
