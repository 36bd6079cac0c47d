package workflow_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"comet/internal/testkit"
	"comet/internal/testkit/mcptest"
	"comet/internal/workflow"
	"comet/internal/workflow/plan"
	"comet/store"
)

// replan adds tasks to the workflow of a view.
func (f *fixture) replan(t *testing.T, v view, tasks string) view {
	t.Helper()
	return f.call(t, "replan", replanning(v, tasks))
}

func replanning(v view, tasks string) map[string]any {
	return map[string]any{"workflow_id": v["workflow_id"], "new_requirement": "one more", "workflow": json.RawMessage(`{"tasks":` + tasks + `}`)}
}

// replica returns an engine like that of another process: it holds no workflow.
func (f *fixture) replica() *workflow.Engine {
	return workflow.New(f.tools.Workflows.Dependencies, nil)
}

func adding(steps ...plan.Step) workflow.Requirement {
	return workflow.Requirement{Workflow: new(graph(steps...))}
}

// requireComplete waits until a workflow is complete.
func (f *fixture) requireComplete(t *testing.T, id string) workflow.View {
	t.Helper()
	var v workflow.View
	require.Eventually(t, func() bool {
		var err error
		v, err = f.tools.Workflows.Get(t.Context(), f.Principal, id)
		return err == nil && v.Status != "running"
	}, testkit.Timeout, 5*time.Millisecond)
	require.Equal(t, "complete", v.Status, "%+v", v)
	return v
}

// waitForRunning returns the id of the only workflow that runs.
func (f *fixture) waitForRunning(t *testing.T) (id string) {
	t.Helper()
	require.Eventually(t, func() bool { id = f.running(t); return id != "" }, testkit.Timeout, 5*time.Millisecond)
	return id
}

