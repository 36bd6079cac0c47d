package workflow

import (
	"context"
	"encoding/json"
	"time"

	"comet/internal/errs"
	"comet/internal/tools"
	"comet/internal/workflow/plan"
	"comet/models"
	"comet/store/workflows"
)

// advance decides what follows, and changes the state in memory accordingly. It returns the steps that begin after the
// commit.
func (x *execution) advance(ctx context.Context, now time.Time) ([]dispatch, error) {
	if err := x.checkStanding(ctx); err != nil {
		return nil, err
	}
	for {
		if x.halted != nil {
			x.skipPending(now)
		}
		next := x.plan.Next(x.progress(ctx))
		for _, i := range next.Skip {
			x.end(i, plan.Skipped, now)
		}
		var run []dispatch
		repeat := false // a step has failed before it began, or needs approval: decide again
		for _, i := range next.Run {
			d, err := x.begin(ctx, i, now)
			switch {
			case err != nil && ctx.Err() != nil, errs.Is(err, errs.Unavailable): // of the database
				x.undo(run)
				return nil, err
			case err != nil:
				x.fail(i, err, now)
				repeat = true
			case d == nil: // it needs approval
				repeat = true
			default:
				run = append(run, *d)
			}
		}
		if repeat {
			x.undo(run)
			continue
		}
		for _, d := range run {
			x.emitStep(EventStepStarted, d.position)
		}
		switch {
		case next.Ended:
			x.finish(next.Failed, now)
		case next.Pause != "":
			if paused, err := x.pause(ctx, next, now); err != nil {
				return nil, err
			} else if !paused {
				continue
			}
		}
		return run, nil
	}
}

// checkStanding halts a workflow whose token is no longer accepted.
func (x *execution) checkStanding(ctx context.Context) error {
	by, err := x.env.Auth.Standing(ctx, x.by)
	switch {
	case errs.Is(err, errs.Unauthenticated):
		x.halted = tools.NewError(errs.ToolDenied, "PERMISSION_DENIED", "%s; no further step begins", errs.From(err).Detail)
	case err != nil:
		return err
	default:
		x.by = by
	}
	return nil
}

func (x *execution) progress(ctx context.Context) plan.Progress {
	now := plan.Progress{
		States: make([]plan.State, len(x.steps)), ValidateLayers: x.settings.ValidateLayers, Confirmed: x.row.Confirmed,
		AbortOnError: x.settings.AbortOnError, MaxRunning: x.env.opts.MaxRunning,
		NeedsApproval: func(i int) bool { return x.needsApproval(ctx, i) },
		Approved:      func(i int) bool { return x.steps[i].Approved != "" },
		Cost:          x.cost(ctx), Left: x.left(),
	}
	for i := range x.steps {
		now.States[i] = x.state(i)
	}
	return now
}

// needsApproval reports whether a step needs approval. A tool that cannot be called needs none: the step fails.
func (x *execution) needsApproval(ctx context.Context, i int) bool {
	class := models.ToolDestructive // of code and of agents
	if x.settings.Approvals != "" && x.plan.Steps[i].Type == plan.KindTool {
		t, err := x.lookup(ctx, i)
		if err != nil {
			return false
		}
		class = t.Class
	}
	return x.classNeedsApproval(i, class)
}

// classNeedsApproval reports whether a step needs approval if its tool has a class.
func (x *execution) classNeedsApproval(i int, class models.ToolClass) bool {
	if x.plan.Steps[i].Approve || x.settings.Approvals == "" {
		return x.plan.Steps[i].Approve
	}
	return class == models.ToolDestructive || class == x.settings.Approvals
}

// begin marks a step as running. It returns nil if the step needs approval, for the first time or after a change.
func (x *execution) begin(ctx context.Context, i int, now time.Time) (*dispatch, error) {
	shown, err := x.show(ctx, i)
	if err != nil {
		return nil, err
	}
	s := &x.steps[i]
	if s.Approved != "" && s.Approved != shown.Digest || s.Approved == "" && x.classNeedsApproval(i, shown.Class) {
		s.Approved, x.changed[i] = "", true
		return nil, nil
	}
	s.State, s.StartedAt, s.EndedAt, s.ErrorCode, s.Error = int(plan.Running), now, time.Time{}, "", ""
	s.Attempt++
	s.Repeatable = shown.repeatable
	x.changed[i], x.costs[i] = true, tools.EstimateTokens(len(shown.Arguments))
	return &dispatch{position: i, attempt: s.Attempt, arguments: shown.Arguments, target: shown.target}, nil
}

// maxShown limits the steps of a checkpoint; a later checkpoint shows further ones.
const maxShown = 16

// pause pauses the workflow with a checkpoint. It reports false if one of the steps to show has failed instead.
func (x *execution) pause(ctx context.Context, next plan.Next, now time.Time) (paused bool, err error) {
	c := workflows.Checkpoint{
		ID: newID("cp_"), WorkflowID: x.row.ID, Kind: string(next.Pause), Layer: next.Layer, State: workflows.Open,
		CreatedAt: now, ExpiresAt: now.Add(x.env.opts.PauseTTL),
	}
	shown := []shownStep{}
	if next.Pause != plan.PauseLayer {
		for _, i := range next.Steps[:min(len(next.Steps), maxShown)] {
			s, err := x.show(ctx, i)
			switch {
			case err != nil && ctx.Err() != nil, errs.Is(err, errs.Unavailable):
				return false, err
			case err != nil && next.Pause != plan.PauseUncertain:
				x.fail(i, err, now)
				return false, nil
			}
			s.Error = x.steps[i].Error
			shown = append(shown, s)
		}
	}
	if c.Shown, err = json.Marshal(shown); err != nil {
		return false, err
	}
	if c.Digest, err = digest(x.row.ID, c.Shown); err != nil {
		return false, err
	}
	x.row.State, x.row.Pause, x.row.Holder, x.asked = workflows.Paused, string(next.Pause), "", &c
	x.emit(EventPaused, EventData{Pause: c.Kind, CheckpointID: c.ID, Layer: c.Layer})
	return true, nil
}
