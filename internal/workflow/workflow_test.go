package workflow_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"comet/internal/errs"
	"comet/internal/testkit"
	"comet/internal/testkit/mcptest"
	"comet/internal/tools"
	"comet/internal/workflow"
	"comet/internal/workflow/plan"
	"comet/models"
	"comet/store"
	"comet/store/workflows"
)

// TestExecuteDAG: the response has the form of AgentCards, “Exemple de réponse (succès)”.
func TestExecuteDAG(t *testing.T) {
	t.Parallel()
	testOnDatabases(t, "independent steps run in parallel, and references keep their types", workflow.Options{}, func(t *testing.T, f *fixture) {
		v := f.dag(t, `[
			{"id": "t1", "tool": "paper:list"},
			{"id": "t2", "tool": "paper:note", "arguments": {"text": "x"}},
			{"id": "t3", "tool": "paper:echo", "arguments": {"n": "$t1.result.items[1].n", "all": "$t1.result.items", "text": "<$OUTPUT[t2]>"}, "depends_on": ["t1"]}
		]`)
		require.Equal(t, "complete", v["status"])
		requireStates(t, v, "success", "success", "success")
		results, err := json.Marshal(v["results"].(map[string]any)["t3"])
		require.NoError(t, err)
		require.JSONEq(t, `{"n":12345678901234567890,"all":[{"n":7},{"n":12345678901234567890}],"text":"<noted>"}`, string(results))
		require.InDelta(t, 2, v["metrics"].(map[string]any)["parallel_branches"], 0)
		for _, c := range f.Calls(t, callsOf(v)) {
			require.Equal(t, "workflow", c.Source)
		}
	})
	testOnDatabases(t, "a failed step skips those that depend on it, and others go on", workflow.Options{}, func(t *testing.T, f *fixture) {
		const tasks = `[{"id": "a", "tool": "paper:fail"}, {"id": "b", "tool": "paper:note", "depends_on": ["a"]}, {"id": "c", "tool": "paper:list"}, {"id": "d", "tool": "paper:note", "depends_on": ["c"]}]`
		v := f.dag(t, tasks)
		require.Equal(t, "error", v["status"])
		requireStates(t, v, "error", "skipped", "success", "success")
		require.Equal(t, "no ink", v["task_results"].([]any)[0].(map[string]any)["error"])
	})
	testOnDatabases(t, "on_error abort begins no further step after an error", workflow.Options{MaxRunning: 1}, func(t *testing.T, f *fixture) {
		v := f.dag(t, `[{"id": "a", "tool": "paper:fail"}, {"id": "b", "tool": "paper:list"}]`, "config", map[string]any{"on_error": "abort"})
		requireStates(t, v, "error", "skipped")
	})
	testOnDatabases(t, "a path that does not exist fails the step before its call", workflow.Options{}, func(t *testing.T, f *fixture) {
		v := f.dag(t, `[{"id": "a", "tool": "paper:list"}, {"id": "b", "tool": "paper:shred", "arguments": {"x": "$a.result.other"}}]`)
		requireStates(t, v, "success", "error")
		require.Equal(t, "REFERENCE_NOT_FOUND", v["task_results"].([]any)[1].(map[string]any)["error_code"])
		require.Zero(t, f.count(t, "shred"))
	})
	testOnDatabases(t, "resolved arguments that the schema of the tool does not allow fail the step before its call", workflow.Options{}, func(t *testing.T, f *fixture) {
		f.paper.Tool(&mcp.Tool{Name: "send", InputSchema: json.RawMessage(`{"type":"object","properties":{"to":{"type":"string"},"n":{"type":"integer","maximum":9}},"required":["to"],"additionalProperties":false}`)},
			func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return mcptest.Texts("sent"), nil
			})
		require.Eventually(t, func() bool { return slices.Contains(f.Tools(t, "paper"), "paper:send") }, testkit.Timeout, 5*time.Millisecond)
		for arguments, want := range map[string]string{
			`{"n":"$a.result.items[0].n"}`:                       `required: missing properties: ["to"]`,
			`{"to":"$a.result.items[0].n"}`:                      `want "string"`,
			`{"to":"$a.result.text","n":"$a.result.items[1].n"}`: "maximum",
			`{"to":"$a.result.text","cc":"Ada"}`:                 `additional properties ["cc"]`,
		} {
			v := f.dag(t, `[{"id": "a", "tool": "paper:list"}, {"id": "b", "tool": "paper:send", "arguments": `+arguments+`}, {"id": "c", "tool": "paper:note", "depends_on": ["b"]}]`)
			requireStates(t, v, "success", "error", "skipped")
			b := v["task_results"].([]any)[1].(map[string]any)
			require.Equal(t, "INVALID_ARGUMENTS", b["error_code"], "%v", b)
			require.Contains(t, b["error"], "the arguments of paper:send do not match its schema: ")
			require.Contains(t, b["error"], want)
		}
		require.Zero(t, f.count(t, "send"))
		v := f.dag(t, `[{"id": "a", "tool": "paper:list"}, {"id": "b", "tool": "paper:send", "arguments": {"to": "<$a.result.text>", "n": "$a.result.items[0].n"}}]`)
		require.Equal(t, map[string]any{"a": v["results"].(map[string]any)["a"], "b": "sent"}, v["results"])
	})
	testOnDatabases(t, "code has the results of its dependencies, and its value is the result", workflow.Options{}, func(t *testing.T, f *fixture) {
		v := f.dag(t, `[{"id": "a", "tool": "paper:list"}, {"id": "sum", "type": "code_execution", "code": "return deps.a.items.length + more", "arguments": {"more": 40}, "depends_on": ["a"]}]`)
		require.Equal(t, "complete", v["status"], "%v", v)
		require.InDelta(t, 42, v["results"].(map[string]any)["sum"], 0)
	})
	testOnDatabases(t, "an agent step is a task, and its output the result", workflow.Options{}, func(t *testing.T, f *fixture) {
		v := f.dag(t, `[{"id": "a", "tool": "paper:note"}, {"id": "b", "type": "agent_task", "capability": "custom:paper:echo", "arguments": {"said": "$a.result"}}]`)
		require.Equal(t, "complete", v["status"], "%v", v)
		require.Equal(t, map[string]any{"said": "noted"}, v["results"].(map[string]any)["b"])
	})
}