// TestReplan checks that the response has the members of AgentCards, “agentcards:replan”, and that ended steps do not change.
func TestReplan(t *testing.T) {
	t.Parallel()
	testOnDatabases(t, "after a layer the new steps belong to the next one", workflow.Options{}, func(t *testing.T, f *fixture) {
		v := f.dag(t, `[{"id": "a", "tool": "paper:list"}, {"id": "b", "tool": "paper:note", "depends_on": ["a"]}]`, "per_layer_validation", true)
		require.Equal(t, []any{"continue", "replan", "abort"}, v["options"])
		got := f.replan(t, v, `[{"id": "c", "tool": "paper:echo", "arguments": {"n": "$a.result.items[0].n"}}, {"id": "d", "tool": "paper:note"}, {"id": "e", "tool": "paper:echo", "arguments": {"b": "$b.result", "d": "$d.result"}}]`)
		require.Equal(t, view{
			"status": "replanned", "workflow_id": v["workflow_id"], "new_requirement": "one more", "new_tasks_count": 3.0, "new_task_ids": []any{"c", "d", "e"},
			"total_tasks": 5.0, "total_layers": 3.0, "revision": 1.0, "workflow_status": "layer_complete", "options": []any{"continue", "replan", "abort"},
			"checkpoint_id": v["checkpoint_id"],
		}, got)
		paused, err := f.tools.Workflows.Get(t.Context(), f.Principal, v["workflow_id"].(string))
		require.NoError(t, err)
		require.Equal(t, []string{"b", "c", "d"}, paused.NextLayer)
		require.Equal(t, 3, paused.TotalLayers)
		f.tools.Stop(t)
		f.Client = f.At(f.tools.Restart(t, f.paper))
		next := f.call(t, "continue", map[string]any{"workflow_id": v["workflow_id"]})
		require.InDelta(t, 2, next["current_layer"], 0)
		requireStates(t, next, "success", "success", "success")
		last := f.call(t, "continue", map[string]any{"workflow_id": v["workflow_id"]})
		require.Equal(t, "complete", last["status"], "%v", last)
		require.Equal(t, map[string]any{"n": 7.0}, last["results"].(map[string]any)["c"])
		require.Equal(t, map[string]any{"b": "noted", "d": "noted"}, last["results"].(map[string]any)["e"])
		require.Equal(t, 1, f.count(t, "list"), "what has finished does not run again")
		f.RequireFails(t, "WORKFLOW_STATE", "agentcards:replan", replanning(v, `[{"id": "z", "tool": "paper:note"}]`))
	})
	testOnDatabases(t, "an approval covers the plan: it is asked for again", workflow.Options{}, func(t *testing.T, f *fixture) {
		v := f.dag(t, `[{"id": "a", "tool": "paper:shred", "arguments": {"n": 1}, "approve": true}]`)
		got := f.replan(t, v, `[{"id": "b", "tool": "paper:note"}, {"id": "c", "tool": "paper:echo", "arguments": {"a": "$b.result"}, "depends_on": ["a"]}]`)
		require.Equal(t, "approval_required", got["workflow_status"])
		require.NotEqual(t, v["checkpoint_id"], got["checkpoint_id"])
		before, now := v["context"].(map[string]any)["steps"].([]any)[0].(map[string]any), got["context"].(map[string]any)["steps"].([]any)[0].(map[string]any)
		require.NotEqual(t, before["digest"], now["digest"])
		require.Equal(t, before["arguments"], now["arguments"])
		require.Zero(t, f.count(t, "note"), "a paused workflow stays paused")
		f.RequireFails(t, "CHECKPOINT_STALE", "agentcards:approval_response", decision(v, true))
		done := f.decide(t, got, true, "digest", got["context"].(map[string]any)["digest"])
		require.Equal(t, "complete", done["status"], "%v", done)
		require.InDelta(t, 1, done["revision"], 0)
		require.Equal(t, map[string]any{"a": "noted"}, done["results"].(map[string]any)["c"])
		require.Equal(t, 1, f.count(t, "shred"))
	})
	testOnDatabases(t, "a decision on lost results is asked for again", workflow.Options{}, func(t *testing.T, f *fixture) {
		v := f.dag(t, `[{"id": "a", "tool": "paper:held", "timeout_ms": 20}]`)
		require.Equal(t, "uncertain", v["status"])
		got := f.replan(t, v, `[{"id": "b", "tool": "paper:note"}]`)
		require.Equal(t, "uncertain", got["workflow_status"])
		f.RequireFails(t, "CHECKPOINT_STALE", "agentcards:approval_response", decision(v, true, "resolution", "skip"))
		done := f.decide(t, got, true, "resolution", "accept", "results", map[string]any{"a": 1})
		require.Equal(t, "complete", done["status"], "%v", done)
	})
	testOnDatabases(t, "if the step of a checkpoint cannot be shown again it fails", workflow.Options{}, func(t *testing.T, f *fixture) {
		v := f.dag(t, `[{"id": "a", "tool": "paper:shred", "approve": true}]`)
		f.SetPolicy(t, `{"deny":[{"tool":"paper:shred"}]}`)
		f.replan(t, v, `[{"id": "b", "tool": "paper:note"}]`)
		require.Eventually(t, func() bool {
			got, err := f.tools.Workflows.Get(t.Context(), f.Principal, v["workflow_id"].(string))
			return err == nil && got.Status == "error" && got.TaskResults[0].Status == "error" && got.TaskResults[1].Status == "success"
		}, testkit.Timeout, 5*time.Millisecond)
	})
}

