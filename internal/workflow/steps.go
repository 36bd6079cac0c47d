package workflow

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/background"
	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/tools"
	"comet/internal/upstream"
	"comet/internal/workflow/plan"
	"comet/models"
	"comet/store"
	"comet/store/workflows"
)

const (
	// maxResult limits the result of a step, in bytes.
	maxResult = 10 << 20
	// timeoutMargin is added to the timeout of the request to an upstream, so that the timeout of the step passes first.
	timeoutMargin = 5 * time.Second
)

// outcome is how a step has ended.
type outcome struct {
	position int
	value    json.RawMessage
	err      error
	lost     bool // the step may have acted, and err is why its result is unknown
	again    bool // the step did not begin, because its tool has changed
	// bill has the calls, nil without a budget; tokens are those of the task of an agent step.
	bill   *tools.Bill
	tokens int64
}

// step is what the execution of a step needs. It does not change.
type step struct {
	dispatch
	plan.Step
	workflowID string
	caller     tools.Caller
	timeout    time.Duration
	// agentTimeout is the timeout of an agent step in milliseconds, 0 for that of the orchestrator.
	agentTimeout int64
	repeatable   bool
	allowance    *tools.Allowance // as that of the execution
	// raw says that the result of the tool is stored unchanged.
	raw         bool
	traceparent string
}

func (x *execution) stepOf(d dispatch) step {
	by := x.caller()
	switch {
	case x.row.Budget == 0:
	case x.plan.Steps[d.position].Type == plan.KindAgent:
		x.allowance.Use(*x.plan.Steps[d.position].Budget)
	default:
		by.Bill = x.allowance.NewBill()
	}
	return step{
		dispatch: d, Step: x.plan.Steps[d.position].Step, workflowID: x.row.ID, caller: by, timeout: x.timeout(d.position),
		agentTimeout: cmp.Or(x.plan.Steps[d.position].TimeoutMS, x.settings.TimeoutMS),
		repeatable:   x.steps[d.position].Repeatable, allowance: x.allowance, raw: x.settings.Call, traceparent: x.settings.Traceparent,
	}
}

// runStep executes a step.
func (e *environment) runStep(ctx context.Context, s step) (o outcome) {
	switch {
	case s.held != nil:
		o = s.awaitHeld(ctx)
	case s.Type == plan.KindAgent:
		if o = e.runAgentStep(ctx, s); s.allowance != nil {
			s.allowance.Use(o.tokens - *s.Budget)
		}
	default:
		o = e.runToolStep(ctx, s)
	}
	o.bill = s.caller.Bill
	if o.position = s.position; o.err == nil && len(o.value) > maxResult {
		o.value, o.err = nil, tools.NewError(errs.InvalidRequest, "RESULT_TOO_LARGE", "the result has %d bytes; the limit is %d", len(o.value), maxResult)
	}
	return o
}

// runToolStep calls the tool of a tool or code step.
func (e *environment) runToolStep(parent context.Context, s step) (o outcome) {
	if o.err = e.slots.Acquire(parent, 1); o.err != nil {
		return o
	}
	defer e.slots.Release(1)
	if o.again, o.err = e.recheck(parent, &s); o.again || o.err != nil {
		return o
	}
	opts := &tools.CallOptions{Timeout: s.timeout + timeoutMargin, Meta: mcp.Meta{"comet/idempotency-key": s.workflowID + "/" + s.ID}}
	ctx, cancel := context.WithTimeout(parent, s.timeout)
	defer cancel()
	if s.raw { // the timeout is that of the tool
		ctx, opts.Timeout = parent, 0
	}
	res, err := e.Tools.CallTool(ctx, s.caller, s.toolName(), s.arguments, opts)
	late := errors.Is(err, context.DeadlineExceeded) || err != nil && ctx.Err() != nil // whatever the timeout has interrupted
	if s.raw {
		o.value, err = rawOutcome(res, err)
	} else if err == nil {
		var decoded *mcp.CallToolResult
		if decoded, err = res.Decoded(); err == nil {
			if o.value, err = tools.Value(decoded); err != nil {
				err = tools.NewError(errs.UpstreamFailed, "TOOL_ERROR", "%s", err)
			}
		}
	}
	switch {
	case late && parent.Err() == nil:
		o.err = tools.NewError(errs.Timeout, "TIMEOUT", "the step took longer than %d ms", s.timeout.Milliseconds())
		o.lost = !s.repeatable
	case err == nil && s.Type == plan.KindCode:
		o.value, o.err = valueOfCode(o.value)
	case err != nil:
		o.err, o.lost = err, !s.repeatable && tools.ErrorDetails(err)[upstream.MayHaveActed] == true
	}
	return o
}

