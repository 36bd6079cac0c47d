package workflow

import (
	"cmp"
	"context"
	"encoding/json"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/tools"
	"comet/internal/workflow/plan"
	"comet/models"
	"comet/store"
	"comet/store/workflows"
)

// Decision is the decision on a checkpoint.
type Decision struct {
	Approved bool
	Feedback string
	// Digest is the expected digest of the checkpoint, "" for any.
	Digest string
	// Resolution is the decision about uncertain steps, or about an exhausted budget.
	Resolution Resolution
	// Results are the results of uncertain steps by their ids, for ResolutionAccept.
	Results map[string]json.RawMessage
	// Budget is the new total, for ResolutionRaise.
	Budget int64
	// Via is how a person has decided without a token of their own, "" for a decision of the token of the request.
	Via Via
	// With commits rows of the caller in the transaction that stores the decision, nil for none. It may be called again if the
	// transaction is repeated.
	With func(*store.Tx) error
}

// Resolution is a decision about steps whose results were lost, or about an exhausted budget.
type Resolution string

// Values of Resolution.
const (
	// ResolutionRetry runs the steps again.
	ResolutionRetry Resolution = "retry"
	// ResolutionAccept treats the steps as successful, with the results of the decision.
	ResolutionAccept Resolution = "accept"
	// ResolutionSkip skips the steps and those that depend on them.
	ResolutionSkip Resolution = "skip"
	// ResolutionRaise raises the budget of the workflow.
	ResolutionRaise Resolution = "raise"
)

// Continue confirms the results of a layer. It returns as soon as the workflow continues; Wait waits for the next pause. It
// has no effect on a workflow that runs, and returns WORKFLOW_STATE for one that has ended or waits for another decision, and
// CHECKPOINT_STALE if checkpoint is neither "" nor the open one.
func (e *Engine) Continue(ctx context.Context, by models.Principal, id, checkpoint, reason string) error {
	e.Tools.WaitForUpstreams(ctx, upstreamsWait)
	_, err := e.transitionOf(ctx, by, id, func(x *execution) error {
		if err := requireOwner(x.row, by); err != nil {
			return err
		}
		switch {
		case x.row.State == workflows.Running:
			return errUnchanged
		case x.row.State != workflows.Paused:
			return errState("the workflow %s cannot continue: its status is %s", id, status(x.row))
		case x.row.Pause != string(plan.PauseLayer):
			return errState("the workflow %s waits for a decision on the checkpoint %s; call agentcards:approval_response", id, x.checkpoint.ID)
		}
		if checkpoint != "" && checkpoint != x.checkpoint.ID {
			stale := tools.NewError(errs.Conflict, "CHECKPOINT_STALE", "the checkpoint %s is not open; the workflow waits at %s, after layer %d", checkpoint, x.checkpoint.ID, x.checkpoint.Layer)
			return tools.WithDetails(stale, map[string]any{"checkpoint_id": x.checkpoint.ID})
		}
		x.row.Confirmed = x.checkpoint.Layer
		x.settle(workflows.Approved, by.TokenID, reason)
		return nil
	})
	return err
}

// Decide applies a decision to the open checkpoint of a workflow. The same decision again has no effect. If what the
// checkpoint shows has changed, nothing is approved, and the error CHECKPOINT_STALE names the new checkpoint. A principal
// that may not decide gets APPROVAL_DENIED.
func (e *Engine) Decide(ctx context.Context, by models.Principal, id, checkpoint string, d Decision) error {
	e.Tools.WaitForUpstreams(ctx, upstreamsWait)
	payer, more := "", int64(0)
	now, err := e.transitionOf(ctx, by, id, func(x *execution) error {
		open := x.checkpoint
		payer, more = x.row.Payer, d.Budget-x.row.Used-x.row.Reserved
		if open == nil || open.ID != checkpoint {
			return x.checkEarlier(ctx, checkpoint, d)
		}
		if err := x.mayDecide(by, d); err != nil {
			return err
		}
		if open.State != workflows.Open {
			return x.repeated(ctx, *open, d)
		}
		if d.Digest != "" && d.Digest != open.Digest {
			return tools.NewError(errs.Conflict, "CHECKPOINT_STALE", "the digest is not that of the checkpoint %s, which is %s", open.ID, open.Digest)
		}
		if !d.Approved {
			x.settle(workflows.Rejected, by.TokenID, d.Feedback)
			x.decided.Via, x.with = string(d.Via), d.With
			x.stop(codeRejected, d.Feedback, x.env.Store.Now())
			return nil
		}
		return x.accept(ctx, by, d)
	})
	if err != nil {
		return e.refused(ctx, payer, more, err)
	}
	if now.staleID == checkpoint {
		err = tools.WithDetails(errStale(checkpoint), map[string]any{"checkpoint_id": now.checkpointID})
	}
	return err
}

