package workflow

import (
	"context"
	"encoding/json"
	"fmt"

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
}

// Begin checks, stores and starts a workflow. at is the JSON pointer of the steps, for errors. It returns
// errs.InvalidRequest with all violations of the plan, the errors of CallTool for a tool that the caller may not call, and
// WORKFLOW_LIMIT if the token has too many workflows that have not ended. If the request is a repetition, once has the
// response afterwards; Begin then starts nothing and returns the zero View.
func (e *Engine) Begin(ctx context.Context, by tools.Caller, d Draft, at string, once *models.Idempotency) (v View, err error) {
	x, _, err := e.check(ctx, by, d, at)
	if err != nil {
		return v, err
	}
	defer e.startSpan(ctx, x, by.Traceparent).End()
	if x.row.Options, err = json.Marshal(x.settings); err != nil {
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

// check returns the execution of a workflow that is not stored yet, and the tools of its steps. Its errors are those of Begin.
func (e *Engine) check(ctx context.Context, by tools.Caller, d Draft, at string) (x *execution, targets []tools.Target, err error) {
	p, err := plan.New(d.Steps, at)
	if err == nil {
		err = checkAgentTimeouts(p, d.Settings, at)
	}
	if err != nil {
		return nil, nil, err
	}
	x = &execution{env: e.environment, settings: d.Settings, plan: p, by: by.Principal, changed: map[int]bool{}}
	x.row = e.newRow(by)
	for i := range p.Steps {
		t, err := x.checkStep(ctx, i)
		if err != nil {
			return nil, nil, err
		}
		text, err := json.Marshal(p.Steps[i].Step)
		if err != nil {
			return nil, nil, err
		}
		targets = append(targets, t)
		x.steps = append(x.steps, workflows.Step{WorkflowID: x.row.ID, Position: i, Definition: text})
	}
	return x, targets, nil
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

func (e *Engine) newRow(by tools.Caller) workflows.Workflow {
	now := e.Store.Now()
	payer := by.Payer
	if payer == "" {
		payer = models.RootAgentID
		if agent := by.Principal.AgentID; agent != nil {
			payer = *agent
		}
	}
	return workflows.Workflow{
		ID: newID("wf_"), TokenID: by.Principal.TokenID, Actor: by.Principal.Name, Payer: payer, Source: by.Source, Session: by.Session, TraceID: by.TraceID,
		Holder: e.Store.Process(), CreatedAt: now, UpdatedAt: now,
	}
}

// minAgentTimeoutMS is the shortest timeout of a task, in milliseconds.
const minAgentTimeoutMS = 100

// checkAgentTimeouts returns errs.InvalidRequest if an agent step has a timeout that a task may not have. at is the JSON
// pointer of the steps.
func checkAgentTimeouts(p *plan.Plan, settings Settings, at string) error {
	var violations errs.Violations
	short := func(pointer, name string, ms int64) {
		violations.Add(errs.InvalidRequest, pointer, "min", "%s must be at least %d for the type agent_task, or 0 for the default, not %d", name, minAgentTimeoutMS, ms)
	}
	common := false
	for i, s := range p.Steps {
		switch {
		case s.Type != plan.KindAgent:
		case s.TimeoutMS == 0:
			common = true
		case s.TimeoutMS < minAgentTimeoutMS:
			short(fmt.Sprintf("%s/%d/timeout_ms", at, i), "timeout_ms", s.TimeoutMS)
		}
	}
	if ms := settings.TimeoutMS; common && ms > 0 && ms < minAgentTimeoutMS {
		short("/config/task_timeout_ms", "task_timeout_ms", ms)
	}
	return violations.Err()
}

// checkStep returns the tool of a step, and an error for a step that its caller may not execute.
func (x *execution) checkStep(ctx context.Context, i int) (t tools.Target, err error) {
	step := x.plan.Steps[i]
	if step.Type == plan.KindAgent {
		err = requireSend(x.by)
	} else {
		t, err = x.lookup(ctx, i)
		if err == nil && step.Type == plan.KindTool && t.IsGateway() && t.ID != codeTool && t.Class != models.ToolRead {
			err = tools.NewError(errs.InvalidRequest, "INVALID_ARGUMENTS", "a step may not call %s", t.ID)
		}
	}
	if err != nil {
		err = tools.WithDetails(errs.From(err), map[string]any{"step": step.ID})
	}
	return t, err
}
