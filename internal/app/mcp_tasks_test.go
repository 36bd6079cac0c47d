package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/config"
	"comet/internal/testkit"
	"comet/internal/testkit/mcptest"
)

// The capabilities of clients of the newest revision.
const (
	elicits   = `"elicitation":{}`
	withTasks = `"extensions":{"io.modelcontextprotocol/tasks":{}}`
)

// taskClient sends requests of the newest revision with capabilities.
type taskClient struct {
	send func(t *testing.T, method, name, body string) []byte
	can  string
}

// asking returns a client of the newest revision over HTTP that declares capabilities and sends further headers.
func (c *client) asking(capabilities string, header ...string) taskClient {
	return taskClient{can: capabilities, send: func(t *testing.T, method, name, body string) []byte {
		t.Helper()
		out := c.say(t, body, append([]string{"Mcp-Protocol-Version", newest, "Mcp-Method", method, "Mcp-Name", name}, header...)...)
		require.Len(t, out.messages, 1, out.body)
		return out.messages[0]
	}}
}

// taskReply has the members of all results.
type taskReply struct {
	ResultType, TaskID, Status, StatusMessage, RequestState string
	TTLMs                                                   *int64
	InputRequests                                           map[string]struct {
		Method string
		Params struct{ Message string }
	}
	Content           []struct{ Text string }
	StructuredContent map[string]any
	Result            *struct {
		Content           []struct{ Text string }
		StructuredContent map[string]any
		IsError           bool
	}
	Error *jsonrpc.Error
}

// try sends a request and returns its result or its error.
func (a taskClient) try(t *testing.T, method, name string, params map[string]any) (out taskReply, failed *jsonrpc.Error) {
	t.Helper()
	params = maps.Clone(params)
	params["_meta"] = json.RawMessage(`{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"raw","version":"1"},"io.modelcontextprotocol/clientCapabilities":{` + a.can + `}}`)
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": rand.IntN(1 << 30), "method": method, "params": params})
	require.NoError(t, err)
	var m struct {
		Result taskReply
		Error  *jsonrpc.Error
	}
	said := a.send(t, method, name, string(body))
	require.NoError(t, json.Unmarshal(said, &m), "%s", said)
	return m.Result, m.Error
}

func (a taskClient) must(t *testing.T, method, name string, params map[string]any) taskReply {
	t.Helper()
	out, failed := a.try(t, method, name, params)
	require.Nil(t, failed, "%+v", failed)
	return out
}

func (a taskClient) call(t *testing.T, tool string, args any, more ...any) taskReply {
	t.Helper()
	return a.must(t, "tools/call", tool, callOf(tool, args, more...))
}

func callOf(tool string, args any, more ...any) map[string]any {
	params := map[string]any{"name": tool, "arguments": args}
	for i := 0; i < len(more); i += 2 {
		params[more[i].(string)] = more[i+1]
	}
	return params
}

func (a taskClient) task(t *testing.T, id string) taskReply {
	t.Helper()
	return a.must(t, "tasks/get", id, map[string]any{"taskId": id})
}

// await waits until a task has a status.
func (a taskClient) await(t *testing.T, id, status string) (out taskReply) {
	t.Helper()
	eventually(t, func() bool { out = a.task(t, id); return out.Status == status }, "the task is "+status)
	return out
}

// reply answers the only question of a task.
func (a taskClient) reply(t *testing.T, asked taskReply, response any) {
	t.Helper()
	out, failed := a.tryReply(t, asked, response)
	require.Nil(t, failed, "%+v", failed)
	require.Equal(t, taskReply{ResultType: "complete"}, out)
}

func (a taskClient) tryReply(t *testing.T, asked taskReply, response any) (taskReply, *jsonrpc.Error) {
	t.Helper()
	return a.try(t, "tasks/update", asked.TaskID, map[string]any{"taskId": asked.TaskID, "inputResponses": map[string]any{asked.key(t): response}})
}