func errStale(id string) *errs.Error {
	return tools.NewError(errs.Conflict, "CHECKPOINT_STALE", "what the checkpoint %s shows has changed; nothing was approved. Decide on the newest checkpoint", id)
}

// accept applies an approval to the open checkpoint.
func (x *execution) accept(ctx context.Context, by models.Principal, d Decision) error {
	if x.halted != nil && x.row.Pause != string(plan.PauseUncertain) {
		x.settle(workflows.Stale, by.TokenID, d.Feedback)
		return nil
	}
	switch plan.Pause(x.row.Pause) {
	case plan.PauseLayer:
		x.row.Confirmed = x.checkpoint.Layer
	case plan.PauseUncertain:
		if d.Resolution == ResolutionRetry && x.halted == nil { // a workflow that is halted ends
			if current, err := x.approve(ctx); err != nil || !current {
				return x.stale(by, d, err)
			}
		}
		if err := x.resolve(d); err != nil {
			return err
		}
	case plan.PauseBudget:
		if err := x.raise(d); err != nil {
			return err
		}
	default:
		if current, err := x.approve(ctx); err != nil || !current {
			return x.stale(by, d, err)
		}
	}
	x.settle(workflows.Approved, by.TokenID, d.Feedback)
	x.decided.Via, x.with = string(d.Via), d.With
	if kind := plan.Pause(x.checkpoint.Kind); kind == plan.PauseUncertain || kind == plan.PauseBudget {
		x.decided.Resolution = string(d.Resolution)
	}
	return nil
}

// stale settles the open checkpoint as stale unless err is set, and returns err.
func (x *execution) stale(by models.Principal, d Decision, err error) error {
	if err == nil {
		x.staleID = x.checkpoint.ID
		x.settle(workflows.Stale, by.TokenID, d.Feedback)
	}
	return err
}

// approve approves the steps that the open checkpoint shows. It reports false if what was shown has changed since; then
// none is approved.
func (x *execution) approve(ctx context.Context) (current bool, err error) {
	shown, err := shownSteps(*x.checkpoint)
	if err != nil {
		return false, err
	}
	for _, s := range shown {
		now, err := x.show(ctx, x.position(s.ID))
		if errs.Is(err, errs.Unavailable) || ctx.Err() != nil {
			return false, err
		}
		if err != nil || now.Digest != s.Digest {
			return false, nil //nolint:nilerr // what cannot be shown any more has changed
		}
	}
	for _, s := range shown {
		i := x.position(s.ID)
		x.steps[i].Approved, x.changed[i] = s.Digest, true
	}
	return true, nil
}

// resolve applies the resolution to the steps of the open checkpoint.
func (x *execution) resolve(d Decision) error {
	shown, err := shownSteps(*x.checkpoint)
	if err != nil {
		return err
	}
	now := x.env.Store.Now()
	for _, s := range shown {
		i := x.position(s.ID)
		switch d.Resolution {
		case ResolutionRetry: // accept has approved the step
			x.steps[i].State, x.changed[i] = int(plan.Pending), true
		case ResolutionSkip:
			x.end(i, plan.Skipped, now)
		case ResolutionAccept:
			value, ok := d.Results[s.ID]
			if !ok || !json.Valid(value) {
				return tools.NewError(errs.InvalidRequest, "INVALID_ARGUMENTS", "results must have the result of the step %q for the resolution accept", s.ID)
			}
			if err := x.checkResults(len(value)); err != nil {
				return err
			}
			x.succeed(i, value, now)
		default:
			return tools.NewError(errs.InvalidRequest, "INVALID_ARGUMENTS", "the results of steps were lost: resolution must be retry, accept or skip, not %q", input.Clip(string(d.Resolution)))
		}
	}
	return nil
}

