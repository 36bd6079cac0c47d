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
	"comet/internal/testkit"
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

// offers waits until the agent of an upstream offers its tools. It is registered after they can be called.
func (c *client) offers(t *testing.T, agentID string, tools int) {
	t.Helper()
	eventually(t, func() bool {
		status, body, err := c.do(t.Context(), http.MethodGet, "/api/v1/agents/"+agentID, nil)
		var found agent
		return err == nil && status == http.StatusOK && json.Unmarshal(body, &found) == nil && len(found.Capabilities) == tools
	}, "its tools are its capabilities")
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

// TestMCPUpstreamExecutesTasks checks that the agent of an upstream is in the REST API, and that it
// executes tasks from REST and requests of envelopes.
func TestMCPUpstreamExecutesTasks(t *testing.T) {
	t.Parallel()
	hubs(t, func(t *testing.T, database string) {
		paper := mcptest.NewPaper(t, "Paper-1")
		h := openHub(t, database, nil, paper)
		agentID := get[struct {
			AgentID string `json:"agent_id"`
		}](t, h.client, "/api/v1/upstreams/Paper-1").AgentID
		h.offers(t, agentID, 3)
		task := h.submits(t, "custom:Paper-1:echo", map[string]any{"a": 1})
		require.Equal(t, "done", task.State, "%+v", task)
		require.JSONEq(t, `{"a":1}`, task.output)
		calls := h.calls(t, "?task_id="+task.ID)
		require.Len(t, calls, 1)
		require.Equal(t, agentID, calls[0].AgentID)

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
				testkit.Receive(t, told) // the client handles notifications beside the response

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
					require.Contains(t, mcptest.TextOf(t, answer), "in json", "a client without elicitation replies with a call")
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
