package workflow

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/tools"
	"comet/internal/workflow/plan"
	"comet/models"
	"comet/store/workflows"
)

// shownStep is a step as a checkpoint shows it.
type shownStep struct {
	ID        string           `json:"id" example:"t1"`                                                                         // The task's id in the workflow.
	Type      plan.Kind        `json:"type" swaggertype:"string" enums:"mcp_tool,code_execution,agent_task" example:"mcp_tool"` // What executes it.
	Tool      string           `json:"tool,omitempty" example:"filesystem:write_file"`                                          // The tool's id.
	Class     models.ToolClass `json:"class" swaggertype:"string" enums:"read,write,destructive" example:"write"`               // What the step may do.
	Agent     string           `json:"agent_id,omitempty" example:"research-web-01"`                                            // The requested agent.
	Ability   string           `json:"capability,omitempty" example:"web_search"`                                               // The required capability of the agent.
	Code      string           `json:"code,omitempty" example:"return deps.t1.length"`                                          // The code.
	Arguments json.RawMessage  `json:"arguments" swaggertype:"object"`                                                          // The arguments, with the results of other tasks filled in.
	// A digest of all that an approval covers: the definition of the tool, its class, the arguments, the payer and the
	// policies of the token.
	Digest string `json:"digest" example:"60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752"`
	Error  string `json:"error,omitempty" example:"the process ended"` // Why the result of an uncertain step was lost.

	repeatable bool
} // @name WorkflowCheckpointStep

// show returns a step with resolved references.
func (x *execution) show(ctx context.Context, i int) (out shownStep, err error) {
	step := &x.plan.Steps[i]
	out = shownStep{ID: step.ID, Type: step.Type, Agent: step.AgentID, Ability: step.Capability, Code: step.Code, Class: models.ToolDestructive}
	if out.Arguments, err = x.plan.Resolve(i, x.result(ctx)); err != nil {
		if errs.Is(err, errs.NotFound) {
			err = tools.NewError(errs.InvalidRequest, "REFERENCE_NOT_FOUND", "%s", errs.From(err).Detail)
		}
		return out, err
	}
	facts := []any{x.row.ID, step, out.Arguments, x.row.Payer}
	if step.Type == plan.KindAgent {
		err = requireSend(x.by)
		out.repeatable = true // the orchestrator starts the same request once
	} else {
		var t tools.Target
		if t, err = x.lookup(ctx, i); err == nil {
			out.Class, out.repeatable = t.Class, t.IsRepeatable()
			facts = append(facts, t.Digest)
			if out.Tool = t.ID; step.Type == plan.KindCode {
				out.Arguments, err = x.codeArguments(ctx, i, out.Arguments)
			}
		}
	}
	if err != nil {
		return out, err
	}
	out.Digest, err = digest(facts...)
	return out, err
}

func digest(facts ...any) (string, error) {
	text, err := json.Marshal(facts)
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), err
}

// maxShown limits the steps of a checkpoint; further ones are asked about later.
const maxShown = 16

// pause pauses the workflow with a checkpoint. It reports false if a step that was to be shown has failed instead.
func (x *execution) pause(ctx context.Context, next plan.Next, now time.Time) (paused bool, err error) {
	c := workflows.Checkpoint{
		ID: newID("cp_"), WorkflowID: x.row.ID, Kind: string(next.Pause), Layer: next.Layer, State: workflows.Open,
		CreatedAt: now, ExpiresAt: now.Add(x.engine.opts.PauseTTL),
	}
	shown := []shownStep{}
	if next.Pause != plan.PauseLayer {
		for _, i := range next.Steps[:min(len(next.Steps), maxShown)] {
			s, err := x.show(ctx, i)
			switch {
			case err != nil && ctx.Err() != nil, errs.Is(err, errs.Unavailable):
				return false, err
			case err != nil && next.Pause == plan.PauseApproval:
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
	x.emit(events.WorkflowPaused, events.WorkflowData{Pause: c.Kind, CheckpointID: c.ID, Layer: c.Layer})
	return true, nil
}

// shownSteps returns the steps that a checkpoint shows.
func shownSteps(c workflows.Checkpoint) (out []shownStep, err error) {
	err = json.Unmarshal(c.Shown, &out)
	return out, err
}

// settle records the decision on the open checkpoint and lets the workflow run again.
func (x *execution) settle(state, by, feedback string) {
	c := *x.checkpoint
	c.State, c.DecidedBy, c.Feedback = state, by, feedback
	x.decided = &c
	x.row.State, x.row.Pause = workflows.Running, ""
}

// position returns the index of a step that the plan has.
func (x *execution) position(id string) int {
	for i := range x.plan.Steps {
		if x.plan.Steps[i].ID == id {
			return i
		}
	}
	return -1
}

// approve approves the steps that the open checkpoint shows. It reports false if what was shown has changed since; then
// none is approved.
func (x *execution) approve(ctx context.Context) (current bool, err error) {
	if x.halted != nil { // no step begins
		return false, nil
	}
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
			return false, nil
		}
	}
	for _, s := range shown {
		i := x.position(s.ID)
		x.steps[i].Approved, x.changed[i] = s.Digest, true
	}
	return true, nil
}
