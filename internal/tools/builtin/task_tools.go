package builtin

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/orchestrator"
	"comet/internal/tools"
	"comet/models"
)

const (
	taskSchema = `{"type":"object","properties":{
"capabilities":{"type":"array","items":{"type":"string"},"maxItems":16,"description":"Required capabilities of the agent"},
"agent_id":{"type":"string","description":"The agent, instead of any with the capabilities"},
"parameters":{"type":"object","description":"Input of the task"},
"budget":{"type":"integer","minimum":1,"description":"Maximum tokens of the task"},
"priority":{"type":"integer","minimum":0,"maximum":3,"default":1},
"request_id":{"type":"string","maxLength":128,"description":"Idempotency key: a repeated submission returns the same task"},
"wait_seconds":{"type":"number","minimum":0,"maximum":300,"default":30,"description":"How long to wait for the result"}},
"additionalProperties":false}`
	statusSchema = `{"type":"object","properties":{
"task_id":{"type":"string"},
"wait_seconds":{"type":"number","minimum":0,"maximum":300,"default":0}},
"required":["task_id"],"additionalProperties":false}`
	cancelSchema = `{"type":"object","properties":{
"task_id":{"type":"string"},
"reason":{"type":"string","maxLength":500}},
"required":["task_id"],"additionalProperties":false}`

	replySchema = `{"type":"object","properties":{
"task_id":{"type":"string"},
"reply":{"type":"string","minLength":1,"maxLength":2000},
"wait_seconds":{"type":"number","minimum":0,"maximum":300,"default":30}},
"required":["task_id","reply"],"additionalProperties":false}`

	// defaultWait is the default wait of a call for a task, in seconds, and longestWait that of a call that becomes a task
	// of MCP.
	defaultWait = 30
	longestWait = 24 * 60 * 60
)

// defaultWaitOf returns the default wait of a call for a task, in seconds.
func defaultWaitOf(c *tools.Invocation) float64 {
	if c.Options.AsTask {
		return longestWait
	}
	return defaultWait
}

type taskDraft struct {
	Capabilities []string        `json:"capabilities" validate:"max=16,dive,capability"`
	AgentID      *string         `json:"agent_id" validate:"omitnil,agentid"`
	Parameters   json.RawMessage `json:"parameters"`
	Budget       *int64          `json:"budget" validate:"omitnil,min=1,max=1000000000000"`
	Priority     *int            `json:"priority" validate:"omitnil,min=0,max=3"`
	RequestID    *string         `json:"request_id" validate:"omitnil,notblank,printable,max=128"`
	WaitSeconds  *float64        `json:"wait_seconds" validate:"omitnil,min=0,max=300"`
}

// submitTask executes comet:submit_task.
func (b *builtins) submitTask(ctx context.Context, c *tools.Invocation) (*mcp.CallToolResult, error) {
	var d taskDraft
	if err := c.Decode(&d); err != nil {
		return nil, err
	}
	sub := orchestrator.Submission{
		Capabilities: d.Capabilities, AgentID: *cmp.Or(d.AgentID, new("")), Parameters: d.Parameters, Budget: d.Budget,
		Priority: *cmp.Or(d.Priority, new(orchestrator.DefaultPriority)), RequestID: *cmp.Or(d.RequestID, new("")),
	}
	if c.Caller.TraceID != "" { // the task is a child span of this call
		sub.Traceparent = "00-" + c.Caller.TraceID + "-" + strings.ReplaceAll(c.ID, "-", "")[16:] + "-01"
	}
	made, err := b.Orchestrator.Submit(ctx, c.Caller.Principal, sub, nil)
	if err != nil {
		return nil, err
	}
	return b.awaitTask(ctx, c, made.Task, waitOf(d.WaitSeconds, defaultWaitOf(c)))
}

// taskStatus executes comet:task_status.
func (b *builtins) taskStatus(ctx context.Context, c *tools.Invocation) (*mcp.CallToolResult, error) {
	var d struct {
		TaskID      string   `json:"task_id"`
		WaitSeconds *float64 `json:"wait_seconds" validate:"omitnil,min=0,max=300"`
	}
	if err := c.Decode(&d); err != nil {
		return nil, err
	}
	t, err := b.visibleTask(ctx, c, d.TaskID)
	if err != nil {
		return nil, err
	}
	return b.awaitTask(ctx, c, t, waitOf(d.WaitSeconds, 0))
}

// cancelTask executes comet:cancel_task.
func (b *builtins) cancelTask(ctx context.Context, c *tools.Invocation) (*mcp.CallToolResult, error) {
	var d struct {
		TaskID string `json:"task_id"`
		Reason string `json:"reason"`
	}
	if err := c.Decode(&d); err != nil {
		return nil, err
	}
	t, err := b.taskToChange(ctx, c, d.TaskID)
	if err != nil {
		return nil, err
	}
	t, err = b.Orchestrator.Cancel(ctx, t.ID, cmp.Or(d.Reason, "cancelled over MCP"), nil)
	if err != nil {
		return nil, err
	}
	return b.awaitTask(ctx, c, t, 0)
}

// replyToTask executes comet:reply_task.
func (b *builtins) replyToTask(ctx context.Context, c *tools.Invocation) (*mcp.CallToolResult, error) {
	var d struct {
		TaskID      string   `json:"task_id"`
		Reply       string   `json:"reply"`
		WaitSeconds *float64 `json:"wait_seconds" validate:"omitnil,min=0,max=300"`
	}
	if err := c.Decode(&d); err != nil {
		return nil, err
	}
	t, err := b.taskToChange(ctx, c, d.TaskID)
	if err != nil {
		return nil, err
	}
	if t, err = b.Orchestrator.Reply(ctx, t.ID, d.Reply); err != nil {
		return nil, err
	}
	return b.awaitTask(ctx, c, t, waitOf(d.WaitSeconds, defaultWaitOf(c)))
}

func (b *builtins) visibleTask(ctx context.Context, c *tools.Invocation, id string) (models.Task, error) {
	if id == "" || len(id) > input.MaxID {
		return models.Task{}, c.Invalid("task_id must be the id of a task")
	}
	t, err := b.Orchestrator.Task(ctx, id)
	visible := false
	if err == nil {
		visible, err = b.Auth.CanRead(ctx, c.Caller.Principal, t.Owner, t.AgentID, t.OwnerAgent)
	}
	if err == nil && !visible || errs.Is(err, errs.NotFound) {
		return models.Task{}, errs.New(errs.InvalidRequest, "there is no task %q", input.Clip(id))
	}
	return t, err
}

func (b *builtins) taskToChange(ctx context.Context, c *tools.Invocation, id string) (models.Task, error) {
	t, err := b.visibleTask(ctx, c, id)
	if err == nil && t.Owner != c.Caller.Principal.TokenID && !c.Caller.Principal.Has(models.ScopeAdmin) {
		err = errs.New(errs.ToolDenied, "the task %s belongs to another token", t.ID)
	}
	return t, err
}

// waitOf returns how long a call waits: seconds, or otherwise if seconds is nil.
func waitOf(seconds *float64, otherwise float64) time.Duration {
	return time.Duration(*cmp.Or(seconds, &otherwise) * float64(time.Second))
}
