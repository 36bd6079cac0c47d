package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/input"
	"comet/internal/orchestrator/metrics"
	"comet/internal/orchestrator/selection"
	"comet/models"
	"comet/store"
)

// Submit creates a task and assigns it to an agent. If all suitable agents are full, the task is
// queued; if all are offline, it is retried later.
//
// It returns errs.UnsupportedWork if no agent offers the work, errs.BudgetExceeded if no agent's
// budget covers it, errs.Busy if the queue is full, errs.NotFound for an unknown session,
// errs.TaskExists for an id that is in use, and errs.RequestIDReused for a request id with other
// content. With an error nothing is stored.
func (o *Orchestrator) Submit(ctx context.Context, by models.Principal, sub Submission, once *models.Idempotency) (SubmitResult, error) {
	if err := sub.prepare(o.opts.Classes); err != nil {
		return SubmitResult{}, err
	}
	sub.requestDigest = sub.digest(o.opts.Classes[sub.Class])
	ctx, span := o.startSubmitSpan(ctx, &sub)
	o.resolveReferences(ctx, by, &sub)
	var out SubmitResult
	var refusing []string
	err := o.transactOnce(ctx, once, func(op *operation) (result any, err error) {
		out, err = op.submit(by, sub)
		refusing = op.refusedBy
		return out, err
	})
	if errs.Is(err, errs.BudgetExceeded) && len(refusing) > 0 {
		o.emitBudgetRefusals(ctx, refusing, *sub.Budget)
	}
	endSpan(span, err)
	return out, err
}

// resolveReferences stores the resolved parameters in sub, or the error. Resolved values are final.
// The transaction decides whether the error matters: it does not for a repeated request.
func (o *Orchestrator) resolveReferences(ctx context.Context, by models.Principal, sub *Submission) {
	sub.resolvedParameters = sub.Parameters
	resolver := sub.Resolver
	if resolver == nil && (sub.Session != nil || sub.SessionID != "") {
		resolver = o.opts.Resolver
	}
	if resolver == nil || !resolver.MayRefer(sub.Parameters) {
		return
	}
	var session models.Session
	var err error
	if sub.Session != nil {
		session.Facts = sub.Session.Facts
	} else if sub.SessionID != "" {
		if session, err = o.Session(ctx, sub.SessionID); err == nil {
			err = sub.checkSession(by, session)
		}
	}
	if err == nil {
		sub.resolvedParameters, err = resolver.Resolve(ctx, o, session, sub.Parameters)
	}
	sub.resolveErr = err
}

// emitBudgetRefusals emits the events of budgets that refused a submission, because the events of
// the submission itself were rolled back. A budget that covers the task by now emits nothing.
func (o *Orchestrator) emitBudgetRefusals(ctx context.Context, agents []string, tokens int64) {
	err := errBudgetCovers
	for errors.Is(err, errBudgetCovers) && len(agents) > 0 {
		err = o.ledger.Write(ctx, func(tx *store.Tx) error {
			if err := o.ledger.LockIn(tx, agents); err != nil {
				return err
			}
			for i, id := range agents {
				_, err := o.ledger.ReserveIn(tx, id, tokens, time.Second)
				if err == nil {
					agents = slices.Delete(slices.Clone(agents), i, i+1)
					return errBudgetCovers
				}
				if !errs.Is(err, errs.BudgetExceeded) {
					return err
				}
			}
			return nil
		})
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, errBudgetCovers) {
		o.log.WarnContext(ctx, "emitting budget events failed", "error", err)
	}
}

// errBudgetCovers rolls back a test reservation that succeeded.
var errBudgetCovers = errors.New("the budget covers it by now")

// request returns the request of a submission. The owner of a task that is handed off is its agent,
// because the agent may repeat the message with another token.
func (op *operation) request(by models.Principal, sub Submission) store.TaskRequest {
	r := store.TaskRequest{Owner: by.TokenID, RequestID: sub.RequestID, Digest: sub.requestDigest}
	if sub.handedOffBy != "" {
		r.Owner = "agent:" + sub.handedOffBy
	}
	return r
}

// findRequest returns the result of the first request if this one is a repetition.
func (op *operation) findRequest(by models.Principal, sub Submission) (out SubmitResult, replayed bool, err error) {
	if sub.RequestID == "" {
		return out, false, nil
	}
	request := op.request(by, sub)
	earlier, err := op.tx.Tasks().Requested(request)
	switch {
	case errs.Is(err, errs.NotFound):
		return out, false, nil
	case err != nil:
		return out, false, err
	case earlier.Digest != request.Digest:
		return out, false, errs.New(errs.RequestIDReused, "the request_id %q was already used with different content", sub.RequestID)
	}
	t, err := op.lockTask(earlier.TaskID)
	return SubmitResult{Task: t, Replayed: true}, true, err
}

func (op *operation) submit(by models.Principal, sub Submission) (SubmitResult, error) {
	if out, replayed, err := op.findRequest(by, sub); err != nil || replayed {
		return out, err
	}
	return op.submitNew(by, sub)
}

// submitNew creates the task of a submission whose request is new.
func (op *operation) submitNew(by models.Principal, sub Submission) (SubmitResult, error) {
	if at := sub.Override.ExpiresAt; !at.IsZero() && !op.tx.Now().Before(at) {
		return SubmitResult{}, input.Violated("/expires_at", "future", "expires_at must be in the future")
	}
	request := op.request(by, sub) // of the parameters before their references are resolved
	if err := op.enterSession(by, &sub); err != nil {
		return SubmitResult{}, err
	}
	t, err := op.submitTask(by, sub, request)
	if err == nil && sub.With != nil {
		err = sub.With(op.tx, &t)
	}
	return SubmitResult{Task: t}, err
}

