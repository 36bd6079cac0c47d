package tools

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/orchestrator"
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

	answerSchema = `{"type":"object","properties":{
"task_id":{"type":"string"},
"answer":{"type":"string","minLength":1,"maxLength":2000},
"wait_seconds":{"type":"number","minimum":0,"maximum":300,"default":30}},
"required":["task_id","answer"],"additionalProperties":false}`

	// maxWait is the longest wait of a call for a task in seconds, and defaultWait the default.
	maxWait, defaultWait = 300, 30
)

type taskDraft struct {
	Capabilities []string        `json:"capabilities" validate:"max=16,dive,capability"`
	AgentID      *string         `json:"agent_id" validate:"omitnil,agentid"`
	Parameters   json.RawMessage `json:"parameters"`
	Budget       *int64          `json:"budget" validate:"omitnil,min=1,max=1000000000000"`
	Priority     *int            `json:"priority" validate:"omitnil,min=0,max=3"`
	RequestID    *string         `json:"request_id" validate:"omitnil,notblank,printable,max=128"`
	WaitSeconds  *float64        `json:"wait_seconds"`
}

// submitTask executes comet:submit_task.
func (svc *Service) submitTask(ctx context.Context, c *call) (*mcp.CallToolResult, error) {
	var d taskDraft
	if err := c.decodeArguments(&d); err != nil {
		return nil, err
	}
	wait, err := waitOf(d.WaitSeconds, defaultWait)
	if err != nil {
		return nil, err
	}
	if err := input.Validate(d).Err(); err != nil {
		return nil, badParameters("%s: %s", c.tool.id, detailOf(err))
	}
	sub := orchestrator.Submission{Capabilities: d.Capabilities, Parameters: d.Parameters, Budget: d.Budget, Priority: models.DefaultPriority}
	if c.by.TraceID != "" { // the task is a child span of this call
		sub.Traceparent = "00-" + c.by.TraceID + "-" + strings.ReplaceAll(c.id, "-", "")[16:] + "-01"
	}
	if d.AgentID != nil {
		sub.AgentID = *d.AgentID
	}
	if d.Priority != nil {
		sub.Priority = *d.Priority
	}
	if d.RequestID != nil {
		sub.RequestID = *d.RequestID
	}
	made, err := svc.orchestrator.Submit(ctx, c.by.Principal, sub, nil)
	switch errs.CodeOf(err) {
	case errs.UnsupportedWork, errs.InvalidRequest:
		return nil, newRefusal(CodeInvalidArguments, "%s", detailOf(err))
	}
	if err != nil {
		return nil, err
	}
	return svc.awaitTask(ctx, c, made.Task, wait)
}

// taskStatus executes comet:task_status.
func (svc *Service) taskStatus(ctx context.Context, c *call) (*mcp.CallToolResult, error) {
	var d struct {
		TaskID      string   `json:"task_id"`
		WaitSeconds *float64 `json:"wait_seconds"`
	}
	if err := c.decodeArguments(&d); err != nil {
		return nil, err
	}
	wait, err := waitOf(d.WaitSeconds, 0)
	if err != nil {
		return nil, err
	}
	t, err := svc.visibleTask(ctx, c, d.TaskID)
	if err != nil {
		return nil, err
	}
	return svc.awaitTask(ctx, c, t, wait)
}

// cancelTask executes comet:cancel_task.
func (svc *Service) cancelTask(ctx context.Context, c *call) (*mcp.CallToolResult, error) {
	var d struct {
		TaskID string `json:"task_id"`
		Reason string `json:"reason"`
	}
	if err := c.decodeArguments(&d); err != nil {
		return nil, err
	}
	t, err := svc.taskToChange(ctx, c, d.TaskID)
	if err != nil {
		return nil, err
	}
	t, err = svc.orchestrator.Cancel(ctx, t.ID, orElse(d.Reason, "cancelled over MCP"), nil)
	if err != nil {
		return nil, err
	}
	return svc.awaitTask(ctx, c, t, 0)
}

// answerTask executes comet:answer_task.
func (svc *Service) answerTask(ctx context.Context, c *call) (*mcp.CallToolResult, error) {
	var d struct {
		TaskID      string   `json:"task_id"`
		Answer      string   `json:"answer"`
		WaitSeconds *float64 `json:"wait_seconds"`
	}
	if err := c.decodeArguments(&d); err != nil {
		return nil, err
	}
	wait, err := waitOf(d.WaitSeconds, defaultWait)
	if err != nil {
		return nil, err
	}
	t, err := svc.taskToChange(ctx, c, d.TaskID)
	if err != nil {
		return nil, err
	}
	if t, err = svc.orchestrator.Reply(ctx, t.ID, d.Answer); err != nil {
		return nil, err
	}
	return svc.awaitTask(ctx, c, t, wait)
}

// visibleTask returns a task that the caller may see.
func (svc *Service) visibleTask(ctx context.Context, c *call, id string) (models.Task, error) {
	if id == "" || len(id) > models.MaxIDLength {
		return models.Task{}, badParameters("%s: task_id must be the id of a task", c.tool.id)
	}
	t, err := svc.orchestrator.Task(ctx, id)
	if err == nil && t.Owner != c.by.Principal.TokenID && !c.by.Principal.Has(models.ScopeTasksRead) || errs.Is(err, errs.NotFound) {
		return models.Task{}, newRefusal(CodeInvalidArguments, "there is no task %q", clip(id))
	}
	return t, err
}

// taskToChange returns a task that the caller may change.
func (svc *Service) taskToChange(ctx context.Context, c *call, id string) (models.Task, error) {
	t, err := svc.visibleTask(ctx, c, id)
	if err == nil && t.Owner != c.by.Principal.TokenID && !c.by.Principal.Has(models.ScopeAdmin) {
		err = newRefusal(CodePermissionDenied, "the task %s belongs to another token", t.ID)
	}
	return t, err
}

func waitOf(seconds *float64, otherwise float64) (time.Duration, error) {
	if seconds == nil {
		seconds = &otherwise
	}
	if !(*seconds >= 0 && *seconds <= maxWait) {
		return 0, badParameters("wait_seconds must be 0 to %d, not %v", maxWait, *seconds)
	}
	return time.Duration(*seconds * float64(time.Second)), nil
}
