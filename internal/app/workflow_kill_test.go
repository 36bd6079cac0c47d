package app_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/testkit/mcptest"
	"comet/internal/workflow"
	"comet/store/ledgercheck"
)

// TestWorkflowsSurviveKill9 kills the server repeatedly while clients execute workflows. Every workflow ends, and a
// destructive step is executed once, or not at all if its result was lost; it is executed again only after the decision to
// retry it.
func TestWorkflowsSurviveKill9(t *testing.T) {
	t.Parallel()
	onEveryDatabase(t, func(t *testing.T, database setting) {
		acts := newActs(t)
		data := t.TempDir()
		for range kills(t) {
			p := serve(t, data, database, acts.setting)
			c := newClient(t, p.url(t), adminToken(t, data))
			eventually(t, func() bool { return acts.ready(t, c) }, "the upstream is ready")
			acts.requireEnds(t, c)
			stop := acts.flow(t, c)
			target := acts.total() + 1 + rand.IntN(60)
			eventually(t, func() bool { return acts.total() >= target }, "steps are executed")
			p.kill()
			stop()
		}
		p := serve(t, data, database, acts.setting)
		c := newClient(t, p.url(t), adminToken(t, data))
		eventually(t, func() bool { return acts.ready(t, c) }, "the upstream is ready")
		acts.requireEnds(t, c)
		t.Logf("%d steps have acted, %d were retried", len(acts.byStep), len(acts.retried))
		require.Zero(t, get[ledgercheck.Verification](t, c, "/api/v1/ledger/verify").Total)
		p.stop(t)
	})
}

// acts is an upstream that counts how often each step of a workflow has acted.
type acts struct {
	setting setting
	mu      sync.Mutex
	byStep  map[string]int // by the idempotency key: the id of the workflow, "/" and the id of the step
	retried map[string]int // the decisions to retry by the idempotency key
}

func newActs(t *testing.T) *acts {
	t.Helper()
	a := &acts{byStep: map[string]int{}, retried: map[string]int{}}
	s := mcptest.New(t, "acts").Echo().Tool(&mcp.Tool{Name: "act"}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		key, _ := r.Params.Meta["comet/idempotency-key"].(string)
		a.byStep[key]++
		return mcptest.Texts("done"), nil
	})
	file := filepath.Join(t.TempDir(), "servers.json")
	mcptest.WriteServers(t, file, s)
	a.setting = env("COMET_MCP_SERVERS=" + file)
	return a
}

func (a *acts) total() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, times := range a.byStep {
		n += times
	}
	return n
}

func (a *acts) ready(t *testing.T, c *client) bool {
	t.Helper()
	status, _, _ := c.do(t.Context(), http.MethodPost, "/api/v1/tools/call", map[string]any{"tool": "acts:echo", "arguments": map[string]any{}})
	return status == http.StatusOK
}

const actingDAG = `{"workflow":{"tasks":[
	{"id":"a","tool":"acts:echo","arguments":{"n":1}},
	{"id":"b","tool":"acts:act","arguments":{"n":"$a.result.n"}},
	{"id":"c","tool":"acts:act","depends_on":["b"]},
	{"id":"d","tool":"acts:echo","depends_on":["b"]},
	{"id":"e","tool":"acts:act","depends_on":["c","d"]}]}}`

// flow lets 8 clients execute workflows until the server is killed; stop waits for them.
func (a *acts) flow(t *testing.T, c *client) (stop func()) {
	t.Helper()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				status, body, err := c.do(t.Context(), http.MethodPost, "/api/v1/tools/call", map[string]any{"tool": "agentcards:execute_dag", "arguments": json.RawMessage(actingDAG)})
				if err != nil {
					return
				}
				if status != http.StatusOK && status != http.StatusServiceUnavailable {
					t.Errorf("status %d: %s", status, body)
					return
				}
			}
		})
	}
	return wg.Wait
}

// requireEnds decides about lost results until all workflows have ended, and compares how often the steps have acted.
func (a *acts) requireEnds(t *testing.T, c *client) {
	t.Helper()
	listed := func(status string) []workflow.Summary {
		return get[struct{ Workflows []workflow.Summary }](t, c, "/api/v1/workflows?limit=100&status="+status).Workflows
	}
	eventually(t, func() bool {
		running := listed("running") // before those that are paused, because one that runs may pause meanwhile
		paused := listed("paused")
		for _, w := range paused {
			a.decide(t, c, get[workflow.View](t, c, "/api/v1/workflows/"+w.WorkflowID))
		}
		return len(paused)+len(running) == 0
	}, "all workflows end")
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, times := range a.byStep {
		require.LessOrEqual(t, times, 1+a.retried[key], key)
	}
}

// decide decides about the lost results of a workflow, at random.
func (a *acts) decide(t *testing.T, c *client, v workflow.View) {
	t.Helper()
	require.Equal(t, "uncertain", v.Status)
	resolution := "skip"
	if rand.IntN(2) == 0 {
		resolution = "retry"
		for _, s := range v.Context.Steps {
			a.retried[v.WorkflowID+"/"+s.ID]++
		}
	}
	c.must(t, http.StatusOK, http.MethodPost, "/api/v1/workflows/"+v.WorkflowID+"/checkpoints/"+v.CheckpointID, map[string]any{"approved": true, "resolution": resolution})
}
