package builtin

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/errs"
	"comet/internal/tools"
	"comet/internal/workflow"
	"comet/models"
)

// The input schemas of the tools for workflows (AgentCards, “agentcards:execute_dag” and the following sections).
const (
	dagSchema = `{"type":"object","properties":{
"intent":{"type":"string","maxLength":8000,"description":"What to do, in English or French, with all arguments; instead of workflow. If the plan is not certain or not complete, it is returned and not executed; destructive tasks require approval"},
"definition":{"type":"object","description":"A stored workflow, instead of workflow","properties":{
"name":{"type":"string","minLength":1,"maxLength":64},
"version":{"type":"integer","minimum":1,"description":"Default: the newest one"},
"input":{"type":"object","description":"The input; $input.path in arguments refers to it"}},
"required":["name"],"additionalProperties":false},
"workflow":{"type":"object","description":"The tasks and their dependencies","properties":{
"tasks":` + tasksSchema + `},
"required":["tasks"],"additionalProperties":false},
"per_layer_validation":{"type":"boolean","default":false,"description":"Pause after each layer; agentcards:continue starts the next one"},
"config":{"type":"object","properties":{
"per_layer_validation":{"type":"boolean"},
"on_error":{"enum":["continue","abort"],"default":"continue","description":"Whether independent tasks still begin after one has failed"},
"approvals":{"enum":["write","destructive"],"description":"Require approval for tasks of this class or above"},
"task_timeout_ms":{"type":"integer","minimum":1,"maximum":86400000,"description":"timeout_ms of tasks that do not set it"},
"budget":{"type":"integer","minimum":1,"maximum":1000000000000,"description":"Tokens that all tasks may use in total; reserved at the start"},
"approver":{"enum":["caller","other","human"],"default":"caller","description":"Who can approve tasks: the token that starts the workflow (caller), another token with the scope workflows:approve (other), or such a token of a person (human)"}},
"additionalProperties":false}},
"additionalProperties":false}`
	tasksSchema = `{"type":"array","minItems":1,"maxItems":500,"items":{"type":"object","properties":{
"id":{"type":"string","description":"Unique in the workflow"},
"type":{"enum":["mcp_tool","code_execution","agent_task"],"default":"mcp_tool"},
"tool":{"type":"string","description":"serverId:toolName"},
"arguments":{"type":"object","description":"$id.result, optionally with a path such as .items[0], is replaced by the result of another task"},
"depends_on":{"type":"array","items":{"type":"string"},"description":"Ids of tasks that must succeed first; tasks that arguments refer to are added"},
"code":{"type":"string","maxLength":102400,"description":"For code_execution: TypeScript or JavaScript; arguments is its context, and deps contains the results of depends_on"},
"capability":{"type":"string","description":"For agent_task: the required capability"},
"agent_id":{"type":"string","description":"For agent_task: the agent"},
"budget":{"type":"integer","minimum":1,"description":"For agent_task: maximum tokens"},
"timeout_ms":{"type":"integer","minimum":0,"maximum":86400000,"description":"Timeout of an attempt; default config.task_timeout_ms, else 30000. For agent_task: how long an attempt may be silent, at least 100; default that of the task class"},
"approve":{"type":"boolean","description":"Require approval of the final arguments before the task begins"}},
"required":["id"],"additionalProperties":false}}`
	continueSchema = `{"type":"object","properties":{
"workflow_id":{"type":"string"},
"reason":{"type":"string","maxLength":2000}},
"required":["workflow_id"],"additionalProperties":false}`
	abortSchema = `{"type":"object","properties":{
"workflow_id":{"type":"string"},
"reason":{"type":"string","minLength":1,"maxLength":2000}},
"required":["workflow_id","reason"],"additionalProperties":false}`
	replanSchema = `{"type":"object","properties":{
"workflow_id":{"type":"string"},
"new_requirement":{"type":"string","minLength":1,"maxLength":8000,"description":"What to add, in English or French, with all arguments. If the plan is not certain or not complete, it is returned and not added; destructive tasks require approval"},
"available_context":{"type":"object","description":"Values for arguments of the same names"},
"workflow":{"type":"object","description":"The tasks to add, instead of a plan for new_requirement. They may depend on each other and on all tasks of the workflow","properties":{
"tasks":` + tasksSchema + `},
"required":["tasks"],"additionalProperties":false}},
"required":["workflow_id","new_requirement"],"additionalProperties":false}`
	approvalSchema = `{"type":"object","properties":{
"workflow_id":{"type":"string"},
"checkpoint_id":{"type":"string"},
"approved":{"type":"boolean"},
"feedback":{"type":"string","maxLength":2000},
"digest":{"type":"string","description":"The digest of the checkpoint; the decision is rejected if the digest differs"},
"resolution":{"enum":["retry","accept","skip","raise"],"description":"For tasks whose results were lost: run them again (retry), use results as their results (accept), or skip them (skip). For an exhausted budget: raise it (raise)"},
"budget":{"type":"integer","minimum":1,"maximum":1000000000000,"description":"For raise: the new total"},
"results":{"type":"object","description":"For accept: the results by task id"}},
"required":["workflow_id","checkpoint_id","approved"],"additionalProperties":false}`
)

