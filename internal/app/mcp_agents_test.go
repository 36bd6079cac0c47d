package app_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	comet "comet/agent"
	"comet/internal/testkit/mcptest"
)

// toolTask is the result of a task over REST.
type toolTask struct {
	taskDetail
	ErrorText string `json:"error"`
	output    string
}

// submits submits a task that requires a capability and waits for its end.
func (c *client) submits(t *testing.T, capability string, parameters any) (out toolTask) {
	t.Helper()
	made := into[struct{ ID string }](t, c, http.StatusAccepted, http.MethodPost, "/api/v1/tasks", map[string]any{"capabilities": []string{capability}, "parameters": parameters})
	return c.ends(t, made.ID)
}

// ends waits for the end of a task.
func (c *client) ends(t *testing.T, id string) (out toolTask) {
	t.Helper()
	eventually(t, func() bool {
		out = get[toolTask](t, c, "/api/v1/tasks/"+id)
		return out.ended()
	}, "the task ends")
	if out.State == "done" {
		_, body, err := c.do(t.Context(), http.MethodGet, "/api/v1/tasks/"+id+"/output", nil)
		require.NoError(t, err)
		out.output = string(body)
	}
	return out
}

func TestMCPUpstreamIsAnAgent(t *testing.T) {
	t.Parallel()
	hubs(t, func(t *testing.T, database string) {
		paper := mcptest.NewPaper(t, "Paper-1")
		paper.Tool(&mcp.Tool{Name: "fail"}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			res := mcptest.Texts("the printer is on fire")
			res.IsError = true
			return res, nil
		})
		began, over := paper.Held()
		h := openHub(t, database, nil, paper)
		var up struct {
			AgentID string `json:"agent_id"`
		}
		require.NoError(t, json.Unmarshal(h.must(t, http.StatusOK, http.MethodGet, "/api/v1/upstreams/Paper-1", nil), &up))

		t.Run("ItIsInTheRegistry", func(t *testing.T) {
			var a agent
			eventually(t, func() bool {
				a = get[agent](t, h.client, "/api/v1/agents/"+up.AgentID)
				return len(a.Capabilities) == 5
			}, "its tools are its capabilities")
			require.EqualValues(t, 2, a.Level)
			require.Equal(t, 8, *a.SphereID)
			require.Equal(t, 555, a.FrequencyHz)
			require.Equal(t, "orch-my-team", *a.ParentID)
			require.Equal(t, []string{"custom:Paper-1:echo", "custom:Paper-1:fail", "custom:Paper-1:held", "custom:Paper-1:note", "custom:Paper-1:shred"}, a.Capabilities)
		})

		t.Run("AToolExecutesATask", func(t *testing.T) {
			before := h.used(t, up.AgentID)
			task := h.submits(t, "custom:Paper-1:echo", map[string]any{"a": 1})
			require.Equal(t, "done", task.State, "%+v", task)
			require.JSONEq(t, `{"a":1}`, task.output)
			require.Positive(t, task.Tokens)
			require.Equal(t, before+task.Tokens, h.used(t, up.AgentID), "its agent pays, as for any task")
			calls := h.calls(t, "?task_id="+task.ID)
			require.Len(t, calls, 1)
			require.Equal(t, "task", calls[0].Source)
			require.Equal(t, up.AgentID, calls[0].AgentID)
		})

		t.Run("AToolExecutesAnEnvelopeRequest", func(t *testing.T) {
			speak, err := comet.NewClient(h.URL, h.Token, h.HTTP)
			require.NoError(t, err)
			reply, err := speak.Await(t.Context(), &comet.Request{
				To: "orchestrator", WorkType: "custom:Paper-1:echo", Parameters: json.RawMessage(`{"b":2}`), Hints: comet.Hints{MaxDuration: long},
				TaskID: uuid.New(), RequestID: uuid.New(), TraceID: uuid.New(),
			})
			require.NoError(t, err)
			require.Zero(t, reply.Code, "%+v", reply)
			require.Contains(t, reply.Output, `{"b":2}`)
		})

		t.Run("AToolThatFailsFailsTheTask", func(t *testing.T) {
			task := h.submits(t, "custom:Paper-1:fail", nil)
			require.Equal(t, "failed", task.State)
			require.Contains(t, task.ErrorText, "the printer is on fire")
		})

		t.Run("TheToolPolicyOfTheRequesterApplies", func(t *testing.T) {
			who := h.holder(t, "", "tools:call", "messages:send", "tasks:read")
			h.policy(t, who, `{"deny":[{"tool":"Paper-1:note"}]}`)
			before := paper.Calls()
			task := who.submits(t, "custom:Paper-1:note", nil)
			require.Equal(t, "failed", task.State)
			require.Contains(t, task.ErrorText, "TOOL_NOT_FOUND")
			require.Equal(t, before, paper.Calls())
		})

		t.Run("ACancelledTaskEndsTheCall", func(t *testing.T) {
			made := into[struct{ ID string }](t, h.client, http.StatusAccepted, http.MethodPost, "/api/v1/tasks", map[string]any{"capabilities": []string{"custom:Paper-1:held"}})
			<-began
			eventually(t, func() bool {
				return get[struct{ Progress int }](t, h.client, "/api/v1/tasks/"+made.ID).Progress == 25
			}, "its progress is the task's")
			h.must(t, http.StatusOK, http.MethodPost, "/api/v1/tasks/"+made.ID+"/cancel", map[string]any{})
			require.ErrorIs(t, <-over, context.Canceled)
			require.Equal(t, "cancelled", h.ends(t, made.ID).State)
		})

		t.Run("ARemovedUpstreamGetsNoTasks", func(t *testing.T) {
			mcptest.WriteServers(t, h.cfg.MCP.Servers)
			h.must(t, http.StatusNoContent, http.MethodPost, "/api/v1/upstreams/reload", nil)
			eventually(t, func() bool {
				return get[struct{ State string }](t, h.client, "/api/v1/workers/"+up.AgentID).State == "offline"
			}, "its worker leaves")
		})
	})
}

