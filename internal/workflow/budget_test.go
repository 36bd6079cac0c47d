package workflow_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/testkit"
	"comet/internal/testkit/mcptest"
	"comet/internal/workflow"
	"comet/models"
	"comet/store"
)

// asAgent makes the client an agent with a budget of 100,000 tokens.
func (f *fixture) asAgent(t *testing.T) {
	t.Helper()
	f.tools.AddAgent(t, "payer", 100_000)
	f.Client = f.tools.Client(t, "payer", models.ScopeToolsCall, models.ScopeMessagesSend)
}

// ledger returns what the payer has used and what is reserved for it.
func (f *fixture) ledger(t *testing.T) (used, reserved int64) {
	t.Helper()
	u, err := f.tools.Work.Ledger.Usage(t.Context(), "payer")
	require.NoError(t, err)
	return u.UsedToday, u.Reserved
}

// counted returns the tokens of the calls of a workflow in the audit log, those of its code included.
func (f *fixture) counted(t *testing.T, id string) (n int64) {
	t.Helper()
	n, err := store.Row[int64](f.db.Reads(t.Context()), `SELECT coalesce(sum(tokens), 0) FROM tool_calls
		WHERE parent_id = ? OR parent_id IN (SELECT id FROM tool_calls WHERE parent_id = ?)`, id, id)
	require.NoError(t, err)
	return n
}

// requireBudget requires the budget of a view, and that the ledger and the audit log have the same sums.
func (f *fixture) requireBudget(t *testing.T, v view, total int64) (used int64) {
	t.Helper()
	b, _ := v["budget"].(map[string]any)
	require.NotNil(t, b, "%v", v)
	require.InDelta(t, total, b["total"], 0)
	used = int64(b["used"].(float64))
	require.Equal(t, f.counted(t, v["workflow_id"].(string)), used, "used is what was counted")
	return used
}

// charged returns the tokens of the facts of the payer with the kind of tool calls, less those of calls outside of workflows.
func (f *fixture) charged(t *testing.T, id string) int64 {
	t.Helper()
	n, err := store.Row[int64](f.db.Reads(t.Context()), `SELECT coalesce(sum(tokens), 0) FROM usage_facts WHERE agent_id = 'payer' AND request_id IN
		(SELECT id FROM tool_calls WHERE parent_id = ? OR parent_id IN (SELECT id FROM tool_calls WHERE parent_id = ?))`, id, id)
	require.NoError(t, err)
	return n
}

// verified requires that the sums of the ledger match its facts and the audit log.
func (f *fixture) verified(t *testing.T) {
	t.Helper()
	found, err := f.tools.Work.Ledger.Verify(t.Context())
	require.NoError(t, err)
	require.Empty(t, found.Differences)
}

func budgetOf(tokens int64) map[string]any { return map[string]any{"budget": tokens} }

