package app_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/testkit"
	"comet/internal/testkit/mcptest"
	"comet/internal/workflow"
)

// asksForApproval is a workflow whose only step needs approval.
const asksForApproval = `{"workflow":{"tasks":[{"id":"a","tool":"paper:echo","arguments":{"n":1},"approve":true}]}}`

// asksForBudget is a workflow whose budget does not cover its only step.
const asksForBudget = `{"workflow":{"tasks":[{"id":"a","tool":"paper:echo","arguments":{"text":"more than one token"}}]},"config":{"budget":1}}`

// asksForPerson is a workflow whose only step needs the approval of a person.
const asksForPerson = `{"workflow":{"tasks":[{"id":"a","tool":"paper:echo","arguments":{"n":1},"approve":true}]},"config":{"approver":"human"}}`

// TestMCPCheckpointsInResults checks questions about checkpoints in the results of calls (2026-07-28).
func TestMCPCheckpointsInResults(t *testing.T) {
	t.Parallel()
	const dag = "agentcards:execute_dag"
	hubs(t, func(t *testing.T, database string) {
		paper := mcptest.NewPaper(t, "paper")
		h := openHub(t, database, nil, paper)
		who := h.holder(t, "")
		c := who.asking(elicits)
		ask := func(t *testing.T) taskReply {
			t.Helper()
			asked := c.call(t, dag, json.RawMessage(asksForApproval))
			require.Equal(t, "input_required", asked.ResultType)
			require.Contains(t, asked.InputRequests[asked.key(t)].Params.Message, `a: paper:echo (read) {"n":1}`)
			return asked
		}
		answer := func(asked taskReply, args string, decision string) map[string]any {
			return callOf(dag, json.RawMessage(args), "requestState", asked.RequestState,
				"inputResponses", map[string]any{asked.key(t): accepts(map[string]any{"decision": decision, "feedback": "because"})})
		}

		t.Run("AnAnswerIsADecision", func(t *testing.T) {
			asked := ask(t)
			_, failed := h.holder(t, "").asking(elicits).try(t, "tools/call", dag, answer(asked, asksForApproval, "approve"))
			require.EqualValues(t, -32602, failed.Code, "the token")
			_, failed = c.try(t, "tools/call", dag, answer(asked, `{"intent":"x"}`, "approve"))
			require.EqualValues(t, -32602, failed.Code, "the arguments")
			_, failed = c.try(t, "tools/call", dag, callOf(dag, json.RawMessage(asksForApproval), "requestState", asked.RequestState))
			require.EqualValues(t, -32602, failed.Code, "no answer")
			out := c.must(t, "tools/call", dag, answer(asked, asksForApproval, "approve"))
			require.Equal(t, "complete", out.ResultType)
			require.Equal(t, "complete", out.StructuredContent["status"])
			_, failed = c.try(t, "tools/call", dag, answer(asked, asksForApproval, "approve"))
			require.EqualValues(t, -32602, failed.Code, "once")
			require.Contains(t, failed.Message, "("+out.StructuredContent["workflow_id"].(string)+")", "the error names the workflow")
			for _, state := range []string{"wf_\x00.cp_x.y", "wf_" + strings.Repeat("x", 126)} {
				_, failed = c.try(t, "tools/call", dag, callOf(dag, json.RawMessage(asksForApproval), "requestState", state))
				require.Contains(t, failed.Message, "params.requestState must be")
			}
		})

		t.Run("LongCodeAndArgumentsAreClipped", func(t *testing.T) {
			code, text := "return 1 // "+strings.Repeat("é", 4000), strings.Repeat("x", 5000)
			args, err := json.Marshal(map[string]any{"workflow": map[string]any{"tasks": []any{
				map[string]any{"id": "a", "type": "code_execution", "code": code, "approve": true},
				map[string]any{"id": "b", "tool": "paper:echo", "arguments": map[string]any{"text": text}, "approve": true},
			}}})
			require.NoError(t, err)
			asked := c.call(t, dag, json.RawMessage(args))
			message := asked.InputRequests[asked.key(t)].Params.Message
			require.Contains(t, message, fmt.Sprintf("é… (%d bytes in total)", len(code)))
			require.Contains(t, message, `b: paper:echo (read) {"text":"xxx`)
			require.Contains(t, message, fmt.Sprintf("x… (%d bytes in total)", len(`{"text":""}`)+len(text)))
			require.NotContains(t, message, strings.Repeat("x", 4000))
			require.True(t, utf8.ValidString(message))
			require.Equal(t, "rejected", c.must(t, "tools/call", dag, answer(asked, string(args), "reject")).StructuredContent["status"])
		})

		t.Run("ARejectionHasAReason", func(t *testing.T) {
			out := c.must(t, "tools/call", dag, answer(ask(t), asksForApproval, "reject"))
			require.Equal(t, "rejected", out.StructuredContent["status"])
			require.Equal(t, "because", out.StructuredContent["feedback"])
		})

		t.Run("ACancelledQuestionLeavesTheCheckpointOpen", func(t *testing.T) {
			asked := ask(t)
			out := c.must(t, "tools/call", dag, callOf(dag, json.RawMessage(asksForApproval), "requestState", asked.RequestState,
				"inputResponses", map[string]any{asked.key(t): map[string]any{"action": "cancel"}}))
			require.Equal(t, "approval_required", out.StructuredContent["status"])
			again := c.call(t, "agentcards:approval_response", map[string]any{
				"workflow_id": out.StructuredContent["workflow_id"], "checkpoint_id": out.StructuredContent["checkpoint_id"], "approved": true,
			})
			require.Equal(t, "complete", again.StructuredContent["status"])
		})

		t.Run("ADeclinedBudgetLeavesTheCheckpointOpen", func(t *testing.T) {
			c, declined := h.holder(t, "").asking(elicits), map[string]any{"action": "decline"} // its workflows stay paused
			raises := func(budget any) map[string]any { return accepts(map[string]any{"decision": "raise", "budget": budget}) }
			try := func(t *testing.T, response any) (taskReply, *jsonrpc.Error) {
				t.Helper()
				asked := c.call(t, dag, json.RawMessage(asksForBudget))
				require.Equal(t, "input_required", asked.ResultType)
				require.Contains(t, asked.InputRequests[asked.key(t)].Params.Message, "Budget: 1 tokens, of which 0 are used")
				return c.try(t, "tools/call", dag, callOf(dag, json.RawMessage(asksForBudget), "requestState", asked.RequestState,
					"inputResponses", map[string]any{asked.key(t): response}))
			}
			out, _ := try(t, declined)
			require.Equal(t, "budget_exhausted", out.StructuredContent["status"])
			_, failed := try(t, raises(1.5))
			require.EqualValues(t, -32602, failed.Code)
			out, _ = try(t, raises(1))
			require.Contains(t, out.Content[0].Text, "the budget of 1 tokens is exhausted")
			out, _ = try(t, raises(1000))
			require.Equal(t, "complete", out.StructuredContent["status"])
			out, _ = try(t, accepts(map[string]any{"decision": "abort"}))
			require.Equal(t, "rejected", out.StructuredContent["status"])
		})

		t.Run("APersonApprovesByForm", func(t *testing.T) {
			asked := c.call(t, dag, json.RawMessage(asksForPerson))
			id, _, _ := strings.Cut(asked.RequestState, ".")
			refused := c.call(t, "agentcards:approval_response", map[string]any{"workflow_id": id, "checkpoint_id": asked.key(t), "approved": true})
			require.Contains(t, refused.Content[0].Text, "APPROVAL_DENIED")
			out := c.must(t, "tools/call", dag, answer(asked, asksForPerson, "approve"))
			require.Equal(t, "complete", out.StructuredContent["status"])
		})

		t.Run("AnEarlierDecisionWins", func(t *testing.T) {
			asked := ask(t)
			who.decidePaused(t, false)
			out := c.must(t, "tools/call", dag, answer(asked, asksForApproval, "approve"))
			require.Equal(t, "rejected", out.StructuredContent["status"])
		})

		t.Run("AnotherProcessAcceptsTheAnswer", func(t *testing.T) {
			asked := ask(t)
			require.NoError(t, h.app.Stop(t.Context()))
			restarted := startHub(t, h.cfg, paper)
			c := newClient(t, restarted.URL, who.Token).asking(elicits)
			out := c.must(t, "tools/call", dag, answer(asked, asksForApproval, "approve"))
			require.Equal(t, "complete", out.StructuredContent["status"])
		})
	})
}

