package builtin

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/errs"
	"comet/internal/tools"
	"comet/internal/upstream"
	"comet/models"
)

// maxTaskOutput is the longest output of a task in a result, in bytes.
const maxTaskOutput = 256 << 10

// taskResult is the state of a task as a tool returns it.
type taskResult struct {
	TaskID   string           `json:"task_id"`
	State    models.TaskState `json:"state"`
	AgentID  string           `json:"agent_id,omitempty"`
	Progress int              `json:"progress,omitempty"`
	Tokens   int64            `json:"tokens_used"`
	// Result is the output, decoded where it is JSON; absent until the task has ended.
	Result any `json:"result,omitempty"`
	// Truncated is true where Result is only the beginning.
	Truncated bool `json:"truncated,omitempty"`
	// Question is a question of the agent, and Options the allowed replies, empty for any.
	Question string   `json:"question,omitempty"`
	Options  []string `json:"options,omitempty"`
	// NextAction is the next step for the client, "" for none.
	NextAction string `json:"next_action,omitempty"`
}

// awaitTask waits for the end of a task, at most wait, reports progress and returns the state.
func (b *builtins) awaitTask(ctx context.Context, c *tools.Invocation, t models.Task, wait time.Duration) (*mcp.CallToolResult, error) {
	until := b.Clock().Add(wait)
	for reported := -1; !t.State.Ended(); {
		if t.Progress != reported && c.Options.Progress != nil {
			c.Options.Progress(upstream.Progress{Progress: float64(t.Progress), Total: 100, Message: t.StepName})
		}
		reported = t.Progress
		if t.WaitingFor == models.WaitForReply {
			replied, err := b.elicitReply(ctx, c, t)
			if err != nil {
				return nil, err
			}
			if !replied {
				break
			}
		}
		left := until.Sub(b.Clock())
		if left <= 0 {
			break
		}
		next, err := b.Orchestrator.WaitForChange(ctx, c.Caller.Principal.TokenID, t.ID, t.Version, left)
		if err != nil {
			return nil, err
		}
		t = next
	}
	return b.taskResultOf(ctx, t)
}

// taskResultOf returns the state of a task; a failed task is an error.
func (b *builtins) taskResultOf(ctx context.Context, t models.Task) (*mcp.CallToolResult, error) {
	out := taskResult{TaskID: t.ID, State: t.State, AgentID: t.AgentID, Progress: t.Progress, Tokens: t.Tokens}
	switch {
	case t.State == models.TaskDone:
		result, truncated, err := b.taskOutput(ctx, t)
		if err != nil {
			return nil, err
		}
		out.Result, out.Truncated = result, truncated
	case t.State.Ended():
		e := tools.NewError(errs.CodeFailed, "TASK_FAILED", "the task %s %s: %s", t.ID, t.State, cmp.Or(t.Error, "no reason is known"))
		return nil, tools.WithDetails(e, map[string]any{"task_id": t.ID, "state": t.State, "agent_id": t.AgentID, "reason": t.ErrorCode})
	case t.WaitingFor == models.WaitForReply:
		asked, err := b.Orchestrator.OpenQuestion(ctx, t)
		if err != nil {
			return nil, err
		}
		out.Question, out.Options, out.NextAction = asked.Text, asked.Options, "call comet:reply_task with this task_id and the reply"
	default:
		out.NextAction = "call comet:task_status with this task_id"
	}
	return jsonResult(out)
}

// elicitReply asks the client a question of the task's agent, where the client supports that.
func (b *builtins) elicitReply(ctx context.Context, c *tools.Invocation, t models.Task) (replied bool, err error) {
	p := c.Caller.Principal
	if !c.Options.Can.Forms() || !p.Has(models.ScopeMessagesSend) || t.Owner != p.TokenID && !p.Administers() {
		return false, nil
	}
	asked, err := b.Orchestrator.OpenQuestion(ctx, t)
	if err != nil {
		return false, err
	}
	reply := map[string]any{"type": "string", "title": "Reply"}
	if len(asked.Options) > 0 {
		reply["enum"] = asked.Options
	}
	got, err := c.Options.Elicit(ctx, &mcp.ElicitParams{
		Message:         "The agent " + t.AgentID + " asks: " + asked.Text,
		RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{"reply": reply}, "required": []string{"reply"}},
	})
	if err != nil || got.Action != "accept" {
		return false, err
	}
	text, _ := got.Content["reply"].(string)
	if text == "" {
		return false, nil
	}
	_, err = b.Orchestrator.Reply(ctx, t.ID, text)
	if errs.Is(err, errs.TaskState) { // the question was replied in another way
		err = nil
	}
	return err == nil, err
}

// taskOutput returns the output of a task, at most maxTaskOutput bytes.
func (b *builtins) taskOutput(ctx context.Context, t models.Task) (result any, truncated bool, err error) {
	var text []byte
	err = b.Orchestrator.Output(ctx, t, models.StreamResult, 0, func(o models.OutputChunk) error {
		if free := maxTaskOutput - len(text); len(o.Data) > free {
			o.Data, truncated = o.Data[:free], true
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