// TestReplanOfARunningWorkflow checks that the holder executes the new steps at once.
func TestReplanOfARunningWorkflow(t *testing.T) {
	t.Parallel()
	for name, engine := range map[string]func(f *fixture) *workflow.Engine{
		"that this process holds":    func(f *fixture) *workflow.Engine { return f.tools.Workflows },
		"that another process holds": (*fixture).replica,
	} {
		testOnDatabases(t, name, workflow.Options{}, func(t *testing.T, f *fixture) {
			began, proceed := f.gate(t, "slow", nil)
			first := f.start(t, `[{"id": "a", "tool": "paper:slow"}, {"id": "b", "tool": "paper:note", "depends_on": ["a"]}]`)
			testkit.Receive(t, began)
			id := f.waitForRunning(t)
			got, _, err := engine(f).Replan(t.Context(), f.Caller, id, adding(
				plan.Step{ID: "c", Tool: "paper:slow"}, plan.Step{ID: "d", Tool: "paper:echo", Arguments: json.RawMessage(`{"b":"$b.result"}`)},
			))
			require.NoError(t, err)
			require.Equal(t, "running", got.WorkflowStatus)
			require.Equal(t, []string{"c", "d"}, got.NewTaskIDs)
			testkit.Receive(t, began) // the new step, while the first one runs
			close(proceed)
			v := testkit.Receive(t, first)
			require.Equal(t, "complete", v["status"], "%v", v)
			requireStates(t, v, "success", "success", "success", "success")
			require.Equal(t, map[string]any{"b": "noted"}, v["results"].(map[string]any)["d"])
			require.Equal(t, 2, f.count(t, "slow"))
		})
	}
	testOnDatabases(t, "no step is lost and none runs twice while steps end", workflow.Options{}, func(t *testing.T, f *fixture) {
		began, proceed := f.gate(t, "slow", nil)
		tasks := []plan.Step{{ID: "s0", Tool: "paper:note"}}
		for i := 1; i < 30; i++ {
			tasks = append(tasks, plan.Step{ID: fmt.Sprintf("s%d", i), Tool: "paper:note", DependsOn: []string{fmt.Sprintf("s%d", i-1)}})
		}
		text, err := json.Marshal(append(tasks, plan.Step{ID: "last", Tool: "paper:slow"}))
		require.NoError(t, err)
		first := f.start(t, string(text))
		testkit.Receive(t, began)
		id := f.waitForRunning(t)
		var all sync.WaitGroup
		for i := range 10 {
			engine := f.tools.Workflows
			if i%2 == 1 {
				engine = f.replica()
			}
			all.Go(func() {
				_, _, err := engine.Replan(t.Context(), f.Caller, id, adding(plan.Step{ID: fmt.Sprintf("new%d", i), Tool: "paper:echo", DependsOn: []string{fmt.Sprintf("s%d", i)}}))
				assert.NoError(t, err)
			})
		}
		all.Wait()
		f.RequireFails(t, "WORKFLOW_STATE", "agentcards:replan", replanning(view{"workflow_id": id}, `[{"id": "z", "tool": "paper:note"}]`))
		close(proceed)
		v := testkit.Receive(t, first)
		require.Equal(t, "complete", v["status"], "%v", v)
		require.InDelta(t, 10, v["revision"], 0)
		require.Equal(t, 30, f.count(t, "note"))
		require.Equal(t, 10, f.count(t, "echo"))
		revisions, err := store.Rows[string](f.db.Reads(t.Context()), "SELECT data FROM events WHERE type = 'workflow.replanned' ORDER BY id")
		require.NoError(t, err)
		require.Len(t, revisions, 10)
	})
	testOnDatabases(t, "an abort also ends the new steps", workflow.Options{}, func(t *testing.T, f *fixture) {
		began, proceed := f.gate(t, "slow", mcptest.Reads())
		defer close(proceed)
		first := f.start(t, `[{"id": "a", "tool": "paper:slow"}]`)
		testkit.Receive(t, began)
		id := f.waitForRunning(t)
		_, _, err := f.replica().Replan(t.Context(), f.Caller, id, adding(plan.Step{ID: "b", Tool: "paper:slow"}, plan.Step{ID: "c", Tool: "paper:note", DependsOn: []string{"b"}}))
		require.NoError(t, err)
		got := f.call(t, "abort", map[string]any{"workflow_id": id, "reason": "enough"})
		requireStates(t, got, "skipped", "skipped", "skipped")
		require.Equal(t, got, testkit.Receive(t, first))
	})
	testOnDatabases(t, "a workflow without a holder is adopted with the new steps", workflow.Options{}, func(t *testing.T, f *fixture) {
		began, proceed := f.gate(t, "slow", mcptest.Reads())
		first := f.start(t, `[{"id": "a", "tool": "paper:slow"}]`)
		testkit.Receive(t, began)
		id := f.waitForRunning(t)
		_, _, err := f.replica().Replan(t.Context(), f.Caller, id, adding(plan.Step{ID: "b", Tool: "paper:note", DependsOn: []string{"a"}}))
		require.NoError(t, err)
		f.release(t)
		testkit.Receive(t, began)
		close(proceed)
		require.Len(t, f.requireComplete(t, id).TaskResults, 2)
		testkit.Receive(t, first)
	})
}

