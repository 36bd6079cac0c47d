package app_test

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/config"
	"comet/internal/testkit"
	"comet/internal/testkit/mcptest"
	"comet/internal/workflow"
)

// measuredTools is a measured server with an upstream whose tool act waits: each call sends to began, and ends when the test
// sends to proceed.
type measuredTools struct {
	*measured
	caller         *client
	began, proceed chan struct{}
}

// measureTools runs a test as measure does, with the upstream and a client of the agent caller.
func measureTools(t *testing.T, fn func(t *testing.T, m *measuredTools)) {
	t.Helper()
	measure(t, func(cfg *config.Config) { cfg.MCP.TasksAfter = time.Millisecond }, func(t *testing.T, server *measured) {
		m := &measuredTools{server, server.worker(t, "caller"), make(chan struct{}, 1), make(chan struct{})}
		upstream := mcptest.New(t, "acts").Tool(&mcp.Tool{Name: "act"}, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			m.began <- struct{}{}
			select {
			case <-m.proceed:
				return mcptest.Texts("done"), nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		})
		m.must(t, http.StatusCreated, http.MethodPut, "/api/v1/upstreams/acts", map[string]any{"url": upstream.URL})
		eventually(t, func() bool { return m.online(t, "mcp-acts") && slices.Contains(m.caller.tools(t, "acts"), "acts:act") }, "the upstream is ready")
		m.await(t, func(r *recorder) bool { // the event upstream.up
			return slices.ContainsFunc(r.recorded(), func(e entry) bool { return len(e.statements) == 1 && e.touches("INSERT events") })
		})
		// The server rejects this task only after all agents are in the index.
		m.must(t, http.StatusUnprocessableEntity, http.MethodPost, "/api/v1/tasks", map[string]any{"capabilities": []string{"custom:none"}})
		fn(t, m)
	})
}

// act returns a task of a workflow that calls the tool.
func act(id string, more map[string]any) map[string]any {
	task := map[string]any{"id": id, "tool": "acts:act"}
	for name, value := range more {
		task[name] = value
	}
	return task
}

// flush writes the audit log.
func (m *measuredTools) flush(t *testing.T) {
	t.Helper()
	m.must(t, http.StatusOK, http.MethodGet, "/api/v1/tools/calls", nil)
}

// end lets the running call end, and waits until its result is stored.
func (m *measuredTools) end(t *testing.T, stored ...condition) {
	t.Helper()
	m.proceed <- struct{}{}
	m.await(t, stored...)
	m.flush(t)
}

// costOfBudgetedWorkflow measures a workflow with a budget and two steps.
func costOfBudgetedWorkflow(t *testing.T) {
	t.Parallel()
	measureTools(t, func(t *testing.T, m *measuredTools) {
		perform := func(o *operation) {
			tasks := []any{act("a", nil), act("b", map[string]any{"depends_on": []string{"a"}})}
			o.post(t, "start: reserve the budget (POST /api/v1/workflows)", m.caller, http.StatusAccepted, "/api/v1/workflows",
				map[string]any{"workflow": map[string]any{"tasks": tasks}, "config": map[string]any{"budget": 1000}})
			testkit.Receive(t, m.began)
			o.step(t, "a result: draw on the reservation, and begin the next task", func(string) {
				m.end(t, committed("INSERT tool_calls"))
				testkit.Receive(t, m.began)
			})
			o.step(t, "the last result: draw on the reservation, and release the rest", func(string) { m.end(t, committed("INSERT tool_calls")) })
		}
		perform(m.operation("the first"))
		o := m.operation("workflow with a budget and two tool calls, with the audit and the charges of its calls")
		perform(o)
		o.compare(t, "workflow-budget")
	})
}

// costOfReplans measures the addition of a step to a running and to a paused workflow.
func costOfReplans(t *testing.T) {
	t.Parallel()
	measureTools(t, func(t *testing.T, m *measuredTools) {
		replan := func(title, file, id string) {
			o := m.operation(title)
			o.post(t, "replan", m.caller, http.StatusOK, "/api/v1/workflows/"+id+"/replan",
				map[string]any{"workflow": map[string]any{"tasks": []any{act("b", map[string]any{"depends_on": []string{"a"}})}}})
			o.compare(t, file)
		}
		start := func(status int, task map[string]any) string {
			return into[workflow.View](t, m.caller, status, http.MethodPost, "/api/v1/workflows", map[string]any{"workflow": map[string]any{"tasks": []any{task}}}).WorkflowID
		}

		replan("replan of a paused workflow, whose checkpoint is replaced (POST /api/v1/workflows/{id}/replan)", "workflow-replan-paused",
			start(http.StatusOK, act("a", map[string]any{"approve": true})))
		running := start(http.StatusAccepted, act("a", nil))
		testkit.Receive(t, m.began)
		replan("replan of a running workflow (POST /api/v1/workflows/{id}/replan)", "workflow-replan-running", running)
		m.proceed <- struct{}{} // of a
		testkit.Receive(t, m.began)
		m.end(t, committed("UPDATE workflows")) // of b
		eventually(t, func() bool { return get[workflow.View](t, m.caller, "/api/v1/workflows/"+running).Status == "complete" }, "the workflow ends")
	})
}

// costOfMCPTask measures a call over MCP that becomes a task.
func costOfMCPTask(t *testing.T) {
	t.Parallel()
	measureTools(t, func(t *testing.T, m *measuredTools) {
		perform := func(o *operation) {
			var made taskReply
			o.step(t, "call: create the task (tools/call)", func(id string) {
				made = m.caller.asking(withTasks, "X-Request-Id", id).call(t, "acts:act", map[string]any{})
				require.Equal(t, "task", made.ResultType)
				testkit.Receive(t, m.began)
			})
			o.step(t, "store the result", func(string) { m.end(t, committed("UPDATE workflows"), committed("INSERT tool_calls")) })
			o.step(t, "receive the result (tasks/get)", func(id string) {
				require.Equal(t, "completed", m.caller.asking(withTasks, "X-Request-Id", id).task(t, made.TaskID).Status)
			})
		}
		perform(m.operation("the first"))
		o := m.operation("tool call that becomes a task (POST /mcp, Tasks extension of MCP)")
		perform(o)
		o.compare(t, "mcp-task")
	})
}

// costOfToolTask measures a task with a budget that a tool executes.
func costOfToolTask(t *testing.T) {
	t.Parallel()
	measureTools(t, func(t *testing.T, m *measuredTools) {
		perform := func(o *operation) {
			o.post(t, "submit, assign and begin (POST /api/v1/tasks)", m.client, http.StatusAccepted, "/api/v1/tasks",
				map[string]any{"capabilities": []string{"custom:acts:act"}, "parameters": map[string]any{"depth": 3}, "budget": 500},
				func(*recorder) bool { return len(m.began) == 1 })
			testkit.Receive(t, m.began)
			o.step(t, "complete: charge the reservation, and release the rest", func(string) { m.end(t, committed("UPDATE tasks"), committed("INSERT tool_calls")) })
		}
		perform(m.operation("the first"))
		o := m.operation("submit, assign and complete a task: submitted over REST, executed by a tool of an upstream")
		perform(o)
		o.compare(t, "task-tool")
	})
}
