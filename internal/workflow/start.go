package workflow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"comet/internal/errs"
	"comet/internal/tools"
	"comet/internal/usage"
	"comet/internal/workflow/intent"
	"comet/internal/workflow/plan"
	"comet/models"
	"comet/store"
	"comet/store/workflows"
)

// Begin checks, stores and starts a workflow. If the plan for an intent is not Ready, it starts nothing and returns the plan. It
// returns errs.InvalidRequest with all violations of the request and the plan, the errors of CallTool for a tool that the
// caller may not call, and WORKFLOW_LIMIT if the token or the server has too many workflows that have not ended. If the request
// is a repetition, once has the response afterwards; Begin then starts nothing and returns the zero View.
func (e *Engine) Begin(ctx context.Context, by tools.Caller, r Request, once *models.Idempotency) (v View, p Proposal, err error) {
	if r.Intent != nil && once != nil { // the same intent may have another plan now
		unknown := errors.New("the request is new")
		err = e.Store.Once(ctx, once, func(*store.Tx) (any, error) { return nil, unknown })
		if !errors.Is(err, unknown) {
			return v, Proposal{Status: Ready}, err
		}
	}
	x, p, err := e.check(ctx, by, r)
	if err != nil || p.Status != Ready {
		return v, p, err
	}
	defer e.startSpan(ctx, x, by.Traceparent).End()
	x.emit(EventStarted, EventData{})
	first, err := x.advance(ctx, x.row.CreatedAt)
	if err != nil {
		return v, p, err
	}
	x.checkpoint = x.asked
	if v, err = x.view(); err != nil {
		return v, p, err
	}
	v.Version++
	err = e.commit(ctx, x, first, func(tx *store.Tx) error {
		return tx.Idempotent(once, func() (any, error) {
			err := x.create(tx)
			if err == nil && r.With != nil {
				err = r.With(tx, x.row.ID)
			}
			return v, err
		})
	}, func() bool { return once == nil || once.Replay == nil })
	if err != nil || once != nil && once.Replay != nil {
		return View{}, p, e.refused(ctx, x.row.Payer, x.row.Budget, err)
	}
	return v, p, nil
}

// Plan makes the same checks as Begin, but starts nothing.
func (e *Engine) Plan(ctx context.Context, by tools.Caller, r Request) (Proposal, error) {
	_, p, err := e.check(ctx, by, r)
	return p, err
}

// check returns the execution of a workflow that is not stored yet, and its plan. If the plan is not Ready, it returns only the
// plan. Its errors are those of Begin.
func (e *Engine) check(ctx context.Context, by tools.Caller, r Request) (x *execution, p Proposal, err error) {
	p.Status = Ready
	at, err := r.pointer()
	if err == nil && r.Intent != nil {
		if p, err = e.propose(ctx, by, intent.Request{Sentence: *r.Intent}); err != nil {
			err = ofIntent(err)
		}
		r.Workflow = p.Workflow
	}
	if err != nil || p.Status != Ready {
		return nil, p, err
	}
	x = e.newExecution(by, r.Config.Settings())
	if r.Definition != nil {
		err = x.define(ctx, *r.Definition, at)
	} else {
		x.plan, err = plan.New(r.Workflow.Tasks, at)
	}
	if err != nil {
		return nil, p, err
	}
	x.setRow(by)
	if err = x.checkAgentSteps(at, 0); err != nil {
		return nil, p, err
	}
	targets, err := x.addSteps(ctx)
	if err == nil {
		x.describe(&p, targets)
	}
	return x, p, err
}

// newExecution returns the execution of a workflow without a plan.
func (e *Engine) newExecution(by tools.Caller, settings Settings) *execution {
	return &execution{env: e.environment, settings: settings, by: by.Principal, changed: map[int]bool{}, costs: map[int]int64{}}
}

// addSteps adds the steps that only the plan has, and returns their tools.
func (x *execution) addSteps(ctx context.Context) (targets []tools.Target, err error) {
	for i := len(x.steps); i < len(x.plan.Steps); i++ {
		t, err := x.checkStep(ctx, i)
		if err != nil {
			return nil, err
		}
		text, err := json.Marshal(x.plan.Steps[i].Step)
		if err != nil {
			return nil, err
		}
		targets = append(targets, t)
		x.steps = append(x.steps, workflows.Step{WorkflowID: x.row.ID, Position: i, Definition: text, FirstLayer: x.plan.Steps[i].FirstLayer})
	}
	return targets, nil
}