func TestLayers(t *testing.T) {
	t.Parallel()
	const tasks = `[{"id": "a", "tool": "paper:list"}, {"id": "b", "tool": "paper:note"}, {"id": "c", "tool": "paper:shred", "depends_on": ["a"]}, {"id": "d", "tool": "paper:echo", "arguments": {"c": "$c.result"}}]`
	testOnDatabases(t, "the workflow pauses after each layer until it is continued", workflow.Options{}, func(t *testing.T, f *fixture) {
		v := f.dag(t, tasks, "per_layer_validation", true)
		require.Equal(t, "layer_complete", v["status"])
		require.InDelta(t, 1, v["current_layer"], 0)
		require.InDelta(t, 0, v["layer_index"], 0)
		require.InDelta(t, 3, v["total_layers"], 0)
		require.Equal(t, "Use agentcards:continue to proceed", v["next_action"])
		require.Equal(t, []any{"c"}, v["next_layer_preview"])
		requireStates(t, v, "success", "success")
		require.Zero(t, f.count(t, "shred"))
		next := f.call(t, "continue", map[string]any{"workflow_id": v["workflow_id"], "reason": "looks right"})
		require.InDelta(t, 2, next["current_layer"], 0)
		last := f.call(t, "continue", map[string]any{"workflow_id": v["workflow_id"]})
		require.Equal(t, "complete", last["status"], "no pause after the last layer")
		f.RequireFails(t, "WORKFLOW_STATE", "agentcards:continue", map[string]any{"workflow_id": v["workflow_id"]})
	})
	testOnDatabases(t, "abort returns the completed layers and the partial results", workflow.Options{}, func(t *testing.T, f *fixture) {
		v := f.dag(t, tasks, "config", map[string]any{"per_layer_validation": true})
		got := f.call(t, "abort", map[string]any{"workflow_id": v["workflow_id"], "reason": "wrong files"})
		require.Equal(t, "aborted", got["status"])
		require.Equal(t, "wrong files", got["reason"])
		require.InDelta(t, 1, got["completed_layers"], 0)
		require.Equal(t, "noted", got["partial_results"].(map[string]any)["b"])
		requireStates(t, got, "success", "success", "skipped", "skipped")
		require.Equal(t, got, f.call(t, "abort", map[string]any{"workflow_id": v["workflow_id"], "reason": "again"}))
		f.RequireFails(t, "WORKFLOW_STATE", "agentcards:continue", map[string]any{"workflow_id": v["workflow_id"]})
	})
	testOnDatabases(t, "a pause survives a restart", workflow.Options{}, func(t *testing.T, f *fixture) {
		v := f.dag(t, tasks, "per_layer_validation", true)
		f.tools.Stop(t)
		s := f.tools.Restart(t, f.paper)
		f.Client = f.At(s)
		next := f.call(t, "continue", map[string]any{"workflow_id": v["workflow_id"]})
		require.InDelta(t, 2, next["current_layer"], 0)
	})
	testOnDatabases(t, "a pause expires", workflow.Options{}, func(t *testing.T, f *fixture) {
		v := f.dag(t, tasks, "per_layer_validation", true)
		f.db.Clock.Advance(61 * time.Minute)
		require.Contains(t, f.RequireFails(t, "WORKFLOW_NOT_FOUND", "agentcards:continue", map[string]any{"workflow_id": v["workflow_id"]}), "expired at")
		require.Zero(t, f.count(t, "shred"))
	})
	testOnDatabases(t, "the end of a pause needs no request", workflow.Options{}, func(t *testing.T, f *fixture) {
		f.dag(t, tasks, "per_layer_validation", true)
		f.db.Clock.Advance(61 * time.Minute)
		require.Eventually(t, func() bool { return f.inState(t, workflows.Aborted) != "" }, testkit.Timeout, 5*time.Millisecond)
	})
}