// decidePaused decides over REST about the checkpoint of the only paused workflow of a token.
func (c *client) decidePaused(t *testing.T, approved bool) {
	t.Helper()
	list := get[struct{ Workflows []workflow.Summary }](t, c, "/api/v1/workflows?status=paused").Workflows
	require.Len(t, list, 1)
	v := get[workflow.View](t, c, "/api/v1/workflows/"+list[0].WorkflowID)
	c.must(t, http.StatusOK, http.MethodPost, "/api/v1/workflows/"+v.WorkflowID+"/checkpoints/"+v.CheckpointID, map[string]any{"approved": approved})
}

// TestMCPCheckpointsInSessions checks questions about checkpoints on the streams of calls, in revisions with sessions.
func TestMCPCheckpointsInSessions(t *testing.T) {
	t.Parallel()
	hubs(t, func(t *testing.T, database string) {
		h := openHub(t, database, nil, mcptest.NewPaper(t, "paper"))
		who := h.holder(t, "")
		execute := func(t *testing.T, args string, handle func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error)) (v workflow.View) {
			t.Helper()
			s := who.speak(t, sessions, &mcp.ClientOptions{ElicitationHandler: handle})
			require.NoError(t, json.Unmarshal([]byte(mcptest.TextOf(t, called(t, s, "agentcards:execute_dag", json.RawMessage(args)))), &v))
			return v
		}
		says := func(action, decision string) func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				if !strings.Contains(r.Params.Message, `a: paper:echo (read) {"n":1}`) {
					return nil, errors.New(r.Params.Message)
				}
				return &mcp.ElicitResult{Action: action, Content: map[string]any{"decision": decision}}, nil
			}
		}

		t.Run("AnAnswerIsADecision", func(t *testing.T) {
			require.Equal(t, "complete", execute(t, asksForApproval, says("accept", "approve")).Status)
			require.Equal(t, "rejected", execute(t, asksForApproval, says("accept", "reject")).Status)
			require.Equal(t, "rejected", execute(t, asksForApproval, says("decline", "")).Status)
		})

		t.Run("APersonApprovesByForm", func(t *testing.T) {
			require.Equal(t, "complete", execute(t, asksForPerson, says("accept", "approve")).Status)
		})

		t.Run("ABudgetIsRaisedByForm", func(t *testing.T) {
			raises := func(content map[string]any) func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				return func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					return &mcp.ElicitResult{Action: "accept", Content: content}, nil
				}
			}
			require.Equal(t, "complete", execute(t, asksForBudget, raises(map[string]any{"decision": "raise", "budget": 1000})).Status)
			s := h.holder(t, "").speak(t, sessions, &mcp.ClientOptions{ElicitationHandler: raises(map[string]any{"decision": "raise", "budget": 1 << 40})})
			requireFailed(t, "INVALID_ARGUMENTS", called(t, s, "agentcards:execute_dag", json.RawMessage(asksForBudget)))
		})

		t.Run("EachPauseIsAQuestion", func(t *testing.T) {
			var asked []string
			v := execute(t, `{"workflow":{"tasks":[{"id":"a","tool":"paper:echo"},{"id":"b","tool":"paper:echo","depends_on":["a"],"approve":true}]},"per_layer_validation":true}`,
				func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					asked = append(asked, r.Params.Message)
					decision := []string{"continue", "approve"}[len(asked)-1]
					return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"decision": decision}}, nil
				})
			require.Equal(t, "complete", v.Status)
			require.Len(t, asked, 2)
			require.Contains(t, asked[0], "Layer 1 of 2 is complete. Next: b")
		})

		t.Run("ADecisionOverRESTWithdrawsTheQuestion", func(t *testing.T) {
			asked, decided, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
			s := who.speak(t, sessions, &mcp.ClientOptions{ElicitationHandler: func(ctx context.Context, _ *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				close(asked)
				select { // the SDK sends the cancellation and the result in any order
				case <-ctx.Done():
				case <-decided:
				case <-ended:
				}
				return nil, context.Canceled
			}})
			var res *mcp.CallToolResult
			var err error
			defer func() { // the session cannot be closed while its client is asked
				close(ended)
				testkit.Receive(t, decided)
			}()
			go func() {
				defer close(decided)
				res, err = s.CallTool(t.Context(), &mcp.CallToolParams{Name: "agentcards:execute_dag", Arguments: json.RawMessage(asksForApproval)})
			}()
			testkit.Receive(t, asked)
			who.decidePaused(t, true)
			testkit.Receive(t, decided)
			require.NoError(t, err)
			require.Contains(t, mcptest.TextOf(t, res), `"status":"complete"`)
		})

		t.Run("ACancelledQuestionLeavesTheCheckpointOpen", func(t *testing.T) {
			require.Equal(t, "approval_required", execute(t, asksForApproval, says("cancel", "")).Status)
			who.decidePaused(t, true)
		})

		t.Run("TheEndOfTheSessionLeavesTheCheckpointOpen", func(t *testing.T) {
			asked, ended := make(chan struct{}), make(chan struct{})
			s := who.speak(t, sessions, &mcp.ClientOptions{ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				close(asked)
				<-ended
				return nil, context.Canceled
			}})
			var calls sync.WaitGroup
			defer calls.Wait()
			defer close(ended)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			calls.Go(func() {
				_, _ = s.CallTool(ctx, &mcp.CallToolParams{Name: "agentcards:execute_dag", Arguments: json.RawMessage(asksForApproval)})
			})
			testkit.Receive(t, asked)
			other := h.holder(t, "")
			require.NotEqual(t, http.StatusNoContent, other.raw(t, http.MethodDelete, "/mcp", "", "Mcp-Session-Id", s.ID()).status)
			require.Equal(t, http.StatusNoContent, who.raw(t, http.MethodDelete, "/mcp", "", "Mcp-Session-Id", s.ID()).status)
			who.decidePaused(t, true)
		})
	})
}