// workflowTools returns the tools for workflows.
func (b *builtins) workflowTools() []tools.Builtin {
	tool := func(name, title, description, schema string, execute func(context.Context, *tools.Invocation) (*mcp.CallToolResult, error)) tools.Builtin {
		return tools.Builtin{
			Server: agentCardsServer, Class: models.ToolDestructive, Gateway: true, Follows: name != "execute_dag", Execute: execute,
			Definition: &mcp.Tool{
				Name: name, Title: title, Description: description, InputSchema: json.RawMessage(schema),
				Annotations: &mcp.ToolAnnotations{DestructiveHint: new(true), OpenWorldHint: new(true)},
			},
		}
	}
	return []tools.Builtin{
		tool("execute_dag", "Execute a workflow", "Executes a workflow of tool calls, code and agent tasks with dependencies, a stored workflow, or the plan for an intent. Independent tasks run in parallel; $t1.result in arguments is replaced by the result of t1. The workflow survives restarts. It can pause after each layer (per_layer_validation) or before tasks that need approval.", dagSchema, b.executeDAG),
		tool("continue", "Continue a workflow", "Continues a workflow that is paused after a layer (status layer_complete).", continueSchema, change(b, func(ctx context.Context, by models.Principal, d continueArguments) error {
			return b.Workflows.Continue(ctx, by, d.WorkflowID, "", d.Reason)
		})),
		tool("abort", "Abort a workflow", "Aborts a workflow, and returns the number of its completed layers and its partial results.", abortSchema, change(b, func(ctx context.Context, by models.Principal, d abortArguments) error {
			return b.Workflows.Abort(ctx, by, d.WorkflowID, d.Reason)
		})),
		tool("replan", "Add tasks to a workflow", "Adds tasks to a running or paused workflow: those of workflow, or the plan for new_requirement. Existing tasks do not change, and a paused workflow stays paused.", replanSchema, b.replanWorkflow),
		tool("approval_response", "Decide on a checkpoint", "Approves or rejects the tasks that a workflow shows (status approval_required), decides about tasks whose results were lost (status uncertain), or raises the budget (status budget_exhausted).", approvalSchema, change(b, func(ctx context.Context, by models.Principal, d decideArguments) error {
			return b.Workflows.Decide(ctx, by, d.WorkflowID, d.CheckpointID, workflow.Decision{
				Approved: *d.Approved, Feedback: d.Feedback, Digest: d.Digest, Resolution: d.Resolution, Results: d.Results, Budget: d.Budget,
			})
		})),
	}
}

// executeDAG executes agentcards:execute_dag. It returns the plan for an intent that is not complete or not certain.
func (b *builtins) executeDAG(ctx context.Context, c *tools.Invocation) (*mcp.CallToolResult, error) {
	var d struct {
		workflow.Request
		PerLayerValidation *bool `json:"per_layer_validation"`
	}
	if err := c.Decode(&d); err != nil {
		return nil, err
	}
	if d.PerLayerValidation != nil && *d.PerLayerValidation {
		d.Config = cmp.Or(d.Config, &workflow.Config{})
		d.Config.PerLayerValidation = true
	}
	begun, p, err := b.Workflows.Begin(ctx, c.Caller, d.Request, nil)
	if err == nil && p.Status != workflow.Ready {
		return jsonResult(p)
	}
	return b.awaitWorkflow(ctx, c, begun.WorkflowID, pointed(c, err))
}