func TestBudget(t *testing.T) {
	t.Parallel()
	const tasks = `[{"id": "a", "tool": "paper:list"}, {"id": "b", "tool": "paper:echo", "arguments": {"text": "$a.result.text"}}]`
	testOnDatabases(t, "tokens are reserved, drawn and released", workflow.Options{}, func(t *testing.T, f *fixture) {
		f.asAgent(t)
		v := f.dag(t, tasks, "config", map[string]any{"budget": 5000, "per_layer_validation": true})
		used := f.requireBudget(t, v, 5000)
		require.Positive(t, used)
		require.InDelta(t, 5000-used, v["budget"].(map[string]any)["reserved"], 0)
		require.InDelta(t, used, v["layer_results"].([]any)[0].(map[string]any)["tokens"], 0)
		require.Equal(t, used, f.charged(t, v["workflow_id"].(string)))
		_, reserved := f.ledger(t)
		require.GreaterOrEqual(t, reserved, 5000-used)
		f.db.Clock.Advance(59 * time.Minute)
		done := f.call(t, "continue", map[string]any{"workflow_id": v["workflow_id"]})
		require.Equal(t, "complete", done["status"], "%v", done)
		used = f.requireBudget(t, done, 5000)
		require.InDelta(t, 0, done["budget"].(map[string]any)["reserved"], 0)
		require.Equal(t, used, f.charged(t, v["workflow_id"].(string)))
		f.requireReleased(t)
	})
	testOnDatabases(t, "a payer with less left is refused", workflow.Options{}, func(t *testing.T, f *fixture) {
		f.asAgent(t)
		args := map[string]any{"workflow": json.RawMessage(`{"tasks":` + tasks + `}`), "config": budgetOf(100_001)}
		require.Contains(t, f.RequireFails(t, "BUDGET_EXCEEDED", "agentcards:execute_dag", args), "does not cover 100001 tokens")
		require.Zero(t, f.count(t, "list"))
		n, err := store.Row[int](f.db.Reads(t.Context()), "SELECT count(*) FROM workflows")
		require.NoError(t, err)
		require.Zero(t, n)
	})
	testOnDatabases(t, "an exhausted budget pauses, and is raised", workflow.Options{}, func(t *testing.T, f *fixture) {
		f.asAgent(t)
		v := f.dag(t, tasks, "config", budgetOf(10))
		require.Equal(t, "budget_exhausted", v["status"], "%v", v)
		require.Equal(t, []any{"raise", "abort"}, v["options"])
		requireStates(t, v, "success", "pending")
		used := f.requireBudget(t, v, 10)
		require.Greater(t, used, int64(10), "a result may exceed the rest of the budget")
		for _, more := range [][]any{nil, {"resolution", "retry"}, {"resolution", "raise"}, {"resolution", "raise", "budget", 10}, {"resolution", "raise", "budget", used}} {
			f.RequireFails(t, "INVALID_ARGUMENTS", "agentcards:approval_response", decision(v, true, more...))
		}
		f.RequireFails(t, "BUDGET_EXCEEDED", "agentcards:approval_response", decision(v, true, "resolution", "raise", "budget", 200_000))
		got := f.decide(t, v, true, "resolution", "raise", "budget", 5000)
		require.Equal(t, "complete", got["status"], "%v", got)
		require.Equal(t, f.requireBudget(t, got, 5000), f.charged(t, v["workflow_id"].(string)))
		require.Equal(t, got, f.decide(t, v, true, "resolution", "raise", "budget", 5000), "the same decision again has no effect")
		f.RequireFails(t, "WORKFLOW_STATE", "agentcards:approval_response", decision(v, true, "resolution", "raise", "budget", 6000))
		f.RequireFails(t, "WORKFLOW_STATE", "agentcards:approval_response", decision(v, true, "budget", 5000))
		list, _, err := f.tools.Workflows.Checkpoints(t.Context(), f.Principal, v["workflow_id"].(string), "", 10)
		require.NoError(t, err)
		require.Equal(t, "raise", list[0].Resolution)
		f.requireReleased(t)
	})
	for _, c := range []struct{ name, status string }{{"abort", "aborted"}, {"reject", "rejected"}, {"expire", "aborted"}} {
		testOnDatabases(t, c.name+" releases the budget", workflow.Options{}, func(t *testing.T, f *fixture) {
			f.asAgent(t)
			v := f.dag(t, `[{"id": "a", "tool": "paper:list"}, {"id": "b", "tool": "paper:shred", "approve": true}]`, "config", budgetOf(5000))
			id := v["workflow_id"].(string)
			switch c.name {
			case "abort":
				f.call(t, "abort", map[string]any{"workflow_id": id, "reason": "enough"})
			case "reject":
				f.decide(t, v, false)
			default:
				f.db.Clock.Advance(61 * time.Minute)
				require.Eventually(t, func() bool { return f.paused(t) == "" }, testkit.Timeout, 5*time.Millisecond)
			}
			got, err := f.tools.Workflows.Get(t.Context(), f.Principal, id)
			require.NoError(t, err)
			require.Equal(t, c.status, got.Status)
			require.Zero(t, got.Budget.Reserved)
			require.Equal(t, f.counted(t, id), got.Budget.Used)
			require.Equal(t, got.Budget.Used, f.charged(t, id))
			f.requireReleased(t)
		})
	}
	testOnDatabases(t, "a reservation that others have released is raised again", workflow.Options{}, func(t *testing.T, f *fixture) {
		f.asAgent(t)
		v := f.dag(t, `[{"id": "a", "tool": "paper:list"}, {"id": "b", "tool": "paper:note", "depends_on": ["a"]}, {"id": "c", "tool": "paper:note", "depends_on": ["b"]}]`,
			"config", map[string]any{"budget": 5000, "approvals": "write"})
		require.Equal(t, "approval_required", v["status"], "%v", v)
		id, err := store.Row[string](f.db.Reads(t.Context()), "SELECT reservation_id FROM workflows")
		require.NoError(t, err)
		require.NoError(t, f.tools.Work.Ledger.Release(t.Context(), "payer", id))
		require.Equal(t, "approval_required", f.decide(t, v, true)["status"])
		v, err = f.get(t, v["workflow_id"])
		require.NoError(t, err)
		require.InDelta(t, 0, v["budget"].(map[string]any)["reserved"], 0)
		v = f.decide(t, v, true)
		require.Equal(t, "budget_exhausted", v["status"], "%v", v)
		got := f.decide(t, v, true, "resolution", "raise", "budget", 5000)
		require.Equal(t, "complete", got["status"], "%v", got)
		require.Equal(t, f.requireBudget(t, got, 5000), f.charged(t, got["workflow_id"].(string)))
		f.requireReleased(t)
	})
	testOnDatabases(t, "calls of code are charged with their step, and limited", workflow.Options{}, func(t *testing.T, f *fixture) {
		f.asAgent(t)
		v := f.dag(t, `[{"id": "a", "type": "code_execution", "code": "let n = 0; try { for (; n < 200; n++) await mcp.paper.list({}) } catch (e) { return String(e) } return n"}]`, "config", budgetOf(600))
		require.Equal(t, "complete", v["status"], "%v", v)
		require.Contains(t, v["results"].(map[string]any)["a"], "BUDGET_EXCEEDED")
		require.Equal(t, f.requireBudget(t, v, 600), f.charged(t, v["workflow_id"].(string)))
		f.requireReleased(t)
	})
}