// submitTask creates the task of a submission, or the tasks of several workers.
func (op *operation) submitTask(by models.Principal, sub Submission, request store.TaskRequest) (models.Task, error) {
	for _, id := range []string{sub.AgentID, sub.Override.Fallback} {
		if id != "" && sub.handedOffBy == "" { // PROTOCOL_V5 §5.4 lets workers hand off to any agent
			if err := op.tx.Agents().Confine(by, id); err != nil {
				return models.Task{}, err
			}
		}
	}
	if sub.Override.Workers != 0 {
		return op.submitParallel(by, sub, request)
	}
	t, in, err := sub.newTask(by, op.tx.Now())
	if err != nil {
		return t, err
	}
	return op.createTask(t, in, op.policyOf(t, sub.Override), request, true)
}

// createTask assigns or queues a new task and inserts it. A task that no agent can execute is an
// error if strict, and otherwise fails.
func (op *operation) createTask(t models.Task, in models.TaskInput, p Policy, request store.TaskRequest, strict bool) (models.Task, error) {
	op.insertingID = t.ID
	created := len(op.events)
	op.emitTaskEvent(events.TaskCreated, t, nil)
	err := op.assignOrQueue(&t, in, p, nil)
	if t.WaitingFor == models.NotWaiting && !t.State.Ended() { // task.created already names the agent
		op.events = op.events[:created]
		op.emitTaskEvent(events.TaskCreated, t, nil)
	}
	if err == nil && strict {
		err = op.submissionError(t, in, p)
	}
	if err == nil && t.WaitingFor == models.WaitForWorker {
		err = op.checkQueueLimit(t)
	}
	if err == nil {
		err = op.insertTask(t, in, request)
	}
	return t, taskExistsError(err, t.ID)
}

// insertTask inserts a new task. Rows that were written earlier in the transaction refer to it.
func (op *operation) insertTask(t models.Task, in models.TaskInput, request store.TaskRequest) error {
	if err := op.tx.Tasks().Insert(t, in, request); err != nil {
		return err
	}
	op.count(func(c *metrics.Counters) { c.Submitted.WithLabelValues(t.Class).Inc() })
	if t.State.Ended() {
		return op.onTaskEnd(t)
	}
	op.setTimer(t)
	return nil
}

// submissionError returns the error for a failure of a new task that rejects the submission.
func (op *operation) submissionError(t models.Task, in models.TaskInput, p Policy) error {
	switch Failure(t.ErrorCode) {
	case FailureUnsupported:
		return op.unsupportedError(in)
	case FailureBudget:
		return op.budgetError(t, in, p)
	}
	return nil
}

// budgetError is the error for a task that no agent's budget covers. It is permanent if no agent
// that offers the work has a daily budget that is large enough.
func (op *operation) budgetError(t models.Task, in models.TaskInput, p Policy) error {
	e := errs.New(errs.BudgetExceeded, "%s has %d tokens left today", selection.Requirements(in, "that offers"), *t.Budget).With("requested", *t.Budget)
	most, usedUp := int64(0), false
	for _, refusal := range op.budgetErrors {
		remaining, _ := refusal.Meta["remaining"].(int64)
		if most = max(most, remaining); !refusal.Permanent {
			usedUp = true
			e = e.With("reset_at", refusal.Meta["reset_at"])
		}
		if wait, ok := refusal.Meta["retry_after"]; ok {
			e = e.With("retry_after", wait)
		}
	}
	e = e.With("remaining", most)
	if usedUp {
		return e
	}
	later, err := op.unavailableAgentCovers(t, in, p)
	if err != nil || later {
		return cmp.Or[error](err, e)
	}
	e.Detail = fmt.Sprintf("%s has a daily budget of at least %d tokens: submit the task with a smaller budget, or raise the budget of an agent",
		selection.Requirements(in, "that offers"), *t.Budget)
	return e
}

// unavailableAgentCovers reports whether an agent that is full or offline has a daily budget that
// covers the task. It returns true if a decision cannot list all such agents.
func (op *operation) unavailableAgentCovers(t models.Task, in models.TaskInput, p Policy) (bool, error) {
	rejected := op.index.Select(selectionRequest(t.Depth, in, p, nil)).Rejected
	for _, r := range rejected {
		if r.Reason.Verdict() == selection.Unsupported { // the remaining ones are unsupported too
			return false, nil
		}
		a, err := op.tx.Agents().Get(r.AgentID)
		if err != nil || a.TokenBudget == nil || *a.TokenBudget >= *t.Budget {
			return err == nil, err
		}
	}
	return len(rejected) == selection.MaxListed, nil
}

// maxQueuedTotal is the maximum number of tasks in all queues together.
const maxQueuedTotal = 20_000

// checkQueueLimit returns errs.Busy if the queue of the task is full.
func (op *operation) checkQueueLimit(t models.Task) error {
	if n := op.queues.queued.Load(); n >= maxQueuedTotal {
		return errs.New(errs.Busy, "%d tasks are already waiting for agents; try again later", n)
	}
	n, err := op.tx.Tasks().CountWaiting(t.QueueKey, op.opts.MaxQueue)
	if err == nil && n >= op.opts.MaxQueue {
		err = errs.New(errs.Busy, "%d tasks are already waiting for such an agent; try again later", n)
	}
	return err
}