// replanWorkflow executes agentcards:replan.
func (b *builtins) replanWorkflow(ctx context.Context, c *tools.Invocation) (*mcp.CallToolResult, error) {
	var d struct {
		WorkflowID       string          `json:"workflow_id" validate:"required,max=64"`
		NewRequirement   string          `json:"new_requirement" validate:"required,max=8000"`
		AvailableContext json.RawMessage `json:"available_context"`
		Workflow         *workflow.Graph `json:"workflow"`
	}
	if err := c.Decode(&d); err != nil {
		return nil, err
	}
	out, p, err := b.Workflows.Replan(ctx, c.Caller, d.WorkflowID, workflow.Requirement{Text: d.NewRequirement, Workflow: d.Workflow, Context: d.AvailableContext})
	switch {
	case err != nil:
		return nil, pointed(c, err)
	case p.Status != workflow.Ready:
		p.NextAction = "Nothing was added. Call agentcards:replan with workflow as well; agentcards:search_tools finds tools"
		return jsonResult(p)
	}
	return jsonResult(out)
}

// target names the workflow that a tool changes.
type target struct {
	WorkflowID string `json:"workflow_id" validate:"required,max=64"`
}

func (t target) id() string { return t.WorkflowID }

type continueArguments struct {
	target
	Reason string `json:"reason" validate:"max=2000"`
}

type abortArguments struct {
	target
	Reason string `json:"reason" validate:"required,max=2000"`
}

type decideArguments struct {
	target
	CheckpointID string                     `json:"checkpoint_id" validate:"required,max=64"`
	Approved     *bool                      `json:"approved" validate:"required"`
	Feedback     string                     `json:"feedback" validate:"max=2000"`
	Digest       string                     `json:"digest" validate:"max=64"`
	Resolution   workflow.Resolution        `json:"resolution" validate:"omitempty,oneof=retry accept skip raise"`
	Budget       int64                      `json:"budget" validate:"omitempty,min=1,max=1000000000000"`
	Results      map[string]json.RawMessage `json:"results"`
}

// change returns the function of a tool that changes a workflow, waits until it is paused or has ended, and returns its state.
func change[D interface{ id() string }](b *builtins, do func(context.Context, models.Principal, D) error) func(context.Context, *tools.Invocation) (*mcp.CallToolResult, error) {
	return func(ctx context.Context, c *tools.Invocation) (*mcp.CallToolResult, error) {
		var d D
		if err := c.Decode(&d); err != nil {
			return nil, err
		}
		return b.awaitWorkflow(ctx, c, d.id(), do(ctx, c.Caller.Principal, d))
	}
}

// awaitWorkflow waits until a workflow is paused or has ended, unless err is set.
func (b *builtins) awaitWorkflow(ctx context.Context, c *tools.Invocation, id string, err error) (*mcp.CallToolResult, error) {
	if err != nil {
		return nil, err
	}
	if c.Options.Workflow != nil {
		c.Options.Workflow(id)
	}
	v, err := b.Workflows.Wait(ctx, c.Caller.Principal, id)
	if err != nil {
		return nil, err
	}
	return v.CallResult()
}

// pointed returns INVALID_ARGUMENTS for arguments that violate the rules of plans or intents, and other errors unchanged.
func pointed(c *tools.Invocation, err error) error {
	if !errs.Is(err, errs.InvalidRequest) {
		return err
	}
	var fields []string
	for _, f := range errs.From(err).Fields {
		fields = append(fields, f.Pointer+": "+f.Detail)
	}
	switch {
	case len(fields) > 0:
		return c.Invalid("%s", strings.Join(fields, "; "))
	case tools.ErrorName(err) == "":
		return c.Invalid("%s", tools.Detail(err))
	}
	return err
}