// TestMCPTasksOverStdio checks tasks over stdio, alone and as a relay.
func TestMCPTasksOverStdio(t *testing.T) {
	t.Parallel()
	paper := mcptest.NewPaper(t, "paper")
	_, proceed := gated(paper, &mcp.Tool{Name: "press"}, done)
	file := filepath.Join(t.TempDir(), "servers.json")
	mcptest.WriteServers(t, file, paper)
	h := openHub(t, "sqlite", tasksAfter(time.Millisecond), paper)
	token := h.holder(t, "").Token
	clients := map[string]taskClient{
		"alone":   overPipes(t, []string{"COMET_MCP_TASKS_AFTER=1ms"}, "--config", file, "--data", t.TempDir()),
		"a relay": overPipes(t, []string{"COMET_TOKEN=" + token}, "--server", h.URL),
	}
	made := map[string]taskReply{}
	for name, c := range clients {
		eventually(t, func() bool {
			out := c.call(t, "paper:echo", map[string]any{})
			return out.ResultType == "task" || out.Content[0].Text == "{}"
		}, "the upstream is ready")
		made[name] = c.call(t, "paper:press", map[string]any{})
		require.Equal(t, "task", made[name].ResultType, name)
		require.Equal(t, "working", c.task(t, made[name].TaskID).Status, name)
		_, failed := c.try(t, "tasks/get", "wf_x", map[string]any{"taskId": "wf_x"})
		require.EqualValues(t, -32602, failed.Code, "%s: %+v", name, failed)
	}
	close(proceed)
	for name, c := range clients {
		require.Equal(t, "done", c.await(t, made[name].TaskID, "completed").Result.Content[0].Text, name)
	}
}

// overPipes returns a client of the program over its standard input and output.
func overPipes(t *testing.T, environment []string, args ...string) taskClient {
	t.Helper()
	path, err := buildProgram()
	require.NoError(t, err)
	cmd := exec.Command(path, append([]string{"mcp"}, args...)...)
	cmd.Env = append([]string{"HOME=" + t.TempDir()}, environment...)
	var log output
	cmd.Stderr = &log
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	lines := bufio.NewReader(out)
	return taskClient{can: withTasks, send: func(t *testing.T, _, _, body string) []byte {
		t.Helper()
		_, err := in.Write([]byte(body + "\n"))
		require.NoError(t, err)
		for {
			line, err := lines.ReadBytes('\n')
			require.NoError(t, err, log.String())
			var m struct{ ID any }
			if require.NoError(t, json.Unmarshal(line, &m)); m.ID != nil {
				return line
			}
		}
	}}
}