// key returns the key of the only question.
func (r taskReply) key(t *testing.T) string {
	t.Helper()
	keys := slices.Collect(maps.Keys(r.InputRequests))
	require.Len(t, keys, 1, "%+v", r)
	return keys[0]
}

func accepts(content map[string]any) map[string]any {
	return map[string]any{"action": "accept", "content": content}
}

// gated adds a tool that signals each call in began, and waits until proceed is closed or its call is cancelled.
func gated(s *mcptest.Server, d *mcp.Tool, then mcp.ToolHandler) (began, proceed chan struct{}) {
	began, proceed = make(chan struct{}, 10), make(chan struct{})
	s.Tool(d, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		began <- struct{}{}
		select {
		case <-proceed:
			return then(ctx, r)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	return began, proceed
}

func done(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return mcptest.Texts("done"), nil
}

// tasksAfter sets how long a call runs before it becomes a task.
func tasksAfter(d time.Duration) func(*config.Config) {
	return func(c *config.Config) { c.MCP.TasksAfter = d }
}

func TestMCPTasks(t *testing.T) {
	t.Parallel()
	hubs(t, func(t *testing.T, database string) {
		paper, old := mcptest.NewPaper(t, "paper"), mcptest.NewOf(t, "old", sessions)
		began, ended := paper.Held()
		_, press := gated(paper, &mcp.Tool{Name: "press", Meta: mcp.Meta{"comet/tasks": "required"}}, done)
		_, breaks := gated(paper, &mcp.Tool{Name: "breaks"}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return nil, &jsonrpc.Error{Code: -32050, Message: "out of paper"}
		})
		_, asks := gated(old, &mcp.Tool{Name: "asks"}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			a, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "which?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"string"}}}`)})
			if err != nil {
				return nil, err
			}
			return mcptest.Texts(fmt.Sprint(a.Action, a.Content["n"])), nil
		})
		slowBegan, slow := gated(paper, &mcp.Tool{Name: "slow"}, done)
		h := openHub(t, database, tasksAfter(time.Millisecond), paper, old)
		who := h.holder(t, "")
		c, foreign := who.asking(elicits+","+withTasks), h.holder(t, "").asking(withTasks)

		t.Run("ASlowCallBecomesATask", func(t *testing.T) {
			made := c.call(t, "paper:press", map[string]any{"text": "$t1.result"})
			require.Equal(t, "task", made.ResultType)
			require.Equal(t, "working", made.Status)
			require.Equal(t, "working", c.task(t, made.TaskID).Status)
			require.Nil(t, made.TTLMs)
			for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
				_, failed := foreign.try(t, method, made.TaskID, map[string]any{"taskId": made.TaskID, "inputResponses": map[string]any{}})
				require.EqualValues(t, -32602, failed.Code, method)
			}
			close(press)
			ended := c.await(t, made.TaskID, "completed")
			require.Equal(t, "done", ended.Result.Content[0].Text)
			require.Greater(t, *ended.TTLMs, int64(time.Hour/time.Millisecond))
			require.Equal(t, taskReply{ResultType: "complete"}, c.must(t, "tasks/cancel", made.TaskID, map[string]any{"taskId": made.TaskID}))
			require.Equal(t, "completed", c.task(t, made.TaskID).Status)
		})

		t.Run("CancellingATaskCancelsItsCall", func(t *testing.T) {
			made := c.call(t, "paper:held", map[string]any{})
			testkit.Receive(t, began)
			c.must(t, "tasks/cancel", made.TaskID, map[string]any{"taskId": made.TaskID})
			require.ErrorIs(t, testkit.Receive(t, ended), context.Canceled)
			require.Equal(t, "cancelled", c.task(t, made.TaskID).Status)
		})

		t.Run("AJSONRPCErrorFailsATask", func(t *testing.T) {
			made := c.call(t, "paper:breaks", map[string]any{})
			require.Equal(t, "task", made.ResultType)
			close(breaks)
			failed := c.await(t, made.TaskID, "failed")
			require.EqualValues(t, -32050, failed.Error.Code)
			require.Contains(t, failed.Error.Message, "out of paper")
			require.Nil(t, failed.Result)
		})

		t.Run("AQuestionOfTheUpstreamIsAQuestionOfTheTask", func(t *testing.T) {
			made := c.call(t, "old:asks", map[string]any{})
			close(asks)
			asked := c.await(t, made.TaskID, "input_required")
			require.Equal(t, "elicitation/create", asked.InputRequests[asked.key(t)].Method)
			_, failed := c.tryReply(t, asked, 5)
			require.EqualValues(t, -32602, failed.Code)
			c.must(t, "tasks/update", made.TaskID, map[string]any{"taskId": made.TaskID, "inputResponses": map[string]any{"unknown": 5}})
			require.Equal(t, asked.key(t), c.task(t, made.TaskID).key(t), "a question has one key")
			c.reply(t, asked, accepts(map[string]any{"n": "seven"}))
			require.Equal(t, "acceptseven", c.await(t, made.TaskID, "completed").Result.Content[0].Text)
		})

		t.Run("AWorkflowIsATask", func(t *testing.T) {
			made := c.call(t, "agentcards:execute_dag", json.RawMessage(`{"workflow":{"tasks":[
				{"id":"a","tool":"paper:echo","arguments":{"n":1},"approve":true},{"id":"b","tool":"paper:echo","depends_on":["a"],"approve":true}]}}`))
			require.Equal(t, "task", made.ResultType)
			first := c.await(t, made.TaskID, "input_required")
			message := first.InputRequests[first.key(t)].Params.Message
			for _, shown := range []string{"paper:echo", `{"n":1}`, "digest "} {
				require.Contains(t, message, shown)
			}
			_, failed := c.tryReply(t, first, accepts(map[string]any{"decision": "perhaps"}))
			require.EqualValues(t, -32602, failed.Code)
			c.reply(t, first, map[string]any{"action": "cancel"})
			require.Equal(t, first.key(t), c.task(t, made.TaskID).key(t))
			c.reply(t, first, accepts(map[string]any{"decision": "approve"}))
			var second taskReply
			eventually(t, func() bool {
				second = c.task(t, made.TaskID)
				return second.Status == "input_required" && second.InputRequests[first.key(t)].Method == ""
			}, "the second question is open")
			c.reply(t, first, accepts(map[string]any{"decision": "reject"}))
			require.Equal(t, second.key(t), c.task(t, made.TaskID).key(t), "a late answer to the first question has no effect")
			c.reply(t, second, accepts(map[string]any{"decision": "approve"}))
			ended := c.await(t, made.TaskID, "completed")
			require.Equal(t, "complete", ended.Result.StructuredContent["status"])
			require.False(t, ended.Result.IsError)
		})

		t.Run("ARejectedWorkflowIsACancelledTask", func(t *testing.T) {
			made := c.call(t, "agentcards:execute_dag", json.RawMessage(`{"workflow":{"tasks":[{"id":"a","tool":"paper:echo"},{"id":"b","tool":"paper:echo","depends_on":["a"]}]},"per_layer_validation":true}`))
			c.reply(t, c.await(t, made.TaskID, "input_required"), map[string]any{"action": "decline"})
			require.Equal(t, "cancelled", c.task(t, made.TaskID).Status)
		})

		t.Run("ADecisionOnAWorkflowOfAnotherTokenIsNoTask", func(t *testing.T) {
			made := c.call(t, "agentcards:execute_dag", json.RawMessage(`{"workflow":{"tasks":[{"id":"a","tool":"paper:slow","approve":true}]}}`))
			asked := c.await(t, made.TaskID, "input_required")
			go func() {
				select {
				case <-slowBegan:
					close(slow)
				case <-t.Context().Done():
				}
			}()
			out := h.asking(elicits+","+withTasks).call(t, "agentcards:approval_response", map[string]any{"workflow_id": made.TaskID, "checkpoint_id": asked.key(t), "approved": true})
			require.Equal(t, "complete", out.ResultType)
			require.Equal(t, "complete", out.StructuredContent["status"])
		})

		t.Run("AClientMustDeclareTheExtension", func(t *testing.T) {
			plain := who.asking(elicits)
			for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
				_, failed := plain.try(t, method, "wf_x", map[string]any{"taskId": "wf_x", "inputResponses": map[string]any{}})
				require.EqualValues(t, mcp.CodeMissingRequiredClientCapabilities, failed.Code)
				require.JSONEq(t, `{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`, string(failed.Data))
			}
			_, failed := plain.try(t, "tools/call", "paper:press", callOf("paper:press", map[string]any{}))
			require.EqualValues(t, mcp.CodeMissingRequiredClientCapabilities, failed.Code, "the tool demands tasks")
			require.Equal(t, "complete", plain.call(t, "paper:echo", map[string]any{}).ResultType)
		})
	})
}

