package workflow

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"comet/internal/auth"
	"comet/internal/errs"
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
	// A digest of everything that an approval covers: the definition of the tool, its class, the arguments, the payer, the
	// policies of the token and the revision of the workflow.
	Digest string `json:"digest" example:"60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752"`
	Error  string `json:"error,omitempty" example:"the process ended"` // Why the result of an uncertain step was lost.

	repeatable bool
	target     string // the digest of the tool
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
	facts := []any{x.row.ID, x.row.Revision, step, out.Arguments, x.row.Payer}
	if step.Type == plan.KindAgent {
		err = requireSend(x.by)
		out.repeatable = true // the orchestrator creates one task for repeated requests
	} else {
		var t tools.Target
		if t, err = x.lookup(ctx, i); err == nil {
			out.Class, out.repeatable, out.target = t.Class, t.IsRepeatable(), t.Digest
			facts = append(facts, t.Digest)
			if out.Tool = t.ID; step.Type == plan.KindCode {
				out.Arguments, err = x.codeArguments(ctx, i, out.Arguments)
			} else {
				err = t.CheckArguments(out.Arguments)
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

// shownSteps returns the steps that a checkpoint shows.
func shownSteps(c workflows.Checkpoint) (out []shownStep, err error) {
	err = json.Unmarshal(c.Shown, &out)
	return out, err
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
	return x.env.Tools.Lookup(ctx, x.caller(), name)
}

// codeArguments returns the arguments of agentcards:execute_code for a code step: its context has the arguments of the
// step and, in deps, the results of the steps that it depends on.
func (x *execution) codeArguments(ctx context.Context, i int, arguments json.RawMessage) (json.RawMessage, error) {
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(arguments, &fields); err != nil {
		return nil, err
	}
	if _, taken := fields["deps"]; !taken {
		deps := map[string]json.RawMessage{}
		for _, to := range x.plan.Steps[i].Needs {
			value, err := x.result(ctx)(to)
			if err != nil {
				return nil, err
			}
			deps[x.plan.Steps[to].ID] = value
		}
		text, err := json.Marshal(deps)
		if err != nil {
			return nil, err
		}
		fields["deps"] = text
	}
	size := len(x.plan.Steps[i].Code)
	for _, value := range fields {
		size += len(value)
	}
	if size > plan.MaxArguments {
		return nil, tools.NewError(errs.InvalidRequest, "INVALID_ARGUMENTS", "the code, its context and the results of its dependencies have %d bytes; the limit is %d", size, plan.MaxArguments)
	}
	return json.Marshal(map[string]any{
		"code": x.plan.Steps[i].Code, "context": fields, "sandbox_config": map[string]any{"timeout": x.timeout(i).Milliseconds()},
	})
}

// timeout returns the timeout of a step.
func (x *execution) timeout(i int) time.Duration {
	for _, ms := range []int64{x.plan.Steps[i].TimeoutMS, x.settings.TimeoutMS} {
		if ms > 0 {
			return time.Duration(ms) * time.Millisecond
		}
	}
	return x.env.opts.StepTimeout
}

// requireSend checks the scope that agent steps need.
func requireSend(p models.Principal) error {
	if err := auth.Require(p, models.ScopeMessagesSend); err != nil {
		return tools.NewError(errs.ToolDenied, "PERMISSION_DENIED", "%s; steps of the type agent_task need it", errs.From(err).Detail)
	}
	return nil
}
