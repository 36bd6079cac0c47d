package workflow

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/tools"
	"comet/internal/workflow/plan"
	"comet/models"
	"comet/store"
	"comet/store/columns"
	"comet/store/workflows"
)

// Settings are the options of a workflow.
type Settings struct {
	// ValidateLayers pauses after each layer (AgentCards, “per_layer_validation”).
	ValidateLayers bool `json:"per_layer_validation,omitempty"`
	// AbortOnError skips all steps that have not begun when one has failed.
	AbortOnError bool `json:"abort_on_error,omitempty"`
	// Approvals is the lowest class of tools that need approval, "" for none: write or destructive.
	Approvals models.ToolClass `json:"approvals,omitempty"`
	// TimeoutMS is the timeout of steps without their own, in milliseconds; 0 means that of the engine.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
}

// Values of Workflow.ErrorCode besides the names of errors of tools.
const (
	codeRejected = "REJECTED"
	codeExpired  = "EXPIRED"
	codeLost     = "RESULT_LOST"
)

// maxCached is the longest result that the holder keeps in memory, in bytes; longer ones are read again.
const maxCached = 64 << 10

// execution is the state of a workflow as its holder knows it.
type execution struct {
	engine     *Engine
	row        workflows.Workflow
	settings   Settings
	plan       *plan.Plan
	steps      []workflows.Step
	checkpoint *workflows.Checkpoint // the newest one, nil for none
	by         models.Principal      // the owner as it was at the last dispatch
	halted     error                 // why no further step may begin, nil for no reason

	// changed are the steps that the next transaction stores, and events what it emits.
	changed map[int]bool
	events  []store.EventDraft
	decided *workflows.Checkpoint // the decision that it stores, nil for none
	asked   *workflows.Checkpoint // the checkpoint that it creates, nil for none
	staleID string                // the checkpoint that has become stale, "" for none
}

// dispatch is a step that begins after the commit.
type dispatch struct {
	position  int
	attempt   int
	arguments json.RawMessage
}

// load reads the state of a workflow. If another process changes it meanwhile, save returns workflows.ErrFenced.
func (e *Engine) load(from store.Source, row workflows.Workflow) (*execution, error) {
	x := &execution{engine: e, row: row, by: models.Principal{TokenID: row.TokenID, Name: row.Actor}, changed: map[int]bool{}}
	if err := json.Unmarshal(row.Options, &x.settings); err != nil {
		return nil, err
	}
	var err error
	if x.steps, err = workflows.Steps(from, row.ID, maxCached); err != nil {
		return nil, err
	}
	defined := make([]plan.Step, len(x.steps))
	for i, s := range x.steps {
		if err := json.Unmarshal(s.Definition, &defined[i]); err != nil {
			return nil, err
		}
	}
	if x.plan, err = plan.New(defined, ""); err != nil {
		return nil, err
	}
	newest, err := workflows.NewestCheckpoint(from, row.ID)
	if err == nil {
		x.checkpoint = &newest
	} else if errs.Is(err, errs.NotFound) {
		err = nil
	}
	return x, err
}