// toolName returns the name of the tool of a tool or code step.
func (s *step) toolName() string {
	if s.Type == plan.KindCode {
		return codeTool
	}
	return s.Tool
}

// recheck checks again, after the wait for a slot, whether the token is accepted and may call the tool. It reports whether
// the tool has changed since begin.
func (e *environment) recheck(ctx context.Context, s *step) (changed bool, err error) {
	err = e.whenAvailable(ctx, func() error {
		by, err := e.Auth.Standing(ctx, s.caller.Principal)
		if err != nil {
			return err
		}
		s.caller.Principal = by
		t, err := e.Tools.Lookup(ctx, s.caller, s.toolName())
		changed = err == nil && t.Digest != s.target
		return err
	})
	return changed, err
}

// whenAvailable calls do again while it returns errs.Unavailable, until ctx ends.
func (e *environment) whenAvailable(ctx context.Context, do func() error) error {
	backoff := background.NewBackoff(background.MaxBackoff)
	for {
		err := do()
		if !errs.Is(err, errs.Unavailable) || background.Sleep(ctx, backoff.NextBackOff()) != nil {
			return err
		}
	}
}

// valueOfCode returns the value that code has returned.
func valueOfCode(result json.RawMessage) (json.RawMessage, error) {
	var out struct{ Result json.RawMessage }
	err := json.Unmarshal(result, &out)
	if out.Result == nil {
		out.Result = json.RawMessage("null")
	}
	return out.Result, err
}

// runAgentStep submits a task and waits for its end. An attempt has one task, even if several processes submit it.
func (e *environment) runAgentStep(ctx context.Context, s step) (o outcome) {
	sub := orchestrator.Submission{
		RequestID: fmt.Sprintf("%s/%s/%d", s.workflowID, s.ID, s.attempt), AgentID: s.AgentID, Parameters: s.arguments, Budget: s.Budget,
		Priority: orchestrator.DefaultPriority, Override: orchestrator.Override{TimeoutMS: s.agentTimeout}, Traceparent: s.traceparent,
		With: func(tx *store.Tx, t *models.Task) error {
			return workflows.SetTask(tx, s.workflowID, s.position, s.attempt, t.ID)
		},
	}
	if s.Capability != "" {
		sub.Capabilities = []string{s.Capability}
	}
	var t models.Task
	if o.err = e.whenAvailable(ctx, func() error {
		made, err := e.Orchestrator.Submit(ctx, s.caller.Principal, sub, nil)
		t = made.Task
		return err
	}); o.err != nil {
		return o
	}
	for !t.State.Ended() {
		if o.err = e.whenAvailable(ctx, func() error {
			changed, err := e.Orchestrator.Wait(ctx, "", t.ID, time.Hour)
			if err == nil {
				t = changed
			}
			return err
		}); o.err == nil {
			o.err = ctx.Err()
		}
		if o.err != nil {
			return o
		}
	}
	if o.tokens = t.Tokens; t.State != models.TaskDone {
		o.err = tools.NewError(errs.CodeFailed, "TASK_FAILED", "the task %s %s: %s", t.ID, t.State, t.Error)
		return o
	}
	var text bytes.Buffer
	o.err = e.whenAvailable(ctx, func() error {
		text.Reset()
		return e.Orchestrator.Output(ctx, t, models.StreamResult, 0, func(c models.OutputChunk) error {
			if text.Len() <= maxResult {
				text.Write(c.Data)
			}
			return nil
		})
	})
	if o.value = bytes.ToValidUTF8(text.Bytes(), []byte("\uFFFD")); !json.Valid(o.value) && o.err == nil {
		o.value, o.err = json.Marshal(string(o.value))
	}
	return o
}