func TestApprovals(t *testing.T) {
	t.Parallel()
	const tasks = `[{"id": "a", "tool": "paper:list"}, {"id": "b", "tool": "paper:shred", "arguments": {"n": "$a.result.items[0].n"}, "approve": true}]`
	testOnDatabases(t, "a step is shown with its arguments and begins when it is approved", workflow.Options{}, func(t *testing.T, f *fixture) {
		v := f.dag(t, tasks)
		require.Equal(t, "approval_required", v["status"])
		shown := v["context"].(map[string]any)["steps"].([]any)[0].(map[string]any)
		require.Equal(t, "paper:shred", shown["tool"])
		require.Equal(t, "destructive", shown["class"])
		require.Equal(t, map[string]any{"n": 7.0}, shown["arguments"])
		require.Zero(t, f.count(t, "shred"))
		f.RequireFails(t, "WORKFLOW_STATE", "agentcards:continue", map[string]any{"workflow_id": v["workflow_id"]})
		f.RequireFails(t, "CHECKPOINT_NOT_FOUND", "agentcards:approval_response", map[string]any{"workflow_id": v["workflow_id"], "checkpoint_id": "cp_other", "approved": true})
		f.RequireFails(t, "CHECKPOINT_STALE", "agentcards:approval_response", decision(v, true, "digest", "00"))
		done := f.decide(t, v, true, "digest", v["context"].(map[string]any)["digest"])
		require.Equal(t, "complete", done["status"], "%v", done)
		require.Equal(t, done, f.decide(t, v, true), "the same decision again has no effect")
		require.Equal(t, 1, f.count(t, "shred"))
		f.RequireFails(t, "WORKFLOW_STATE", "agentcards:approval_response", decision(v, false))
	})
	testOnDatabases(t, "a rejection ends the workflow", workflow.Options{}, func(t *testing.T, f *fixture) {
		v := f.dag(t, tasks)
		got := f.decide(t, v, false, "feedback", "not these")
		require.Equal(t, "rejected", got["status"])
		require.Equal(t, "not these", got["feedback"])
		require.Equal(t, v["checkpoint_id"], got["checkpoint_id"])
		requireStates(t, got, "success", "skipped")
		require.Zero(t, f.count(t, "shred"))
	})
	testOnDatabases(t, "approvals ask for classes of tools", workflow.Options{}, func(t *testing.T, f *fixture) {
		const all = `[{"id": "a", "tool": "paper:list"}, {"id": "b", "tool": "paper:note"}, {"id": "c", "tool": "paper:shred"}]`
		v := f.dag(t, all, "config", map[string]any{"approvals": "destructive"})
		requireStates(t, v, "success", "success", "pending")
		v = f.dag(t, all, "config", map[string]any{"approvals": "write"})
		requireStates(t, v, "success", "pending", "pending")
		require.Len(t, v["context"].(map[string]any)["steps"], 2)
	})
	for name, change := range map[string]func(t *testing.T, f *fixture){
		"the definition of the tool": func(t *testing.T, f *fixture) {
			_, err := f.tools.Classify(t.Context(), testkit.Admin(), "paper", "shred", models.ToolWrite)
			require.NoError(t, err)
		},
		"the policy of the token": func(t *testing.T, f *fixture) { f.SetPolicy(t, `{"allow":[{"tool":"paper:*"}]}`) },
	} {
		testOnDatabases(t, "an approval is stale after a change of "+name, workflow.Options{}, func(t *testing.T, f *fixture) {
			v := f.dag(t, tasks)
			change(t, f)
			f.RequireFails(t, "CHECKPOINT_STALE", "agentcards:approval_response", decision(v, true))
			require.Zero(t, f.count(t, "shred"))
			res, err := f.tools.Workflows.Get(t.Context(), f.Principal, v["workflow_id"].(string))
			require.NoError(t, err)
			require.NotEqual(t, v["checkpoint_id"], res.CheckpointID)
			f.RequireFails(t, "CHECKPOINT_STALE", "agentcards:approval_response", decision(v, true))
			done := f.call(t, "approval_response", map[string]any{"workflow_id": res.WorkflowID, "checkpoint_id": res.CheckpointID, "approved": true})
			require.Equal(t, "complete", done["status"], "%v", done)
		})
	}
}

func TestUncertainSteps(t *testing.T) {
	t.Parallel()
	// lost returns the view of a workflow whose holder was taken for dead while a destructive step ran.
	lost := func(t *testing.T, f *fixture) view {
		t.Helper()
		began, proceed := f.gate(t, "slow", nil)
		first := f.start(t, `[{"id": "a", "tool": "paper:slow"}, {"id": "b", "tool": "paper:echo", "arguments": {"a": "$a.result"}}]`)
		testkit.Receive(t, began)
		f.release(t)
		var id string
		require.Eventually(t, func() bool {
			id = f.paused(t)
			return id != ""
		}, testkit.Timeout, 5*time.Millisecond)
		v, err := f.tools.Workflows.Get(t.Context(), f.Principal, id)
		require.NoError(t, err)
		require.Equal(t, "uncertain", v.Status)
		testkit.Receive(t, first) // the call of the fenced holder is cancelled
		close(proceed)
		return view{"workflow_id": v.WorkflowID, "checkpoint_id": v.CheckpointID}
	}
	testOnDatabases(t, "retry runs the step again", workflow.Options{}, func(t *testing.T, f *fixture) {
		v := lost(t, f)
		f.RequireFails(t, "INVALID_ARGUMENTS", "agentcards:approval_response", decision(v, true))
		got := f.decide(t, v, true, "resolution", "retry")
		require.Equal(t, "complete", got["status"], "%v", got)
		require.Equal(t, "done", got["results"].(map[string]any)["a"])
		require.Equal(t, got, f.decide(t, v, true, "resolution", "retry"), "the same decision again has no effect")
		require.Contains(t, f.RequireFails(t, "WORKFLOW_STATE", "agentcards:approval_response", decision(v, true, "resolution", "skip")), "approved with the resolution retry")
		f.RequireFails(t, "WORKFLOW_STATE", "agentcards:approval_response", decision(v, true))
	})
	testOnDatabases(t, "accept takes a result", workflow.Options{}, func(t *testing.T, f *fixture) {
		v := lost(t, f)
		f.RequireFails(t, "INVALID_ARGUMENTS", "agentcards:approval_response", decision(v, true, "resolution", "accept"))
		got := f.decide(t, v, true, "resolution", "accept", "results", map[string]any{"a": "was done"})
		require.Equal(t, map[string]any{"a": "was done"}, got["results"].(map[string]any)["b"])
	})
	testOnDatabases(t, "a decision with other results is another decision", workflow.Options{}, func(t *testing.T, f *fixture) {
		again := func(v view, results string) any {
			return decision(v, true, "resolution", "accept", "results", json.RawMessage(results))
		}
		v := f.dag(t, `[{"id": "a", "tool": "paper:held", "timeout_ms": 20}, {"id": "b", "tool": "paper:shred", "approve": true, "depends_on": ["a"]}]`)
		approval := f.call(t, "approval_response", again(v, `{"a": {"n": 12345678901234567890, "s": "x"}}`))
		require.Equal(t, "approval_required", approval["status"], "%v", approval)
		for range 2 { // also after a later checkpoint
			require.Equal(t, approval["status"], f.call(t, "approval_response", again(v, `{"a": {"s": "x",  "n": 12345678901234567890}}`))["status"])
			for _, other := range []string{`{"a": {"n": 12345678901234567891, "s": "x"}}`, `{"a": null}`, `{"b": {"n": 12345678901234567890, "s": "x"}}`, `{}`} {
				require.Contains(t, f.RequireFails(t, "WORKFLOW_STATE", "agentcards:approval_response", again(v, other)), `approved with another result of the step "a"`, other)
			}
			if approval["status"] != "complete" {
				approval = f.decide(t, approval, true)
			}
		}
		alone := f.dag(t, `[{"id": "a", "tool": "paper:held", "timeout_ms": 20}]`)
		done := f.call(t, "approval_response", again(alone, `{"a": 1}`))
		require.Equal(t, done, f.call(t, "approval_response", again(alone, `{"a": 1}`)), "the newest checkpoint")
		f.RequireFails(t, "WORKFLOW_STATE", "agentcards:approval_response", again(alone, `{"a": 2}`))
	})
	testOnDatabases(t, "skip skips the step and those that depend on it", workflow.Options{}, func(t *testing.T, f *fixture) {
		got := f.decide(t, lost(t, f), true, "resolution", "skip")
		requireStates(t, got, "skipped", "skipped")
	})
	testOnDatabases(t, "a rejection leaves the step uncertain", workflow.Options{}, func(t *testing.T, f *fixture) {
		requireStates(t, f.decide(t, lost(t, f), false), "uncertain", "skipped")
	})
	testOnDatabases(t, "the upstream ends while a step runs", workflow.Options{}, func(t *testing.T, f *fixture) {
		began, proceed := f.gate(t, "slow", nil)
		defer close(proceed)
		first := f.start(t, `[{"id": "a", "tool": "paper:slow"}]`)
		testkit.Receive(t, began)
		f.paper.CloseConnections()
		require.Equal(t, "uncertain", testkit.Receive(t, first)["status"])
	})
	testOnDatabases(t, "a step that takes too long is uncertain unless it may be repeated", workflow.Options{}, func(t *testing.T, f *fixture) {
		v := f.dag(t, `[{"id": "a", "tool": "paper:held", "timeout_ms": 20}]`)
		require.Equal(t, "uncertain", v["status"])
		require.Contains(t, v["layer_results"].([]any)[0].(map[string]any)["error"], "longer than 20 ms")
	})
}

