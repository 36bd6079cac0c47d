package tools

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/upstream"
	"comet/internal/validate"
	"comet/models"
)

const (
	taskSchema = `{"type":"object","properties":{
"capabilities":{"type":"array","items":{"type":"string"},"maxItems":16,"description":"What the agent must be able to do"},
"agent_id":{"type":"string","description":"The one agent that shall do it"},
"parameters":{"type":"object","description":"What the agent is given"},
"budget":{"type":"integer","minimum":1,"description":"How many tokens it may use"},
"priority":{"type":"integer","minimum":0,"maximum":3,"default":1},
"request_id":{"type":"string","maxLength":128,"description":"Makes the task once, however often it is submitted"},
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

	// maxWait is how long a call may wait for a task, in seconds, and defaultWait how long
	// it does.
	maxWait, defaultWait = 300, 30
	// maxTaskOutput is how much of what a task put out is returned, in bytes.
	maxTaskOutput = 256 << 10
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

// taskAnswer is how a task stands.
type taskAnswer struct {
	TaskID   string           `json:"task_id"`
	State    models.TaskState `json:"state"`
	AgentID  string           `json:"agent_id,omitempty"`
	Progress int              `json:"progress,omitempty"`
	Tokens   int64            `json:"tokens_used"`
	// Result is what it put out, as JSON where it is that; absent until it has ended.
	Result any `json:"result,omitempty"`
	// Truncated is set where Result is only the beginning.
	Truncated bool `json:"truncated,omitempty"`
	// Question is what its agent asks back, and Options what may be answered, nothing for
	// anything.
	Question string   `json:"question,omitempty"`
	Options  []string `json:"options,omitempty"`
	// NextAction says what to do, where something is left to do.
	NextAction string `json:"next_action,omitempty"`
}

// submitTask is comet:submit_task.
func (h *Hub) submitTask(ctx context.Context, c *call) (*mcp.CallToolResult, error) {
	var d taskDraft
	if err := c.read(&d); err != nil {
		return nil, err
	}
	wait, err := waitOf(d.WaitSeconds, defaultWait)
	if err != nil {
		return nil, err
	}
	if err := validate.Struct(d).Err(); err != nil {
		return nil, badParameters("%s: %s", c.tool.id, problemOf(err))
	}
	sub := orchestrator.Submission{Capabilities: d.Capabilities, Parameters: d.Parameters, Budget: d.Budget, Priority: models.DefaultPriority}
	if c.by.TraceID != "" { // the task goes on with the trace, below this call
		sub.Trace = "00-" + c.by.TraceID + "-" + strings.ReplaceAll(c.id, "-", "")[16:] + "-01"
	}
	if d.AgentID != nil {
		sub.Agent = *d.AgentID
	}
	if d.Priority != nil {
		sub.Priority = *d.Priority
	}
	if d.RequestID != nil {
		sub.RequestID = *d.RequestID
	}
	made, err := h.work.Submit(ctx, c.by.Principal, sub, nil)
	switch errs.CodeOf(err) {
	case errs.UnsupportedWork, errs.InvalidRequest:
		return nil, refusal(CodeInvalidArguments, "%s", problemOf(err))
	}
	if err != nil {
		return nil, err
	}
	return h.follow(ctx, c, made.Task, wait)
}

// taskStatus is comet:task_status.
func (h *Hub) taskStatus(ctx context.Context, c *call) (*mcp.CallToolResult, error) {
	var d struct {
		TaskID      string   `json:"task_id"`
		WaitSeconds *float64 `json:"wait_seconds"`
	}
	if err := c.read(&d); err != nil {
		return nil, err
	}
	wait, err := waitOf(d.WaitSeconds, 0)
	if err != nil {
		return nil, err
	}
	t, err := h.taskOf(ctx, c, d.TaskID)
	if err != nil {
		return nil, err
	}
	return h.follow(ctx, c, t, wait)
}

// cancelTask is comet:cancel_task.
func (h *Hub) cancelTask(ctx context.Context, c *call) (*mcp.CallToolResult, error) {
	var d struct {
		TaskID string `json:"task_id"`
		Reason string `json:"reason"`
	}
	if err := c.read(&d); err != nil {
		return nil, err
	}
	t, err := h.ownTask(ctx, c, d.TaskID)
	if err != nil {
		return nil, err
	}
	t, err = h.work.Cancel(ctx, t.ID, orText(d.Reason, "cancelled over MCP"), nil)
	if err != nil {
		return nil, err
	}
	return h.follow(ctx, c, t, 0)
}

// taskOf returns a task that the caller may see.
func (h *Hub) taskOf(ctx context.Context, c *call, id string) (models.Task, error) {
	if id == "" || len(id) > models.MaxIDLength {
		return models.Task{}, badParameters("%s: task_id must be the id of a task", c.tool.id)
	}
	t, err := h.work.Task(ctx, id)
	if err == nil && t.Owner != c.by.Principal.TokenID && !c.by.Principal.Has(models.ScopeTasksRead) || errs.Is(err, errs.NotFound) {
		return models.Task{}, refusal(CodeInvalidArguments, "there is no task %q", clip(id))
	}
	return t, err
}

// follow waits for the end of a task, tells of its progress, and returns how it stands.
func (h *Hub) follow(ctx context.Context, c *call, t models.Task, wait time.Duration) (*mcp.CallToolResult, error) {
	until := h.opts.Clock().Add(wait)
	for told := -1; !t.State.Ended(); {
		if t.Progress != told && c.opts.Progress != nil {
			c.opts.Progress(upstream.Progress{Progress: float64(t.Progress), Total: 100, Message: t.StepName})
		}
		told = t.Progress
		if t.Waits == models.WaitAnswer {
			answered, err := h.askBack(ctx, c, t)
			if err != nil || !answered {
				return h.orStanding(ctx, t, err)
			}
		}
		left := until.Sub(h.opts.Clock())
		if left <= 0 {
			break
		}
		next, err := h.work.Changed(ctx, c.by.Principal.TokenID, t.ID, t.Version, left)
		if err != nil {
			return nil, err
		}
		t = next
	}
	return h.standing(ctx, t)
}

// standing is how a task stands. One that failed is an error.
func (h *Hub) standing(ctx context.Context, t models.Task) (*mcp.CallToolResult, error) {
	out := taskAnswer{TaskID: t.ID, State: t.State, AgentID: t.AgentID, Progress: t.Progress, Tokens: t.Tokens}
	switch {
	case t.State == models.TaskDone:
		result, truncated, err := h.outputOf(ctx, t)
		if err != nil {
			return nil, err
		}
		out.Result, out.Truncated = result, truncated
	case t.State.Ended():
		e := failure(CodeTaskFailed, "the task %s %s: %s", t.ID, t.State, orText(t.Error, "nobody says why"))
		e.Details = map[string]any{"task_id": t.ID, "state": t.State, "agent_id": t.AgentID, "reason": t.ErrorCode}
		return nil, e
	case t.Waits == models.WaitAnswer:
		asked, err := h.work.Asked(ctx, t)
		if err != nil {
			return nil, err
		}
		out.Question, out.Options, out.NextAction = asked.Text, asked.Options, "call comet:answer_task with this task_id and the answer"
	default:
		out.NextAction = "call comet:task_status with this task_id"
	}
	return answerOf(out)
}

func (h *Hub) orStanding(ctx context.Context, t models.Task, err error) (*mcp.CallToolResult, error) {
	if err != nil {
		return nil, err
	}
	return h.standing(ctx, t)
}

// askBack has a client that can be asked answer what a task's agent asks (PROTOCOL_V5 §7).
func (h *Hub) askBack(ctx context.Context, c *call, t models.Task) (answered bool, err error) {
	if c.opts.Elicit == nil {
		return false, nil
	}
	asked, err := h.work.Asked(ctx, t)
	if err != nil {
		return false, err
	}
	answer := map[string]any{"type": "string", "title": "Answer"}
	if len(asked.Options) > 0 {
		answer["enum"] = asked.Options
	}
	got, err := c.opts.Elicit(ctx, &mcp.ElicitParams{
		Message:         "The agent " + t.AgentID + " asks: " + asked.Text,
		RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{"answer": answer}, "required": []string{"answer"}},
	})
	if err != nil || got.Action != "accept" {
		return false, err
	}
	text, _ := got.Content["answer"].(string)
	if text == "" {
		return false, nil
	}
	_, err = h.work.Answer(ctx, t.ID, text)
	if errs.Is(err, errs.TaskState) { // somebody else was quicker
		err = nil
	}
	return err == nil, err
}

// answerTask is comet:answer_task.
func (h *Hub) answerTask(ctx context.Context, c *call) (*mcp.CallToolResult, error) {
	var d struct {
		TaskID      string   `json:"task_id"`
		Answer      string   `json:"answer"`
		WaitSeconds *float64 `json:"wait_seconds"`
	}
	if err := c.read(&d); err != nil {
		return nil, err
	}
	wait, err := waitOf(d.WaitSeconds, defaultWait)
	if err != nil {
		return nil, err
	}
	t, err := h.ownTask(ctx, c, d.TaskID)
	if err != nil {
		return nil, err
	}
	if t, err = h.work.Answer(ctx, t.ID, d.Answer); err != nil {
		return nil, err
	}
	return h.follow(ctx, c, t, wait)
}

// ownTask returns a task that the caller may change.
func (h *Hub) ownTask(ctx context.Context, c *call, id string) (models.Task, error) {
	t, err := h.taskOf(ctx, c, id)
	if err == nil && t.Owner != c.by.Principal.TokenID && !c.by.Principal.Has(models.ScopeAdmin) {
		err = refusal(CodePermissionDenied, "the task %s was asked for by another token", t.ID)
	}
	return t, err
}

// outputOf is what a task put out, at most maxTaskOutput of it.
func (h *Hub) outputOf(ctx context.Context, t models.Task) (result any, truncated bool, err error) {
	var text []byte
	err = h.work.OutputOf(ctx, t, models.StreamResult, 0, func(o models.Output) error {
		if room := maxTaskOutput - len(text); len(o.Data) > room {
			o.Data, truncated = o.Data[:room], true
		}
		text = append(text, o.Data...)
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	if !truncated && json.Valid(text) {
		return json.RawMessage(text), false, nil
	}
	return string(text), truncated, nil
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
