package workflow

import (
	"context"
	"encoding/json"

	"comet/internal/errs"
	"comet/internal/tools"
	"comet/internal/workflow/plan"
	"comet/models"
	"comet/store"
	"comet/store/workflows"
)

// Draft is a request to start a workflow.
type Draft struct {
	Steps    []plan.Step
	Settings Settings
	// Definition selects a stored workflow, whose steps replace Steps; nil for none.
	Definition *Invocation
}

// Begin checks, stores and starts a workflow. at is the JSON pointer of the steps or the invocation, for errors. It returns
// errs.InvalidRequest with all violations of the plan, the errors of CallTool for a tool that the caller may not call, and
// WORKFLOW_LIMIT if the token has too many workflows that have not ended. If the request is a repetition, once has the
// response afterwards; Begin then starts nothing and returns the zero View.
func (e *Engine) Begin(ctx context.Context, by tools.Caller, d Draft, at string, once *models.Idempotency) (v View, err error) {
	x := &execution{env: e.environment, settings: d.Settings, by: by.Principal, changed: map[int]bool{}}
	if d.Definition != nil {
		err = x.define(ctx, *d.Definition, at)
	} else {
		x.plan, err = plan.New(d.Steps, at)
	}
	if err != nil {
		return v, err
	}
	if err = x.setRow(by); err != nil {
		return v, err
	}
	if err := x.addSteps(ctx); err != nil {
		return v, err
	}
	x.emit(EventStarted, EventData{})
	first, err := x.advance(ctx, x.row.CreatedAt)
	if err != nil {
		return v, err
	}
	x.checkpoint = x.asked
	if v, err = x.view(); err != nil {
		return v, err
	}
	v.Version++
	err = e.commit(ctx, x, first, func(tx *store.Tx) error {
		return tx.Idempotent(once, func() (any, error) { return v, x.create(tx) })
	}, func() bool { return once == nil || once.Replay == nil })
	if err != nil || once != nil && once.Replay != nil {
		return View{}, err
	}
	return v, nil
}

// addSteps adds the steps that only the plan has.
func (x *execution) addSteps(ctx context.Context) error {
	for i := len(x.steps); i < len(x.plan.Steps); i++ {
		if err := x.checkStep(ctx, i); err != nil {
			return err
		}
		text, err := json.Marshal(x.plan.Steps[i].Step)
		if err != nil {
			return err
		}
		x.steps = append(x.steps, workflows.Step{WorkflowID: x.row.ID, Position: i, Definition: text, FirstLayer: x.plan.Steps[i].FirstLayer})
	}
	return nil
}

// create stores a new workflow. It returns WORKFLOW_LIMIT if its token has too many that have not ended.
func (x *execution) create(tx *store.Tx) error {
	active, err := workflows.CountActive(tx, x.row.TokenID)
	if err == nil && active >= x.env.opts.MaxActive {
		err = tools.NewError(errs.RateLimited, "WORKFLOW_LIMIT", "the token %q has %d workflows that have not ended, which is the limit; wait for one, or abort one", x.row.Actor, active)
	}
	if err != nil {
		return err
	}
	row := x.row
	row.Version++
	if err := workflows.Create(tx, row, x.steps); err != nil {
		return err
	}
	return x.saveNew(tx)
}

// setRow sets the members of the row that do not depend on the plan.
func (x *execution) setRow(by tools.Caller) error {
	now := x.env.Store.Now()
	options, err := json.Marshal(x.settings)
	payer := by.Payer
	if payer == "" {
		payer = models.RootAgentID
		if agent := by.Principal.AgentID; agent != nil {
			payer = *agent
		}
	}
	x.row = workflows.Workflow{
		ID: newID("wf_"), Definition: x.row.Definition, DefinitionVersion: x.row.DefinitionVersion, Input: x.row.Input, TokenID: by.Principal.TokenID, Actor: by.Principal.Name, Payer: payer, Source: by.Source, Session: by.Session, TraceID: by.TraceID,
		Options: options, Holder: x.env.Store.Process(), CreatedAt: now, UpdatedAt: now,
	}
	return err
}

// checkStep returns an error for a step that its caller may not execute.
func (x *execution) checkStep(ctx context.Context, i int) error {
	step := x.plan.Steps[i]
	var err error
	if step.Type == plan.KindAgent {
		err = requireSend(x.by)
	} else {
		var t tools.Target
		t, err = x.lookup(ctx, i)
		if err == nil && step.Type == plan.KindTool && t.IsGateway() && t.ID != codeTool && t.Class != models.ToolRead {
			err = tools.NewError(errs.InvalidRequest, "INVALID_ARGUMENTS", "a step may not call %s", t.ID)
		}
	}
	if err != nil {
		return tools.WithDetails(errs.From(err), map[string]any{"step": step.ID})
	}
	return nil
}