// TestAdoption: a read step runs again after its holder was taken for dead; an agent step continues.
func TestAdoption(t *testing.T) {
	t.Parallel()
	testOnDatabases(t, "read", workflow.Options{}, func(t *testing.T, f *fixture) {
		began, proceed := f.gate(t, "slow", mcptest.Reads())
		first := f.start(t, `[{"id": "a", "tool": "paper:slow"}, {"id": "b", "tool": "paper:note", "depends_on": ["a"]}]`)
		testkit.Receive(t, began)
		f.release(t)
		testkit.Receive(t, began) // the second attempt
		close(proceed)
		v := testkit.Receive(t, first)
		require.Eventually(t, func() bool {
			got, err := f.tools.Workflows.Get(t.Context(), f.Principal, v["workflow_id"].(string))
			return err == nil && got.Status == "complete"
		}, testkit.Timeout, 5*time.Millisecond)
		require.Equal(t, 1, f.count(t, "note"))
	})
	testOnDatabases(t, "agent", workflow.Options{}, func(t *testing.T, f *fixture) {
		began, proceed := f.gate(t, "slow", nil)
		first := f.start(t, `[{"id": "a", "type": "agent_task", "capability": "custom:paper:slow"}]`)
		testkit.Receive(t, began)
		f.release(t)
		close(proceed)
		v := testkit.Receive(t, first)
		require.Eventually(t, func() bool {
			got, err := f.tools.Workflows.Get(t.Context(), f.Principal, v["workflow_id"].(string))
			return err == nil && got.Status == "complete"
		}, testkit.Timeout, 5*time.Millisecond)
		require.Empty(t, began, "the task runs once")
	})
}

// TestChecksAfterTheWaitForASlot: what has changed while a step waited for a slot of the process takes effect.
func TestChecksAfterTheWaitForASlot(t *testing.T) {
	t.Parallel()
	// waiting returns the result of a workflow with one step that waits for the only slot, and lets it go on after a change.
	waiting := func(t *testing.T, f *fixture, args map[string]any, change func()) view {
		t.Helper()
		began, proceed := f.gate(t, "slow", mcptest.Reads())
		first := f.start(t, `[{"id": "a", "tool": "paper:slow"}]`)
		testkit.Receive(t, began)
		second := make(chan view, 1)
		go func() {
			defer close(second)
			res, err := f.TryCall(t, "agentcards:execute_dag", args)
			var v view
			if assert.NoError(t, err) && assert.NoError(t, json.Unmarshal(res.StructuredContent.(json.RawMessage), &v)) {
				second <- v
			}
		}()
		require.Eventually(t, func() bool {
			n, err := store.Row[int](f.db.Reads(t.Context()), "SELECT count(*) FROM workflow_steps WHERE state = 1")
			return err == nil && n == 2
		}, testkit.Timeout, 5*time.Millisecond)
		change()
		close(proceed)
		testkit.Receive(t, first)
		return testkit.Receive(t, second)
	}
	testOnDatabases(t, "a policy", workflow.Options{Slots: 1}, func(t *testing.T, f *fixture) {
		v := waiting(t, f, map[string]any{"workflow": json.RawMessage(`{"tasks":[{"id":"a","tool":"paper:shred"}]}`)}, func() { f.SetPolicy(t, `{"deny":[{"tool":"paper:shred"}]}`) })
		require.Equal(t, "error", v["status"], "%v", v)
		require.Zero(t, f.count(t, "shred"))
	})
	testOnDatabases(t, "a class that needs approval", workflow.Options{Slots: 1}, func(t *testing.T, f *fixture) {
		v := waiting(t, f, map[string]any{"workflow": json.RawMessage(`{"tasks":[{"id":"a","tool":"paper:note"}]}`), "config": map[string]any{"approvals": "destructive"}}, func() {
			_, err := f.tools.Classify(t.Context(), testkit.Admin(), "paper", "note", models.ToolDestructive)
			require.NoError(t, err)
		})
		require.Equal(t, "approval_required", v["status"], "%v", v)
		require.Zero(t, f.count(t, "note"))
		require.Equal(t, "complete", f.decide(t, v, true)["status"])
	})
}