// checkEarlier returns the error for a decision on a checkpoint that is not the newest one.
func (x *execution) checkEarlier(ctx context.Context, id string, d Decision) error {
	c, err := workflows.GetCheckpoint(x.env.Store.Reads(ctx), x.row.ID, id)
	if errs.Is(err, errs.NotFound) {
		return tools.NewError(errs.NotFound, "CHECKPOINT_NOT_FOUND", "the workflow %s has no checkpoint %q", x.row.ID, input.Clip(id))
	}
	if err != nil {
		return err
	}
	if err = x.repeated(ctx, c, d); c.State == workflows.Stale && x.checkpoint.State == workflows.Open {
		err = tools.WithDetails(errs.From(err), map[string]any{"checkpoint_id": x.checkpoint.ID})
	}
	return err
}

// repeated returns errUnchanged if d repeats the decision that was made, otherwise CHECKPOINT_STALE or WORKFLOW_STATE.
func (x *execution) repeated(ctx context.Context, c workflows.Checkpoint, d Decision) error {
	switch {
	case c.State == workflows.Stale:
		return errStale(c.ID)
	case c.State == workflows.Rejected && !d.Approved:
		return errUnchanged
	case c.State != workflows.Approved || !d.Approved:
		return errState("the checkpoint %s was already %s", c.ID, c.State)
	case c.Resolution != "" && c.Resolution != string(d.Resolution):
		return errState("the checkpoint %s was already approved with the resolution %s", c.ID, c.Resolution)
	case c.Kind == string(plan.PauseBudget) && c.ID == x.checkpoint.ID && d.Budget != x.row.Budget:
		return errState("the budget of the workflow was already raised to %d", x.row.Budget)
	case c.Resolution != string(ResolutionAccept):
		return errUnchanged
	}
	shown, err := shownSteps(c)
	for _, s := range shown {
		var accepted json.RawMessage
		if accepted, err = x.result(ctx)(x.position(s.ID)); err != nil {
			break
		}
		if !plan.Equal(accepted, d.Results[s.ID]) {
			return errState("the checkpoint %s was already approved with another result of the step %q", c.ID, s.ID)
		}
	}
	return cmp.Or(err, errUnchanged)
}

// Abort ends a workflow early. It returns WORKFLOW_STATE for one that has ended without being aborted.
func (e *Engine) Abort(ctx context.Context, by models.Principal, id, reason string) error {
	row, err := workflows.Get(e.Store.Reads(ctx), id)
	if err = e.present(ctx, row, err, by, id); err == nil {
		err = requireOwner(row, by)
	}
	if err != nil {
		return err
	}
	if r := e.held(id); r != nil {
		select {
		case r.aborts <- abort{reason: reason}:
			select {
			case <-r.done:
			case <-ctx.Done():
				return ctx.Err()
			}
		case <-r.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	_, err = e.transitionOf(ctx, by, id, func(x *execution) error {
		switch {
		case x.row.State == workflows.Aborted:
			return errUnchanged
		case x.row.State > workflows.Paused:
			return errState("the workflow %s has already ended: its status is %s", id, status(x.row))
		case x.row.State == workflows.Paused:
			x.settle(workflows.Rejected, by.TokenID, reason)
		}
		x.stop("", reason, e.Store.Now())
		return nil
	})
	if err == nil {
		err = e.cancelTasks(ctx, id)
	}
	return err
}

// cancelTasks cancels the tasks of the agent steps of an aborted workflow.
func (e *Engine) cancelTasks(ctx context.Context, id string) error {
	tasks, err := workflows.Tasks(e.Store.Reads(ctx), id)
	for _, task := range tasks {
		if _, cancelErr := e.Orchestrator.Cancel(ctx, task, "the workflow was aborted", nil); cancelErr != nil && !errs.Is(cancelErr, errs.TaskState) {
			err = cancelErr
		}
	}
	return err
}