// TestRejectedReplans checks that the workflow does not change, and that the error names the member.
func TestRejectedReplans(t *testing.T) {
	t.Parallel()
	testOnDatabases(t, "table", workflow.Options{}, func(t *testing.T, f *fixture) {
		v := f.dag(t, `[{"id": "a", "tool": "paper:list"}, {"id": "b", "tool": "paper:echo", "arguments": {"cost": "$price.usd", "text": "$$cost.usd"}, "depends_on": ["a"]}]`, "per_layer_validation", true)
		id := v["workflow_id"].(string)
		before, err := f.tools.Workflows.Get(t.Context(), f.Principal, id)
		require.NoError(t, err)
		for tasks, want := range map[string]string{
			`[]`:                               "/workflow/tasks: at least one step must be added",
			`[{"id":"b","tool":"paper:note"}]`: "/workflow/tasks/0/id: the id \"b\" is already used by step 2",
			`[{"id":"c","tool":"paper:note"},{"id":"c","tool":"paper:note"}]`:                                       "/workflow/tasks/1/id: the id \"c\" is already used by step 3",
			`[{"id":"c","tool":"paper:note","depends_on":["x"]}]`:                                                   "/workflow/tasks/0/depends_on/0: there is no step \"x\"",
			`[{"id":"c","tool":"paper:note","arguments":{"x":"$aa.result"}}]`:                                       "did you mean $a.result?",
			`[{"id":"c","tool":"paper:note","depends_on":["d"]},{"id":"d","tool":"paper:note","depends_on":["c"]}]`: "/workflow/tasks/0/depends_on: the dependencies of the steps form a cycle: c → d → c",
			`[{"id":"price","tool":"paper:note"}]`:                                                                  "/workflow/tasks/0/id: this id would turn the text \"$price.usd\" of the step \"b\" into a reference",
			`[{"id":"c","tool":"paper:note"},{"id":"cost","tool":"paper:note"}]`:                                    "/workflow/tasks/1/id: this id would turn the text \"$cost.usd\"",
			`[{"id":"c","tool":"agentcards:replan"}]`:                                                               "a step may not call agentcards:replan",
			`[{"id":"c","type":"agent_task","agent_id":"x","budget":0}]`:                                            "/workflow/tasks/0/budget",
			`[{"id":"c","tool":"paper:note","retries":1}]`:                                                          "retries",
			`[` + repeated(499) + `]`:                                                                               "/workflow/tasks: a workflow must have 1 to 500 steps, not 501",
		} {
			require.Contains(t, f.RequireFails(t, "INVALID_ARGUMENTS", "agentcards:replan", replanning(v, tasks)), want, tasks)
		}
		f.RequireFails(t, "TOOL_NOT_FOUND", "agentcards:replan", replanning(v, `[{"id":"c","tool":"paper:nothing"}]`))
		require.Contains(t, f.RequireFails(t, "INVALID_ARGUMENTS", "agentcards:replan", map[string]any{"workflow_id": id}), "new_requirement is required")
		require.Contains(t, f.RequireFails(t, "INVALID_ARGUMENTS", "agentcards:replan", map[string]any{"workflow_id": id, "new_requirement": "x", "available_context": []int{1}}), "context must be a JSON object")
		f.RequireFails(t, "WORKFLOW_NOT_FOUND", "agentcards:replan", replanning(view{"workflow_id": "wf_none"}, `[{"id":"c","tool":"paper:note"}]`))
		f.tools.Client(t, "").RequireFails(t, "WORKFLOW_NOT_FOUND", "agentcards:replan", replanning(v, `[{"id":"c","tool":"paper:note"}]`))
		after, err := f.tools.Workflows.Get(t.Context(), f.Principal, id)
		require.NoError(t, err)
		require.Equal(t, before, after)
		require.NoError(t, f.tools.Tokens.Revoke(t.Context(), testkit.Admin(), f.Principal.TokenID, nil))
		f.tools.Admin().RequireFails(t, "PERMISSION_DENIED", "agentcards:replan", replanning(v, `[{"id":"c","tool":"paper:note"}]`))
	})
	testOnDatabases(t, "a pause that has expired", workflow.Options{}, func(t *testing.T, f *fixture) {
		v := f.dag(t, `[{"id": "a", "tool": "paper:list", "approve": true}]`)
		f.db.Clock.Advance(61 * time.Minute)
		f.RequireFails(t, "WORKFLOW_NOT_FOUND", "agentcards:replan", replanning(v, `[{"id":"c","tool":"paper:note"}]`))
	})
}