// TestUnknownCommits: a workflow whose holder no longer knows its state is adopted.
func TestUnknownCommits(t *testing.T) {
	t.Parallel()
	testOnDatabases(t, "the version has changed", workflow.Options{}, func(t *testing.T, f *fixture) {
		began, proceed := f.gate(t, "slow", mcptest.Reads())
		first := f.start(t, `[{"id": "a", "tool": "paper:slow"}, {"id": "b", "tool": "paper:note", "depends_on": ["a"]}]`)
		testkit.Receive(t, began)
		require.NoError(t, f.db.Write(t.Context(), func(tx *store.Tx) error {
			_, err := tx.Exec("UPDATE workflows SET version = version + 1")
			return err
		}))
		close(proceed)
		id := testkit.Receive(t, first)["workflow_id"].(string)
		require.Eventually(t, func() bool {
			got, err := f.tools.Workflows.Get(t.Context(), f.Principal, id)
			return err == nil && got.Status == "complete"
		}, testkit.Timeout, 5*time.Millisecond)
		require.Equal(t, 1, f.count(t, "note"))
	})
}

func TestAbortOfARunningWorkflow(t *testing.T) {
	t.Parallel()
	testOnDatabases(t, "what ran is cancelled, and uncertain if it may have acted", workflow.Options{}, func(t *testing.T, f *fixture) {
		began, ended := f.paper.Held()
		first := f.start(t, `[{"id": "a", "tool": "paper:held"}, {"id": "b", "tool": "paper:note", "depends_on": ["a"]}]`)
		testkit.Receive(t, began)
		var id string
		require.Eventually(t, func() bool { id = f.running(t); return id != "" }, testkit.Timeout, 5*time.Millisecond)
		got := f.call(t, "abort", map[string]any{"workflow_id": id, "reason": "enough"})
		require.Equal(t, "aborted", got["status"])
		requireStates(t, got, "uncertain", "skipped")
		require.ErrorIs(t, testkit.Receive(t, ended), context.Canceled)
		require.Equal(t, got, testkit.Receive(t, first))
	})
	testOnDatabases(t, "abort by a process that does not hold the workflow cancels its calls", workflow.Options{StepTimeout: time.Hour}, func(t *testing.T, f *fixture) {
		acts, _ := f.gate(t, "act", nil)
		reads, _ := f.gate(t, "read", mcptest.Reads())
		out := f.start(t, `[{"id": "a", "tool": "paper:act"}, {"id": "b", "tool": "paper:read"}, {"id": "c", "tool": "paper:note", "depends_on": ["a"]}]`)
		testkit.Receive(t, acts)
		testkit.Receive(t, reads)
		other := workflow.New(f.tools.Workflows.Dependencies, nil) // it holds no workflow
		require.NoError(t, other.Abort(t.Context(), f.Principal, f.running(t), "wrong folder"))
		require.NoError(t, other.Stop(t.Context()))
		v := testkit.Receive(t, out) // when the calls of the holder have ended
		require.Equal(t, "aborted", v["status"], "%v", v)
		require.Equal(t, "wrong folder", v["reason"])
		requireStates(t, v, "uncertain", "skipped", "skipped")
	})
}