func TestMCPTasksAreForSlowCalls(t *testing.T) {
	t.Parallel()
	h := openHub(t, "sqlite", tasksAfter(time.Hour), mcptest.NewPaper(t, "paper"))
	c := h.holder(t, "").asking(withTasks)
	require.Equal(t, `{"n":1}`, c.call(t, "paper:echo", map[string]any{"n": 1}).Content[0].Text)
	out := c.call(t, "agentcards:execute_dag", json.RawMessage(`{"workflow":{"tasks":[{"id":"a","tool":"paper:echo"}]}}`))
	require.Equal(t, "complete", out.ResultType)
	require.Equal(t, "complete", out.StructuredContent["status"])
	out = c.call(t, "agentcards:execute_dag", json.RawMessage(`{"workflow":{"tasks":[{"id":"a","tool":"paper:echo","approve":true}]}}`))
	require.Equal(t, "approval_required", out.StructuredContent["status"], "the client cannot be asked")
}

// TestMCPTasksSurviveKill9 kills the server between the creation of tasks and the next request. A call that may run again
// does; another one asks.
func TestMCPTasksSurviveKill9(t *testing.T) {
	t.Parallel()
	onEveryDatabase(t, func(t *testing.T, database setting) {
		paper := mcptest.NewPaper(t, "paper")
		acts, proceedActs := gated(paper, &mcp.Tool{Name: "acts"}, done)
		reads, proceedReads := gated(paper, &mcp.Tool{Name: "reads", Annotations: mcptest.Reads()}, done)
		file := filepath.Join(t.TempDir(), "servers.json")
		mcptest.WriteServers(t, file, paper)
		data := t.TempDir()
		begin := func() (*process, taskClient) {
			p := serve(t, data, database, env("COMET_MCP_SERVERS="+file, "COMET_MCP_TASKS_AFTER=1ms"))
			c := newClient(t, p.url(t), adminToken(t, data))
			eventually(t, func() bool {
				status, _, _ := c.do(t.Context(), http.MethodPost, "/api/v1/tools/call", map[string]any{"tool": "paper:echo", "arguments": map[string]any{}})
				return status == http.StatusOK
			}, "the upstream is ready")
			return p, c.asking(elicits + "," + withTasks)
		}
		p, c := begin()
		acting, reading := c.call(t, "paper:acts", map[string]any{"n": "$x.result"}), c.call(t, "paper:reads", map[string]any{})
		testkit.Receive(t, acts)
		testkit.Receive(t, reads)
		p.kill()
		close(proceedReads)
		p, c = begin()
		require.Contains(t, []string{"working", "input_required"}, c.task(t, acting.TaskID).Status)
		require.Equal(t, "done", c.await(t, reading.TaskID, "completed").Result.Content[0].Text)
		asked := c.await(t, acting.TaskID, "input_required")
		require.Contains(t, asked.InputRequests[asked.key(t)].Params.Message, `{"n":"$x.result"}`)
		require.Empty(t, acts, "it was not called again")
		close(proceedActs)
		c.reply(t, asked, accepts(map[string]any{"decision": "retry"}))
		require.Equal(t, "done", c.await(t, acting.TaskID, "completed").Result.Content[0].Text)
		require.Len(t, acts, 1)
		p.stop(t)
	})
}