func repeated(n int) (tasks string) {
	for i := range n {
		tasks += fmt.Sprintf(`,{"id":"n%d","tool":"paper:note"}`, i)
	}
	return tasks[1:]
}

// TestReplanByRequirement checks that a sentence becomes steps with new ids, or a suggestion that changes nothing.
func TestReplanByRequirement(t *testing.T) {
	t.Parallel()
	testOnDatabases(t, "files", workflow.Options{}, func(t *testing.T, f *fixture) {
		says := func(name, description string, class *mcp.ToolAnnotations) {
			schema := json.RawMessage(`{"type":"object","properties":{"path":{"type":"string","description":"Path of the file"}},"required":["path"]}`)
			f.paper.Tool(&mcp.Tool{Name: name, Description: description, Annotations: class, InputSchema: schema}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return mcptest.Texts(name + " " + string(r.Params.Arguments)), nil
			})
		}
		says("read_file", "Read the complete contents of a file", mcptest.Reads())
		says("delete_file", "Delete a file", nil)
		require.Eventually(t, func() bool { return slices.Contains(f.Tools(t, "paper"), "paper:delete_file") }, testkit.Timeout, 5*time.Millisecond)
		v := f.dag(t, `[{"id": "t1", "tool": "paper:list"}, {"id": "t3", "tool": "paper:note", "depends_on": ["t1"]}]`, "per_layer_validation", true)
		replan := func(requirement string, context any) view {
			args := map[string]any{"workflow_id": v["workflow_id"], "new_requirement": requirement}
			if context != nil {
				args["available_context"] = context
			}
			return f.call(t, "replan", args)
		}
		got := replan("Read the file", nil)
		require.Equal(t, "suggestion", got["status"], "%v", got)
		require.Equal(t, "/path", got["missing"].([]any)[0].(map[string]any)["argument"])
		require.Equal(t, "explicit_required", replan("Dance in the rain", nil)["status"])
		paused, err := f.tools.Workflows.Get(t.Context(), f.Principal, v["workflow_id"].(string))
		require.NoError(t, err)
		require.Zero(t, paused.Revision)
		got = replan("Read the file", map[string]any{"path": "data.xml"})
		require.Equal(t, []any{"t2"}, got["new_task_ids"], "%v", got)
		require.Equal(t, "Read the file", got["new_requirement"])
		got = replan("Read the file config.xml then delete the file old.txt", nil)
		require.Equal(t, []any{"t4", "t5"}, got["new_task_ids"], "%v", got)
		asks := f.call(t, "continue", map[string]any{"workflow_id": v["workflow_id"]})
		asks = f.call(t, "continue", map[string]any{"workflow_id": asks["workflow_id"]})
		require.Equal(t, "approval_required", asks["status"], "%v", asks)
		done := f.decide(t, asks, true)
		require.Equal(t, "complete", done["status"], "%v", done)
		results := done["results"].(map[string]any)
		require.Equal(t, `read_file {"path":"data.xml"}`, results["t2"])
		require.Equal(t, `read_file {"path":"config.xml"}`, results["t4"])
		require.Equal(t, `delete_file {"path":"old.txt"}`, results["t5"])
	})
}