// advance decides what follows, and changes the state accordingly. It returns the steps that begin after the commit. It
// writes nothing.
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
		repeat := false // a step has failed before it began, so that others may follow
		for _, i := range next.Run {
			d, err := x.begin(ctx, i, now)
			switch {
			case err != nil && ctx.Err() != nil, errs.Is(err, errs.Unavailable): // of the database
				x.undo(run)
				return nil, err
			case err != nil:
				x.fail(i, err, now)
				repeat = true
			case d == nil: // it has to be approved again
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
			x.emitStep(events.WorkflowStepStarted, d.position)
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

// undo makes steps pending again that advance has begun and not committed.
func (x *execution) undo(run []dispatch) {
	for _, d := range run {
		s := &x.steps[d.position]
		s.State, s.StartedAt = int(plan.Pending), time.Time{}
		s.Attempt--
	}
}

// checkStanding halts a workflow whose token is no longer accepted.
func (x *execution) checkStanding(ctx context.Context) error {
	by, err := x.engine.standing(ctx, x.by)
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

func (x *execution) skipPending(now time.Time) {
	for i := range x.steps {
		if x.state(i) == plan.Pending {
			x.end(i, plan.Skipped, now)
		}
	}
}

func (x *execution) state(i int) plan.State { return plan.State(x.steps[i].State) }

func (x *execution) progress(ctx context.Context) plan.Progress {
	now := plan.Progress{
		States: make([]plan.State, len(x.steps)), ValidateLayers: x.settings.ValidateLayers, Confirmed: x.row.Confirmed,
		AbortOnError: x.settings.AbortOnError, MaxRunning: x.engine.opts.MaxRunning,
		NeedsApproval: func(i int) bool { return x.needsApproval(ctx, i) },
		Approved:      func(i int) bool { return x.steps[i].Approved != "" },
	}
	for i := range x.steps {
		now.States[i] = x.state(i)
	}
	return now
}

// needsApproval reports whether a step needs approval. A tool that cannot be called needs none: the step fails.
func (x *execution) needsApproval(ctx context.Context, i int) bool {
	if x.plan.Steps[i].Approve || x.settings.Approvals == "" {
		return x.plan.Steps[i].Approve
	}
	class := models.ToolDestructive // of code and of agents
	if x.plan.Steps[i].Type == plan.KindTool {
		t, err := x.lookup(ctx, i)
		if err != nil {
			return false
		}
		class = t.Class
	}
	return class == models.ToolDestructive || class == x.settings.Approvals
}

func (x *execution) caller() tools.Caller {
	return tools.Caller{Principal: x.by, Source: tools.SourceWorkflow, Session: x.row.Session, Parent: x.row.ID, TraceID: x.row.TraceID, Payer: x.row.Payer}
}

// codeTool is the tool that executes the code of a step.
const codeTool = "agentcards:execute_code"

// lookup returns the tool of a tool or code step.
func (x *execution) lookup(ctx context.Context, i int) (tools.Target, error) {
	name := x.plan.Steps[i].Tool
	if x.plan.Steps[i].Type == plan.KindCode {
		name = codeTool
	}
	return x.engine.Tools.Lookup(ctx, x.caller(), name)
}

// begin makes a step run. It returns nil if the step has to be approved again, because what was approved has changed.
func (x *execution) begin(ctx context.Context, i int, now time.Time) (*dispatch, error) {
	shown, err := x.show(ctx, i)
	if err != nil {
		return nil, err
	}
	s := &x.steps[i]
	if s.Approved != "" && s.Approved != shown.Digest {
		s.Approved, x.changed[i] = "", true
		return nil, nil
	}
	s.State, s.StartedAt, s.EndedAt, s.ErrorCode, s.Error = int(plan.Running), now, time.Time{}, "", ""
	s.Attempt++
	s.Repeatable = shown.repeatable
	x.changed[i] = true
	return &dispatch{i, s.Attempt, shown.Arguments}, nil
}

// result returns the function that reads the result of a step that has succeeded.
func (x *execution) result(ctx context.Context) func(int) (json.RawMessage, error) {
	return func(i int) (json.RawMessage, error) {
		if r := x.steps[i].Result; r != nil {
			return r, nil
		}
		return workflows.Result(x.engine.Store.Reads(ctx), x.row.ID, i)
	}
}

// fail ends a step with an error.
func (x *execution) fail(i int, err error, now time.Time) {
	s := &x.steps[i]
	s.ErrorCode, s.Error = cmp.Or(tools.ErrorName(err), "INTERNAL_ERROR"), tools.Detail(err)
	x.end(i, plan.Error, now)
}

// end ends a step.
func (x *execution) end(i int, state plan.State, now time.Time) {
	s := &x.steps[i]
	s.State, s.EndedAt = int(state), now
	x.changed[i] = true
	x.emitStep(events.WorkflowStepEnded, i)
}

// finish ends a workflow whose steps have all ended.
func (x *execution) finish(failed bool, now time.Time) {
	x.row.State, x.row.EndedAt, x.row.Pause = workflows.Complete, now, ""
	if failed {
		x.row.State = workflows.Failed
	}
	if x.halted != nil {
		x.row.ErrorCode, x.row.Reason = tools.ErrorName(x.halted), tools.Detail(x.halted)
	}
	x.row.Holder = ""
	x.emit(events.WorkflowEnded, events.WorkflowData{Reason: x.row.Reason})
}

// stop ends a workflow before its steps have ended. Running steps are lost.
func (x *execution) stop(code, reason string, now time.Time) {
	for i := range x.steps {
		switch {
		case x.state(i) == plan.Pending, x.state(i) == plan.Running && x.steps[i].Repeatable:
			x.end(i, plan.Skipped, now)
		case x.state(i) == plan.Running:
			x.lose(i, "the workflow was aborted while the step ran", now)
		}
	}
	x.row.State, x.row.Pause, x.row.EndedAt, x.row.ErrorCode, x.row.Reason = workflows.Aborted, "", now, code, reason
	x.row.Holder = ""
	x.emit(events.WorkflowEnded, events.WorkflowData{Reason: reason})
}

// lose makes a step uncertain: it may have acted.
func (x *execution) lose(i int, why string, now time.Time) {
	x.steps[i].ErrorCode, x.steps[i].Error = codeLost, why
	x.end(i, plan.Uncertain, now)
}

func (x *execution) emit(kind models.EventType, d events.WorkflowData) {
	d.WorkflowID, d.AgentID, d.Status, d.Version = x.row.ID, x.row.Payer, status(x.row), x.row.Version+1
	x.events = append(x.events, store.EventDraft{Type: kind, Key: x.row.ID, Data: d})
}

// maxEventText is the longest error in an event, in bytes.
const maxEventText = 500

func (x *execution) emitStep(kind models.EventType, i int) {
	s := x.steps[i]
	d := events.WorkflowData{Step: x.plan.Steps[i].ID, StepStatus: stepStatus(s), Attempt: s.Attempt, Error: columns.Text(s.Error, maxEventText)}
	if !s.EndedAt.IsZero() && !s.StartedAt.IsZero() {
		d.DurationMS = s.EndedAt.Sub(s.StartedAt).Milliseconds()
	}
	x.emit(kind, d)
}
