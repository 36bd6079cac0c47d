package tools

import (
	"context"
	"encoding/json"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/errs"
	"comet/internal/upstream"
	"comet/models"
)

// maxTaskOutput is how much of what a task put out is returned, in bytes.
const maxTaskOutput = 256 << 10

// taskResult is how a task stands.
type taskResult struct {
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

// awaitTask waits for the end of a task, tells of its progress, and returns how it stands.
func (h *Service) awaitTask(ctx context.Context, c *call, t models.Task, wait time.Duration) (*mcp.CallToolResult, error) {
	until := h.opts.Clock().Add(wait)
	for told := -1; !t.State.Ended(); {
		if t.Progress != told && c.opts.Progress != nil {
			c.opts.Progress(upstream.Progress{Progress: float64(t.Progress), Total: 100, Message: t.StepName})
		}
		told = t.Progress
		if t.WaitingFor == models.WaitForReply {
			answered, err := h.elicitReply(ctx, c, t)
			if err != nil || !answered {
				return h.taskResultOr(ctx, t, err)
			}
		}
		left := until.Sub(h.opts.Clock())
		if left <= 0 {
			break
		}
		next, err := h.orchestrator.WaitForChange(ctx, c.by.Principal.TokenID, t.ID, t.Version, left)
		if err != nil {
			return nil, err
		}
		t = next
	}
	return h.taskResultOf(ctx, t)
}

// taskResultOf is how a task stands. One that failed is an error.
func (h *Service) taskResultOf(ctx context.Context, t models.Task) (*mcp.CallToolResult, error) {
	out := taskResult{TaskID: t.ID, State: t.State, AgentID: t.AgentID, Progress: t.Progress, Tokens: t.Tokens}
	switch {
	case t.State == models.TaskDone:
		result, truncated, err := h.taskOutput(ctx, t)
		if err != nil {
			return nil, err
		}
		out.Result, out.Truncated = result, truncated
	case t.State.Ended():
		e := newFailure(CodeTaskFailed, "the task %s %s: %s", t.ID, t.State, orElse(t.Error, "nobody says why"))
		e.Details = map[string]any{"task_id": t.ID, "state": t.State, "agent_id": t.AgentID, "reason": t.ErrorCode}
		return nil, e
	case t.WaitingFor == models.WaitForReply:
		asked, err := h.orchestrator.OpenQuestion(ctx, t)
		if err != nil {
			return nil, err
		}
		out.Question, out.Options, out.NextAction = asked.Text, asked.Options, "call comet:answer_task with this task_id and the answer"
	default:
		out.NextAction = "call comet:task_status with this task_id"
	}
	return jsonResult(out)
}

func (h *Service) taskResultOr(ctx context.Context, t models.Task, err error) (*mcp.CallToolResult, error) {
	if err != nil {
		return nil, err
	}
	return h.taskResultOf(ctx, t)
}

// elicitReply has a client that can be asked answer what a task's agent asks (PROTOCOL_V5 §7).
func (h *Service) elicitReply(ctx context.Context, c *call, t models.Task) (answered bool, err error) {
	if c.opts.Elicit == nil {
		return false, nil
	}
	asked, err := h.orchestrator.OpenQuestion(ctx, t)
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
	_, err = h.orchestrator.Reply(ctx, t.ID, text)
	if errs.Is(err, errs.TaskState) { // somebody else was quicker
		err = nil
	}
	return err == nil, err
}

// taskOutput is what a task put out, at most maxTaskOutput of it.
func (h *Service) taskOutput(ctx context.Context, t models.Task) (result any, truncated bool, err error) {
	var text []byte
	err = h.orchestrator.OutputOf(ctx, t, models.StreamResult, 0, func(o models.OutputChunk) error {
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