func TestAuthority(t *testing.T) {
	t.Parallel()
	testOnDatabases(t, "other tokens do not find the workflow, administrators do", workflow.Options{}, func(t *testing.T, f *fixture) {
		v := f.dag(t, `[{"id": "a", "tool": "paper:shred", "approve": true}]`)
		f.tools.Client(t, "").RequireFails(t, "WORKFLOW_NOT_FOUND", "agentcards:approval_response", decision(v, true))
		admin := &fixture{Client: f.tools.Admin(), tools: f.tools}
		require.Equal(t, "complete", admin.decide(t, v, true)["status"])
	})
	testOnDatabases(t, "a revoked token begins no further step", workflow.Options{}, func(t *testing.T, f *fixture) {
		began, proceed := f.gate(t, "slow", mcptest.Reads())
		first := f.start(t, `[{"id": "a", "tool": "paper:slow"}, {"id": "b", "tool": "paper:shred", "depends_on": ["a"]}]`)
		testkit.Receive(t, began)
		require.NoError(t, f.tools.Tokens.Revoke(t.Context(), testkit.Admin(), f.Principal.TokenID, nil))
		close(proceed)
		v := testkit.Receive(t, first)
		require.Equal(t, "error", v["status"])
		requireStates(t, v, "success", "skipped")
		require.Contains(t, v["reason"], "revoked")
	})
	testOnDatabases(t, "an approval for a revoked token ends the workflow", workflow.Options{}, func(t *testing.T, f *fixture) {
		v := f.dag(t, `[{"id": "a", "tool": "paper:shred", "approve": true}]`)
		require.NoError(t, f.tools.Tokens.Revoke(t.Context(), testkit.Admin(), f.Principal.TokenID, nil))
		admin := &fixture{Client: f.tools.Admin(), tools: f.tools}
		got := admin.decide(t, v, true)
		require.Equal(t, "error", got["status"])
		require.Contains(t, got["reason"], "revoked")
	})
	testOnDatabases(t, "an agent step that no agent can do fails", workflow.Options{}, func(t *testing.T, f *fixture) {
		v := f.dag(t, `[{"id": "a", "type": "agent_task", "capability": "custom:none"}, {"id": "b", "type": "agent_task", "agent_id": "nova-none"}]`)
		requireStates(t, v, "error", "error")
		require.Equal(t, "UNSUPPORTED_WORK", v["task_results"].([]any)[0].(map[string]any)["error_code"])
	})
	testOnDatabases(t, "a token has a limited number of workflows that have not ended", workflow.Options{MaxActive: 2}, func(t *testing.T, f *fixture) {
		const tasks = `[{"id": "a", "tool": "paper:note", "approve": true}]`
		f.dag(t, tasks)
		v := f.dag(t, tasks)
		f.RequireFails(t, "WORKFLOW_LIMIT", "agentcards:execute_dag", map[string]any{"workflow": json.RawMessage(`{"tasks":` + tasks + `}`)})
		f.decide(t, v, true)
		f.dag(t, tasks)
	})
	testOnDatabases(t, "all tokens together have a limited number of workflows that have not ended", workflow.Options{MaxTotal: 2}, func(t *testing.T, f *fixture) {
		const tasks = `[{"id": "a", "tool": "paper:note", "approve": true}]`
		other := f.as(f.tools.Client(t, ""))
		f.dag(t, tasks)
		v := other.dag(t, tasks)
		for _, c := range []*fixture{f, other} {
			_, err := c.TryCall(t, "agentcards:execute_dag", map[string]any{"workflow": json.RawMessage(`{"tasks":` + tasks + `}`)})
			require.Equal(t, "WORKFLOW_LIMIT", tools.ErrorName(err))
			require.Contains(t, err.Error(), "workflows.max_active")
			require.Equal(t, 10, errs.From(err).Meta["retry_after"])
		}
		other.decide(t, v, false)
		f.dag(t, tasks)
	})
	testOnDatabases(t, "the results of a workflow are limited together", workflow.Options{MaxResults: 20}, func(t *testing.T, f *fixture) {
		v := f.dag(t, `[{"id": "a", "tool": "paper:note"}, {"id": "b", "tool": "paper:note", "depends_on": ["a"]}, {"id": "c", "tool": "paper:note", "depends_on": ["b"]}]`)
		requireStates(t, v, "success", "success", "error")
		failed := v["task_results"].([]any)[2].(map[string]any)
		require.Equal(t, "RESULT_TOO_LARGE", failed["error_code"])
		require.Contains(t, failed["error"], "the limit is 20")
	})
	testOnDatabases(t, "an accepted result counts, too", workflow.Options{MaxResults: 20}, func(t *testing.T, f *fixture) {
		v := f.dag(t, `[{"id": "a", "tool": "paper:held", "timeout_ms": 20}]`)
		require.Equal(t, "uncertain", v["status"])
		f.RequireFails(t, "RESULT_TOO_LARGE", "agentcards:approval_response", decision(v, true, "resolution", "accept", "results", map[string]any{"a": "more than twenty bytes"}))
		require.Equal(t, "complete", f.decide(t, v, true, "resolution", "accept", "results", map[string]any{"a": "less"})["status"])
	})
	testOnDatabases(t, "a tool that the token may not call is refused at the start", workflow.Options{}, func(t *testing.T, f *fixture) {
		f.SetPolicy(t, `{"deny":[{"tool":"paper:shred"}]}`)
		f.RequireFails(t, "TOOL_NOT_FOUND", "agentcards:execute_dag", map[string]any{"workflow": json.RawMessage(`{"tasks":[{"id":"a","tool":"paper:note"},{"id":"b","tool":"paper:shred"}]}`)})
		require.Zero(t, f.count(t, "note"))
		f.tools.Client(t, "").RequireFails(t, "PERMISSION_DENIED", "agentcards:execute_dag", map[string]any{"workflow": json.RawMessage(`{"tasks":[{"id":"a","type":"agent_task","capability":"custom:paper:echo"}]}`)})
	})
}

