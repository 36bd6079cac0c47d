package workflow_test

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"testing"

	"comet/store/workflows"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"comet/internal/sandbox"
	"comet/internal/testkit/mcptest"
	"comet/internal/testkit/toolstest"
	"comet/internal/tools"
	"comet/internal/workflow"
	"comet/models"
	"comet/store"
	"comet/store/replicas"
	"comet/store/storetest"
)

// TestMain also acts as a process of the sandbox.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == sandbox.ChildArgument {
		sandbox.Child(os.Stdin, os.Stdout)
		return
	}
	goleak.VerifyTestMain(m)
}

// fixture has tools on a database, and a client that executes workflows over the tools.
type fixture struct {
	*toolstest.Client
	tools *toolstest.Tools
	paper *mcptest.Server
	db    *storetest.DB
}

// testOnDatabases runs a subtest with an upstream that has tools of each class, on a fresh database of every kind.
func testOnDatabases(t *testing.T, name string, opts workflow.Options, fn func(t *testing.T, f *fixture)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, db *storetest.DB) {
			paper := mcptest.NewPaper(t, "paper").Fails("no ink").Tool(&mcp.Tool{Name: "list", Annotations: mcptest.Reads()},
				func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					return &mcp.CallToolResult{StructuredContent: json.RawMessage(`{"items":[{"n":7},{"n":12345678901234567890}],"text":"a b"}`), Content: []mcp.Content{}}, nil
				})
			paper.Held()
			s := toolstest.Start(t, db, &toolstest.Options{Workflows: opts, Tools: tools.Options{WaitForAudit: true}}, paper)
			toolstest.Eventually(t, func() bool { return slices.Contains(s.Work.CapabilitiesOf(""), "paper:echo") }, "the tools are capabilities")
			fn(t, &fixture{s.Client(t, "", models.ScopeToolsCall, models.ScopeMessagesSend), s, paper, db})
		})
	})
}

// view is a view as a client decodes it.
type view = map[string]any

// call calls a tool of AgentCards and returns its structured content.
func (f *fixture) call(t *testing.T, name string, args any) (v view) {
	t.Helper()
	res := f.Call(t, "agentcards:"+name, args)
	require.JSONEq(t, mcptest.TextOf(t, res), string(res.StructuredContent.(json.RawMessage)))
	require.NoError(t, json.Unmarshal(res.StructuredContent.(json.RawMessage), &v))
	return v
}

// dag executes a workflow with tasks and further members of the arguments.
func (f *fixture) dag(t *testing.T, tasks string, more ...any) view {
	t.Helper()
	args := map[string]any{"workflow": json.RawMessage(`{"tasks":` + tasks + `}`)}
	for i := 0; i < len(more); i += 2 {
		args[more[i].(string)] = more[i+1]
	}
	return f.call(t, "execute_dag", args)
}

// start executes a workflow in the background, and returns its view when it is paused or has ended.
func (f *fixture) start(t *testing.T, tasks string) <-chan view {
	t.Helper()
	out := make(chan view, 1)
	go func() {
		defer close(out)
		res, err := f.TryCall(t, "agentcards:execute_dag", map[string]any{"workflow": json.RawMessage(`{"tasks":` + tasks + `}`)})
		if err != nil {
			t.Error(err)
			return
		}
		var v view
		_ = json.Unmarshal(res.StructuredContent.(json.RawMessage), &v)
		out <- v
	}()
	return out
}

// decide decides on the checkpoint of a view.
func (f *fixture) decide(t *testing.T, v view, approved bool, more ...any) view {
	t.Helper()
	return f.call(t, "approval_response", decision(v, approved, more...))
}

func decision(v view, approved bool, more ...any) map[string]any {
	args := map[string]any{"workflow_id": v["workflow_id"], "checkpoint_id": v["checkpoint_id"], "approved": approved}
	for i := 0; i < len(more); i += 2 {
		args[more[i].(string)] = more[i+1]
	}
	return args
}

// requireStates requires the states of all steps, in order.
func requireStates(t *testing.T, v view, want ...string) {
	t.Helper()
	list, _ := v["task_results"].([]any)
	if list == nil {
		list, _ = v["layer_results"].([]any)
	}
	var got []string
	for _, r := range list {
		got = append(got, r.(map[string]any)["status"].(string))
	}
	require.Equal(t, want, got, "%v", v)
}

// release does what another replica does when this process does not respond.
func (f *fixture) release(t *testing.T) {
	t.Helper()
	require.NoError(t, f.db.Write(t.Context(), func(tx *store.Tx) error {
		_, err := replicas.Release(tx, f.db.Process())
		return err
	}))
}

// calls returns how many times the audit log has a tool.
func (f *fixture) count(t *testing.T, tool string) (n int) {
	t.Helper()
	for _, c := range f.Calls(t, tools.ToolCallQuery{}) {
		if c.Tool == tool {
			n++
		}
	}
	return n
}

// callsOf selects the tool calls of a workflow.
func callsOf(v view) tools.ToolCallQuery {
	return tools.ToolCallQuery{ParentID: v["workflow_id"].(string)}
}

// gate adds a tool whose calls wait: each call is signalled in began, and ends when proceed is closed.
func (f *fixture) gate(t *testing.T, name string, class *mcp.ToolAnnotations) (began chan struct{}, proceed chan struct{}) {
	t.Helper()
	began, proceed = make(chan struct{}, 10), make(chan struct{})
	f.paper.Tool(&mcp.Tool{Name: name, Annotations: class}, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		began <- struct{}{}
		select {
		case <-proceed:
			return mcptest.Texts("done"), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	f.offers(t, name)
	return began, proceed
}

// offers waits until a tool of the upstream can be called, and is a capability of its agent.
func (f *fixture) offers(t *testing.T, name string) {
	t.Helper()
	toolstest.Eventually(t, func() bool {
		return slices.Contains(f.Tools(t, "paper"), "paper:"+name) && slices.Contains(f.tools.Work.CapabilitiesOf(""), "paper:"+name)
	}, name+" is a tool and a capability")
}

// paused and running return the id of a workflow in that state, "" for none.
func (f *fixture) paused(t *testing.T) string  { return f.inState(t, workflows.Paused) }
func (f *fixture) running(t *testing.T) string { return f.inState(t, workflows.Running) }

func (f *fixture) inState(t *testing.T, state int) string {
	t.Helper()
	ids, err := store.Rows[string](f.db.Reads(t.Context()), "SELECT id FROM workflows WHERE state = ?", state)
	require.NoError(t, err)
	if len(ids) == 0 {
		return ""
	}
	return ids[0]
}