func TestMCPSubmitTask(t *testing.T) {
	t.Parallel()
	hubs(t, func(t *testing.T, database string) {
		h := openHub(t, database, nil)
		work := &jobRunner{tokens: 7}
		work.runAgent(t, h.URL, h.registerInfra(t, "worker", "job"), 4)
		b := &protocolFixture{client: h.client}
		eventually(t, func() bool { return b.online(t, "worker") }, "the worker is there")

		for _, revision := range []string{newest, sessions} {
			t.Run("AnAgentGetsATaskFrom"+revision, func(t *testing.T) {
				who := h.holder(t, "", "tools:call", "messages:send", "tasks:read")
				told := make(chan float64, 100)
				s := who.speak(t, revision, &mcp.ClientOptions{ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
					told <- r.Params.Progress
				}})
				params := &mcp.CallToolParams{Name: "comet__submit_task", Arguments: map[string]any{"capabilities": []string{"job"}, "parameters": map[string]any{"n": 3}, "budget": 50}}
				params.SetProgressToken("p")
				res, err := s.CallTool(t.Context(), params)
				require.NoError(t, err)
				var out struct {
					TaskID  string `json:"task_id"`
					State   string
					AgentID string `json:"agent_id"`
					Tokens  int64  `json:"tokens_used"`
					Result  string
				}
				require.NoError(t, json.Unmarshal([]byte(mcptest.TextOf(t, res)), &out))
				require.Equal(t, []any{"done", "worker", int64(7), "job 3"}, []any{out.State, out.AgentID, out.Tokens, out.Result})
				require.NotEmpty(t, told)

				status := called(t, s, "comet:task_status", map[string]any{"task_id": out.TaskID})
				require.Contains(t, mcptest.TextOf(t, status), `"state":"done"`)
				otherAgent := h.holder(t, "").speak(t, revision, nil)
				requireFailed(t, "INVALID_ARGUMENTS", called(t, otherAgent, "comet:task_status", map[string]any{"task_id": out.TaskID}))
				requireFailed(t, "PERMISSION_DENIED", called(t, otherAgent, "comet:submit_task", map[string]any{"capabilities": []string{"job"}}))
			})
		}

		t.Run("AQuestionIsSentToTheClient", func(t *testing.T) {
			for _, revision := range []string{newest, sessions} {
				t.Run(revision, func(t *testing.T) {
					painter := b.newWorker(t, "websocket")
					who := h.holder(t, "", "tools:call", "messages:send", "tasks:read")
					s := who.speak(t, revision, &mcp.ClientOptions{ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
						if !strings.Contains(r.Params.Message, "which format?") {
							return &mcp.ElicitResult{Action: "decline"}, nil
						}
						return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"reply": "txt"}}, nil
					}})
					ask := map[string]any{"agent_id": painter.id, "parameters": map[string]any{"do": "ask"}, "wait_seconds": 60}
					require.Contains(t, mcptest.TextOf(t, called(t, s, "comet:submit_task", ask)), "in txt")

					mute := who.speak(t, revision, nil)
					var asked struct {
						TaskID   string `json:"task_id"`
						Question string
						Options  []string
					}
					require.NoError(t, json.Unmarshal([]byte(mcptest.TextOf(t, called(t, mute, "comet:submit_task", ask))), &asked))
					require.Equal(t, "which format?", asked.Question)
					require.Equal(t, []string{"json", "txt"}, asked.Options)
					answer := called(t, mute, "comet:reply_task", map[string]any{"task_id": asked.TaskID, "reply": "json"})
					require.Contains(t, mcptest.TextOf(t, answer), "in json", "who cannot be asked answers with a call")
				})
			}
		})

		t.Run("AnUnsupportedCapabilityIsReported", func(t *testing.T) {
			s := h.speak(t, newest, nil)
			res := called(t, s, "comet:submit_task", map[string]any{"capabilities": []string{"juggling"}, "wait_seconds": 0})
			require.True(t, res.IsError, mcptest.TextOf(t, res))
			res = called(t, s, "comet:submit_task", map[string]any{"agent_id": "worker", "capabilities": []string{"job"}, "parameters": map[string]any{"n": "x"}})
			require.Contains(t, requireFailed(t, "TASK_FAILED", res), "failed")
		})
	})
}