// TestRefusedWorkflows: nothing is stored for an invalid request, and the error names the member.
func TestRefusedWorkflows(t *testing.T) {
	t.Parallel()
	testOnDatabases(t, "table", workflow.Options{}, func(t *testing.T, f *fixture) {
		for args, want := range map[string]string{
			`{}`:                        "workflow is required",
			`{"workflow":{"tasks":[]}}`: "/workflow/tasks: a workflow must have 1 to 500 steps, not 0",
			`{"workflow":{"tasks":[{"id":"a","tool":"paper:note","arguments":{"x":"$b.result"}}]}}`:                          "/workflow/tasks/0/arguments/x: \"$b.result\" refers to a step that does not exist",
			`{"workflow":{"tasks":[{"id":"a","tool":"paper:note","depends_on":["a"]}]}}`:                                     "depends on itself",
			`{"workflow":{"tasks":[{"id":"a","tool":"paper:note"}]},"config":{"on_error":"stop"}}`:                           "on_error",
			`{"workflow":{"tasks":[{"id":"a","tool":"paper:note"}]},"config":{"approvals":"read"}}`:                          "approvals",
			`{"workflow":{"tasks":[{"id":"a","tool":"paper:note","depend_on":["b"]}]}}`:                                      "depend_on",
			`{"workflow":{"tasks":[{"id":"a","tool":"agentcards:execute_dag"}]}}`:                                            "a step may not call agentcards:execute_dag",
			`{"workflow":{"tasks":[{"id":"a","type":"agent_task","agent_id":"x","budget":0}]}}`:                              "/workflow/tasks/0/budget",
			`{"workflow":{"tasks":[{"id":"a","tool":"paper:note"}]},"config":{"task_timeout_ms":-1}}`:                        "task_timeout_ms",
			`{"workflow":{"tasks":[{"id":"a","tool":"paper:note"}]},"config":{"task_timeout_ms":86400001}}`:                  "task_timeout_ms",
			`{"workflow":{"tasks":[{"id":"a","type":"agent_task","agent_id":"x","timeout_ms":99}]}}`:                         "/workflow/tasks/0/timeout_ms: timeout_ms must be at least 100 for the type agent_task",
			`{"workflow":{"tasks":[{"id":"a","type":"agent_task","agent_id":"x"}]},"config":{"task_timeout_ms":99}}`:         "/config/task_timeout_ms: task_timeout_ms must be at least 100",
			`{"workflow":{"tasks":[{"id":"a","tool":"paper:note"}]},"per_layer_validation":"yes"}`:                           "per_layer_validation",
			`{"workflow":{"tasks":[{"id":"a","tool":"paper:note","arguments":[]}]}}`:                                         "/workflow/tasks/0/arguments: arguments must be a JSON object",
			`{"workflow":{"tasks":[{"id":"a","tool":"paper:note"},{"id":"a","tool":"paper:note"}]}}`:                         "/workflow/tasks/1/id: the id \"a\" is already used by step 1",
			`{"workflow":{"tasks":[{"id":"a","tool":"paper:note","arguments":{"x":"$a.result"}}]}}`:                          "refers to its own result",
			`{"workflow":{"tasks":[{"id":"a","tool":"x:y","depends_on":["b"]},{"id":"b","tool":"x:y","depends_on":["a"]}]}}`: "a → b → a",
		} {
			require.Contains(t, f.RequireFails(t, "INVALID_ARGUMENTS", "agentcards:execute_dag", json.RawMessage(args)), want, args)
		}
		f.RequireFails(t, "TOOL_NOT_FOUND", "agentcards:execute_dag", json.RawMessage(`{"workflow":{"tasks":[{"id":"a","tool":"paper:nothing"}]}}`))
		for name, args := range map[string]string{"continue": `{"workflow_id":"wf_none"}`, "abort": `{"workflow_id":"wf_none","reason":"x"}`, "approval_response": `{"workflow_id":"wf_none","checkpoint_id":"cp_x","approved":true}`} {
			f.RequireFails(t, "WORKFLOW_NOT_FOUND", "agentcards:"+name, json.RawMessage(args))
		}
		for name, c := range map[string][2]string{
			"continue": {`{}`, "workflow_id"}, "abort": {`{"workflow_id":"wf_none"}`, "reason"}, "approval_response": {`{"workflow_id":"wf_none","checkpoint_id":"cp_x"}`, "approved"},
		} {
			require.Contains(t, f.RequireFails(t, "INVALID_ARGUMENTS", "agentcards:"+name, json.RawMessage(c[0])), c[1]+" is required")
		}
		require.Empty(t, f.running(t)+f.paused(t)+f.inState(t, workflows.Complete)+f.inState(t, workflows.Failed)+f.inState(t, workflows.Aborted), "nothing is stored")
	})
}

// TestIntent: an intent that states everything is executed, a destructive step asks, and a plan with missing arguments is
// returned (AgentCards, “Mode Intent”).
func TestIntent(t *testing.T) {
	t.Parallel()
	testOnDatabases(t, "files", workflow.Options{}, func(t *testing.T, f *fixture) {
		path := json.RawMessage(`{"type":"object","properties":{"path":{"type":"string","description":"Path of the file"}},"required":["path"]}`)
		says := func(name, description string, class *mcp.ToolAnnotations) {
			f.paper.Tool(&mcp.Tool{Name: name, Description: description, Annotations: class, InputSchema: path}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return mcptest.Texts(name + " " + string(r.Params.Arguments)), nil
			})
		}
		says("read_file", "Read the complete contents of a file", mcptest.Reads())
		says("delete_file", "Delete a file", nil)
		require.Eventually(t, func() bool { return slices.Contains(f.Tools(t, "paper"), "paper:delete_file") }, testkit.Timeout, 5*time.Millisecond)
		v := f.call(t, "execute_dag", map[string]any{"intent": "Read the file config.json"})
		require.Equal(t, "complete", v["status"], "%v", v)
		require.Equal(t, map[string]any{"t1": `read_file {"path":"config.json"}`}, v["results"])
		v = f.call(t, "execute_dag", map[string]any{"intent": "Delete the file old.txt"})
		require.Equal(t, "approval_required", v["status"], "%v", v)
		require.Equal(t, "complete", f.decide(t, v, true)["status"])
		v = f.call(t, "execute_dag", map[string]any{"intent": "Read the file"})
		require.Equal(t, "suggestion", v["status"], "%v", v)
		require.Equal(t, "/path", v["missing"].([]any)[0].(map[string]any)["argument"])
		f.requireOneStart(t, "Read the file config.json")
		p, err := f.tools.Workflows.Plan(t.Context(), tools.Caller{Principal: f.Principal}, workflow.Request{Intent: new("Delete the file old.txt")})
		require.NoError(t, err)
		require.Equal(t, []workflow.PlannedTask{{Node: workflow.Node{ID: "t1", Type: "mcp_tool", Tool: "paper:delete_file", Layer: 1, DependsOn: []string{}}, Class: models.ToolDestructive, Approval: true}}, p.Tasks)
		require.Equal(t, []any{"ready", 1, 1}, []any{p.Status, p.TotalLayers, p.ParallelBranches})
		p, err = f.tools.Workflows.Plan(t.Context(), tools.Caller{Principal: f.Principal}, workflow.Request{Intent: new("Read the file")})
		require.NoError(t, err)
		require.Equal(t, []any{"suggestion", 1, 0}, []any{p.Status, len(p.Missing), len(p.Tasks)})
		v = f.call(t, "execute_dag", map[string]any{"intent": "Dance in the rain"})
		require.Equal(t, "explicit_required", v["status"], "%v", v)
	})
}