// create stores a new workflow. It returns WORKFLOW_LIMIT if its token, or the server, has too many workflows that have not
// ended.
func (x *execution) create(tx *store.Tx) error {
	active, all, err := workflows.CountActive(tx, x.row.TokenID, x.env.opts.MaxTotal)
	switch {
	case err != nil:
		return err
	case active >= x.env.opts.MaxActive:
		return tools.NewError(errs.RateLimited, "WORKFLOW_LIMIT", "the token %q has %d workflows that have not ended, which is the limit; wait until one has ended, or abort one", x.row.Actor, active)
	case all >= x.env.opts.MaxTotal:
		return tools.NewError(errs.RateLimited, "WORKFLOW_LIMIT", "the server has %d workflows that have not ended, which is its limit (workflows.max_active); try again later", all).With("retry_after", fullWait)
	}
	if x.row.Budget > 0 {
		r, err := x.env.Ledger.ReserveIn(tx, x.row.Payer, x.row.Budget, usage.Lasting)
		if err != nil {
			return err
		}
		x.row.ReservationID = r.ID
	}
	row := x.row
	row.Version++
	if row.Options, err = json.Marshal(x.settings); err != nil {
		return err
	}
	if err := workflows.Create(tx, row, x.steps); err != nil {
		return err
	}
	if err := x.saveNew(tx); err != nil {
		return err
	}
	return x.payIn(tx)
}

// fullWait is the "retry_after", in seconds, while the server has too many workflows.
const fullWait = 10

// setRow sets the columns of the row that do not depend on the plan.
func (x *execution) setRow(by tools.Caller) {
	now := x.env.Store.Now()
	payer := by.Payer
	if payer == "" {
		payer = models.RootAgentID
		if agent := by.Principal.AgentID; agent != nil {
			payer = *agent
		}
	}
	x.row = workflows.Workflow{
		ID: newID(IDPrefix), Definition: x.row.Definition, DefinitionVersion: x.row.DefinitionVersion, Input: x.row.Input, TokenID: by.Principal.TokenID, Actor: by.Principal.Name, Payer: payer, Source: by.Source, Session: by.Session, TraceID: by.TraceID,
		Budget: x.settings.Budget, Reserved: x.settings.Budget, Approver: string(x.settings.Approver), Holder: x.env.Store.Process(), CreatedAt: now, UpdatedAt: now,
	}
}

// minAgentTimeoutMS is the shortest timeout of a task, in milliseconds.
const minAgentTimeoutMS = 100

// checkAgentSteps returns errs.InvalidRequest for agent steps whose timeout is too short for a task and, if the workflow has a
// budget, for agent steps without a budget or with a larger one. It checks the steps from index first on; at is their JSON
// pointer.
func (x *execution) checkAgentSteps(at string, first int) error {
	var v errs.Violations
	short := func(pointer, name string, ms int64) {
		v.Add(errs.InvalidRequest, pointer, "min", "%s must be at least %d for the type agent_task, or 0 for the default, not %d", name, minAgentTimeoutMS, ms)
	}
	common := false
	for i, s := range x.plan.Steps[first:] {
		if s.Type != plan.KindAgent {
			continue
		}
		if common = common || s.TimeoutMS == 0; s.TimeoutMS > 0 && s.TimeoutMS < minAgentTimeoutMS {
			short(fmt.Sprintf("%s/%d/timeout_ms", at, i), "timeout_ms", s.TimeoutMS)
		}
		switch pointer := fmt.Sprintf("%s/%d/budget", at, i); {
		case x.row.Budget == 0:
		case s.Budget == nil:
			v.Add(errs.InvalidRequest, pointer, "required", "budget is required for an agent_task of a workflow with a budget")
		case *s.Budget > x.row.Budget:
			v.Add(errs.InvalidRequest, pointer, "max", "the budget of a task must not exceed that of the workflow, %d", x.row.Budget)
		}
	}
	if ms := x.settings.TimeoutMS; common && ms > 0 && ms < minAgentTimeoutMS {
		short("/config/task_timeout_ms", "task_timeout_ms", ms)
	}
	return v.Err()
}

// checkStep returns the tool of a step, and an error for a step that its caller may not execute.
func (x *execution) checkStep(ctx context.Context, i int) (t tools.Target, err error) {
	step := x.plan.Steps[i]
	if step.Type == plan.KindAgent {
		err = requireSend(x.by)
	} else {
		t, err = x.lookup(ctx, i)
		if err == nil && step.Type == plan.KindTool && worksOnWorkflows(t) {
			err = tools.NewError(errs.InvalidRequest, "INVALID_ARGUMENTS", "a step may not call %s", t.ID)
		}
	}
	if err != nil {
		err = tools.WithDetails(errs.From(err), map[string]any{"step": step.ID})
	}
	return t, err
}