// requireReleased requires that nothing is reserved for the payer once its prepaid account is unused, and that the ledger
// is consistent.
func (f *fixture) requireReleased(t *testing.T) {
	t.Helper()
	f.db.Clock.Advance(10 * time.Minute)
	require.Eventually(t, func() bool {
		_, reserved := f.ledger(t)
		return reserved == 0
	}, testkit.Timeout, 5*time.Millisecond)
	f.verified(t)
}

// TestBudgetOfParallelSteps checks that of two steps that need the last tokens, one begins, and the other waits for it.
func TestBudgetOfParallelSteps(t *testing.T) {
	t.Parallel()
	testOnDatabases(t, "one begins", workflow.Options{}, func(t *testing.T, f *fixture) {
		f.asAgent(t)
		began, proceed := f.gate(t, "slow", mcptest.Reads())
		padding := strings.Repeat("word ", 40)
		out := make(chan view, 1)
		go func() {
			defer close(out)
			res, err := f.TryCall(t, "agentcards:execute_dag", map[string]any{
				"workflow": json.RawMessage(`{"tasks":[{"id":"a","tool":"paper:slow","arguments":{"n":"` + padding + `"}},{"id":"b","tool":"paper:slow","arguments":{"n":"` + padding + `"}}]}`), "config": budgetOf(80),
			})
			if err != nil {
				t.Error(err)
				return
			}
			var v view
			_ = json.Unmarshal(res.StructuredContent.(json.RawMessage), &v)
			out <- v
		}()
		testkit.Receive(t, began)
		require.Empty(t, began)
		close(proceed)
		v := testkit.Receive(t, out)
		require.Equal(t, "budget_exhausted", v["status"], "%v", v)
		requireStates(t, v, "success", "pending")
		require.Empty(t, began, "the other has not begun")
		done := f.decide(t, v, true, "resolution", "raise", "budget", 1000)
		require.Equal(t, "complete", done["status"])
		require.Equal(t, f.requireBudget(t, done, 1000), f.charged(t, v["workflow_id"].(string)))
		f.requireReleased(t)
	})
}

// TestBudgetAfterAdoption checks that a call whose result was not committed is charged once, and that only committed results
// count towards the used tokens of the workflow.
func TestBudgetAfterAdoption(t *testing.T) {
	t.Parallel()
	testOnDatabases(t, "the holder was taken for dead", workflow.Options{}, func(t *testing.T, f *fixture) {
		f.asAgent(t)
		began, proceed := f.gate(t, "slow", mcptest.Reads())
		go func() {
			_, _ = f.TryCall(t, "agentcards:execute_dag", map[string]any{
				"workflow": json.RawMessage(`{"tasks":[{"id":"a","tool":"paper:slow"},{"id":"b","tool":"paper:note","depends_on":["a"]}]}`), "config": budgetOf(5000),
			})
		}()
		testkit.Receive(t, began)
		f.release(t)
		testkit.Receive(t, began) // the second attempt
		close(proceed)
		id := ""
		require.Eventually(t, func() bool {
			ids, err := store.Rows[string](f.db.Reads(t.Context()), "SELECT id FROM workflows WHERE state = 2")
			if err != nil || len(ids) == 0 {
				return false
			}
			id = ids[0]
			return true
		}, testkit.Timeout, 5*time.Millisecond)
		got, err := f.tools.Workflows.Get(t.Context(), f.Principal, id)
		require.NoError(t, err)
		require.Equal(t, got.TaskResults[0].Tokens+got.TaskResults[1].Tokens, got.Budget.Used)
		f.tools.Stop(t) // all calls have ended
		require.Equal(t, f.counted(t, id), f.charged(t, id), "each call that was counted is charged once")
		f.verified(t)
	})
}