// TestSpansOfSteps checks that each attempt of a step is a child span of the start, in the trace of the request, even after a
// pause.
func TestSpansOfSteps(t *testing.T) {
	t.Parallel()
	recorder := tracetest.NewSpanRecorder()
	tracer := trace.NewTracerProvider(trace.WithSpanProcessor(recorder)).Tracer("")
	testOnDatabases(t, "a failed and a successful step", workflow.Options{Tracer: tracer}, func(t *testing.T, f *fixture) {
		const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
		by := tools.Caller{Principal: f.Principal, Source: tools.SourceREST}.Traced("none").Traced(parent)
		steps := []plan.Step{{ID: "a", Tool: "paper:fail"}, {ID: "b", Tool: "paper:note", Approve: true}, {ID: "c", Type: plan.KindAgent, Capability: "custom:paper:echo"}}
		v, _, err := f.tools.Workflows.Begin(t.Context(), by, workflow.Request{Workflow: new(graph(steps...))}, nil)
		require.NoError(t, err)
		paused, err := f.tools.Workflows.Wait(t.Context(), f.Principal, v.WorkflowID)
		require.NoError(t, err)
		require.NoError(t, f.tools.Workflows.Decide(t.Context(), f.Principal, v.WorkflowID, paused.CheckpointID, workflow.Decision{Approved: true}))
		_, err = f.tools.Workflows.Wait(t.Context(), f.Principal, v.WorkflowID)
		require.NoError(t, err)
		spans := map[string]trace.ReadOnlySpan{}
		for _, s := range recorder.Ended() {
			values := map[string]string{}
			for _, a := range s.Attributes() {
				values[string(a.Key)] = a.Value.String()
			}
			if values["comet.workflow.id"] == v.WorkflowID {
				spans[s.Name()+values["comet.step.id"]] = s
				require.Equal(t, "4bf92f3577b34da6a3ce929d0e0e4736", s.SpanContext().TraceID().String())
			}
		}
		require.Len(t, spans, 4)
		require.Equal(t, "00f067aa0ba902b7", spans["workflow.start"].Parent().SpanID().String())
		for step, code := range map[string]codes.Code{"a": codes.Error, "b": codes.Unset, "c": codes.Unset} {
			s := spans["workflow.step"+step]
			require.Equal(t, spans["workflow.start"].SpanContext().SpanID(), s.Parent().SpanID(), step)
			require.Equal(t, code, s.Status().Code, step)
			require.False(t, s.EndTime().Before(s.StartTime()))
		}
	})
}

// requireOneStart starts an intent twice with the same idempotency key; the second request gets the first response even if
// the tools, and so the plan, have changed.
func (f *fixture) requireOneStart(t *testing.T, sentence string) {
	t.Helper()
	begin := func() (workflow.View, *models.Idempotency) {
		once := &models.Idempotency{Principal: f.Principal.TokenID, Key: "k", Render: func(v any) (models.StoredResponse, error) {
			return models.StoredResponse{Status: 200, Body: []byte(v.(workflow.View).WorkflowID)}, nil
		}}
		v, p, err := f.tools.Workflows.Begin(t.Context(), tools.Caller{Principal: f.Principal}, workflow.Request{Intent: &sentence}, once)
		require.NoError(t, err)
		require.Equal(t, workflow.Ready, p.Status)
		return v, once
	}
	first, _ := begin()
	require.NotEmpty(t, first.WorkflowID)
	f.SetPolicy(t, `{"deny":[{"tool":"paper:read_file"}]}`)
	again, once := begin()
	require.Empty(t, again.WorkflowID)
	require.Equal(t, first.WorkflowID, string(once.Replay.Body))
	f.SetPolicy(t, `{}`)
}

// TestUntilChange checks that the context ends when this or another process has changed the workflow.
func TestUntilChange(t *testing.T) {
	t.Parallel()
	for name, engine := range map[string]func(f *fixture) *workflow.Engine{
		"this process":    func(f *fixture) *workflow.Engine { return f.tools.Workflows },
		"another process": (*fixture).replica,
	} {
		testOnDatabases(t, name, workflow.Options{}, func(t *testing.T, f *fixture) {
			until := func() (v workflow.View, until context.Context) {
				id := f.dag(t, `[{"id": "a", "tool": "paper:shred", "approve": true}]`)["workflow_id"].(string)
				v, err := f.tools.Workflows.Get(t.Context(), f.Principal, id)
				require.NoError(t, err)
				until, cancel := f.tools.Workflows.UntilChange(t.Context(), id, v.Version)
				t.Cleanup(cancel)
				return v, until
			}
			_, other := until()
			v, rejected := until()
			again, cancel := f.tools.Workflows.UntilChange(t.Context(), v.WorkflowID, v.Version)
			_, released := f.tools.Workflows.UntilChange(t.Context(), v.WorkflowID, v.Version)
			released()
			require.NoError(t, rejected.Err())
			require.NoError(t, engine(f).Decide(t.Context(), f.Principal, v.WorkflowID, v.CheckpointID, workflow.Decision{}))
			testkit.Receive(t, rejected.Done())
			testkit.Receive(t, again.Done())
			cancel()
			v, replanned := until()
			_, _, err := engine(f).Replan(t.Context(), f.Caller, v.WorkflowID, adding(plan.Step{ID: "b", Tool: "paper:note"}))
			require.NoError(t, err)
			testkit.Receive(t, replanned.Done())
			late, cancel := f.tools.Workflows.UntilChange(t.Context(), v.WorkflowID, v.Version)
			require.Error(t, late.Err(), "it has changed already")
			cancel()
			v, approved := until()
			require.NoError(t, f.tools.Workflows.Decide(t.Context(), f.Principal, v.WorkflowID, v.CheckpointID, workflow.Decision{Approved: true}))
			testkit.Receive(t, approved.Done())
			require.NoError(t, other.Err())
		})
	}
}
