package builtin_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/orchestrator"
	"comet/internal/testkit"
	"comet/internal/testkit/mcptest"
	"comet/internal/testkit/toolstest"
	"comet/internal/tools"
	"comet/models"
	"comet/store/storetest"
)

// taskResult is the result of the tools for tasks.
type taskResult struct {
	TaskID   string `json:"task_id"`
	State    string
	AgentID  string `json:"agent_id"`
	Tokens   int64  `json:"tokens_used"`
	Result   string
	Question string
	Options  []string
}

// decode returns the result of a tool for tasks.
func decode(t *testing.T, res *mcp.CallToolResult) (out taskResult) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(mcptest.TextOf(t, res)), &out))
	return out
}

// newRequester returns a client that may submit tasks.
func newRequester(t *testing.T, s *toolstest.Tools) *toolstest.Client {
	t.Helper()
	return s.Client(t, "", models.ScopeToolsCall, models.ScopeMessagesSend)
}

// join adds a worker with the capability custom:job, which is online.
func join(t *testing.T, s *toolstest.Tools) {
	t.Helper()
	s.Work.AddAgent(t, "worker", "", "custom:job")
	_, err := s.Work.Join(t.Context(), "worker", orchestrator.JoinRequest{Protocol: "envelope", Transport: "websocket", ConnectionID: "1", Concurrency: 4})
	require.NoError(t, err)
}

func TestTaskTools(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		s := toolstest.Start(t, db, nil)
		join(t, s)
		c := newRequester(t, s)
		submit := func(args map[string]any) taskResult {
			t.Helper()
			args["capabilities"], args["wait_seconds"] = []string{"custom:job"}, 0
			return decode(t, c.Call(t, "comet__submit_task", args))
		}

		t.Run("a submitted task continues and its status has the result", func(t *testing.T) {
			made := submit(map[string]any{"parameters": map[string]any{"n": 3}, "budget": 50, "priority": 3, "request_id": "a"})
			require.Equal(t, "new", made.State)
			require.Equal(t, made.TaskID, submit(map[string]any{"parameters": map[string]any{"n": 3}, "budget": 50, "priority": 3, "request_id": "a"}).TaskID, "a repeated submission is the same task")
			_, err := s.Work.Complete(t.Context(), "worker", made.TaskID, orchestrator.Result{Output: []byte("job 3"), Tokens: 7})
			require.NoError(t, err)
			done := decode(t, c.Call(t, "comet:task_status", map[string]any{"task_id": made.TaskID}))
			require.Equal(t, taskResult{TaskID: made.TaskID, State: "done", AgentID: "worker", Tokens: 7, Result: "job 3"}, done)
		})

		t.Run("a task belongs to its token", func(t *testing.T) {
			made, other := submit(map[string]any{}), newRequester(t, s)
			other.RequireFails(t, "INVALID_ARGUMENTS", "comet:task_status", map[string]any{"task_id": made.TaskID})
			reader := s.Client(t, "", models.ScopeToolsCall, models.ScopeMessagesSend, models.ScopeTasksRead)
			require.Equal(t, made.TaskID, decode(t, reader.Call(t, "comet:task_status", map[string]any{"task_id": made.TaskID})).TaskID)
			reader.RequireFails(t, "PERMISSION_DENIED", "comet:cancel_task", map[string]any{"task_id": made.TaskID})
			s.Client(t, "").RequireFails(t, "PERMISSION_DENIED", "comet:submit_task", map[string]any{"capabilities": []string{"custom:job"}})
		})

		t.Run("a task can be cancelled", func(t *testing.T) {
			made := submit(map[string]any{})
			res, err := c.TryCall(t, "comet:cancel_task", map[string]any{"task_id": made.TaskID, "reason": "no longer needed"})
			require.True(t, err != nil || res.IsError || decode(t, res).State == "cancelled", "%v", err)
			require.Equal(t, models.TaskCancelled, s.Work.WaitForTask(t, made.TaskID, testkit.Ended).State)
		})

		t.Run("a question is asked and replied to with a call", func(t *testing.T) {
			made := submit(map[string]any{})
			question := orchestrator.Question{Text: "which format?", Options: []string{"json", "txt"}}
			_, err := s.Work.Clarify(t.Context(), "worker", made.TaskID, question)
			require.NoError(t, err)
			asked := decode(t, c.Call(t, "comet:task_status", map[string]any{"task_id": made.TaskID}))
			require.Equal(t, "which format?", asked.Question)
			require.Equal(t, []string{"json", "txt"}, asked.Options)
			c.Call(t, "comet:reply_task", map[string]any{"task_id": made.TaskID, "reply": "json", "wait_seconds": 0})
			task, err := s.Work.Task(t.Context(), made.TaskID)
			require.NoError(t, err)
			reply, err := s.Work.LastReply(t.Context(), task)
			require.NoError(t, err)
			require.Equal(t, "json", reply)
		})

		t.Run("a task that fails and work that no agent offers are reported", func(t *testing.T) {
			made := submit(map[string]any{})
			_, err := s.Work.Complete(t.Context(), "worker", made.TaskID, orchestrator.Result{Failure: orchestrator.FailureInvalid, Text: "n is no number"})
			require.NoError(t, err)
			require.Contains(t, c.RequireFails(t, "TASK_FAILED", "comet:task_status", map[string]any{"task_id": made.TaskID}), "n is no number")
			_, err = c.TryCall(t, "comet:submit_task", map[string]any{"capabilities": []string{"juggling"}, "wait_seconds": 0})
			require.NotEmpty(t, tools.ErrorName(err))
			c.RequireFails(t, "INVALID_ARGUMENTS", "comet:task_status", map[string]any{"task_id": "unknown"})
			c.RequireFails(t, "INVALID_ARGUMENTS", "comet:task_status", map[string]any{"task_id": ""})
		})

		t.Run("a question is sent to a client that can be asked", func(t *testing.T) {
			made := submit(map[string]any{})
			_, err := s.Work.Clarify(t.Context(), "worker", made.TaskID, orchestrator.Question{Text: "which format?"})
			require.NoError(t, err)
			elicit := func(_ context.Context, p *mcp.ElicitParams) (*mcp.ElicitResult, error) {
				if !strings.Contains(p.Message, "which format?") {
					return &mcp.ElicitResult{Action: "decline"}, nil
				}
				s.DB.Clock.Advance(time.Minute) // ends the wait
				return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"reply": "txt"}}, nil
			}
			args, err := json.Marshal(map[string]any{"task_id": made.TaskID, "wait_seconds": 1})
			require.NoError(t, err)
			reader := s.Client(t, "", models.ScopeToolsCall, models.ScopeTasksRead, models.ScopeMessagesSend)
			_, err = s.Call(t.Context(), reader.Caller, "comet:task_status", args, answering(func(context.Context, *mcp.ElicitParams) (*mcp.ElicitResult, error) {
				t.Error("a token that has not requested the task was asked")
				return &mcp.ElicitResult{Action: "decline"}, nil
			}))
			require.NoError(t, err)
			_, err = s.Call(t.Context(), c.Caller, "comet:task_status", args, answering(elicit))
			require.NoError(t, err)
			task, err := s.Work.Task(t.Context(), made.TaskID)
			require.NoError(t, err)
			reply, err := s.Work.LastReply(t.Context(), task)
			require.NoError(t, err)
			require.Equal(t, "txt", reply)
		})
	})
}