// TestBudgetOfAgentSteps checks that the tokens of a task are charged to the agent that executes it, and count towards the used
// tokens of the workflow.
func TestBudgetOfAgentSteps(t *testing.T) {
	t.Parallel()
	testOnDatabases(t, "a task", workflow.Options{}, func(t *testing.T, f *fixture) {
		f.asAgent(t)
		f.paper.Tool(&mcp.Tool{Name: "words", Annotations: mcptest.Reads()}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcptest.Texts(strings.Repeat("word ", 100)), nil
		})
		f.offers(t, "words")
		v := f.dag(t, `[{"id": "a", "type": "agent_task", "capability": "custom:paper:words", "budget": 3000}]`, "config", budgetOf(5000))
		require.Equal(t, "complete", v["status"], "%v", v)
		tokens, err := store.Row[int64](f.db.Reads(t.Context()), "SELECT tokens FROM tasks")
		require.NoError(t, err)
		require.Positive(t, tokens)
		require.InDelta(t, tokens, v["budget"].(map[string]any)["used"], 0)
		require.InDelta(t, tokens, v["task_results"].([]any)[0].(map[string]any)["tokens"], 0)
		require.Zero(t, f.charged(t, v["workflow_id"].(string)), "the agent of the upstream is charged, not the payer")
		graph, err := f.tools.Workflows.Graph(t.Context(), f.Principal, v["workflow_id"].(string))
		require.NoError(t, err)
		step := graph.Tasks[0]
		require.Equal(t, []any{"success", 1, "mcp-paper", tokens}, []any{step.Status, step.Attempts, step.Worker, step.Tokens})
		require.NotEmpty(t, step.TaskID)
		require.False(t, step.EndedAt.Before(*step.StartedAt))
		f.requireReleased(t)
	})
	testOnDatabases(t, "a task waits for the budget", workflow.Options{}, func(t *testing.T, f *fixture) {
		f.asAgent(t)
		v := f.dag(t, `[{"id": "a", "tool": "paper:list"}, {"id": "b", "type": "agent_task", "capability": "custom:paper:echo", "budget": 3000, "depends_on": ["a"]}]`, "config", budgetOf(3000))
		require.Equal(t, "budget_exhausted", v["status"], "%v", v)
		requireStates(t, v, "success", "pending")
		got := f.decide(t, v, true, "resolution", "raise", "budget", 6000)
		require.Equal(t, "complete", got["status"], "%v", got)
		f.requireReleased(t)
	})
}

// get returns the view of a workflow.
func (f *fixture) get(t *testing.T, id any) (v view, err error) {
	t.Helper()
	got, err := f.tools.Workflows.Get(t.Context(), f.Principal, id.(string))
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(got)
	require.NoError(t, err)
	err = json.Unmarshal(text, &v)
	return v, err
}

func TestInvalidBudgets(t *testing.T) {
	t.Parallel()
	testOnDatabases(t, "table", workflow.Options{}, func(t *testing.T, f *fixture) {
		for _, c := range []struct{ tasks, config, words string }{
			{`[{"id": "a", "tool": "paper:list"}]`, `{"budget": 0}`, "budget"},
			{`[{"id": "a", "tool": "paper:list"}]`, `{"budget": -1}`, "budget"},
			{`[{"id": "a", "tool": "paper:list"}]`, `{"budget": 1000000000001}`, "budget"},
			{`[{"id": "a", "tool": "paper:list"}]`, `{"budget": 1.5}`, "budget"},
			{`[{"id": "a", "tool": "paper:list"}]`, `{"budget": "10"}`, "budget"},
			{`[{"id": "a", "type": "agent_task", "capability": "x"}]`, `{"budget": 10}`, "/workflow/tasks/0/budget: budget is required for an agent_task of a workflow with a budget"},
			{`[{"id": "a", "type": "agent_task", "capability": "x", "budget": 11}]`, `{"budget": 10}`, "/workflow/tasks/0/budget: the budget of a task must not exceed that of the workflow"},
		} {
			args := map[string]any{"workflow": json.RawMessage(`{"tasks":` + c.tasks + `}`), "config": json.RawMessage(c.config)}
			require.Contains(t, f.RequireFails(t, "INVALID_ARGUMENTS", "agentcards:execute_dag", args), c.words)
		}
	})
}
