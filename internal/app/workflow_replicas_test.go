package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/testkit"
	"comet/internal/testkit/mcptest"
	"comet/internal/workflow"
	"comet/store"
	"comet/store/ledgercheck"
	"comet/store/storetest"
)

// gatedUpstream is an upstream whose tools wait: look reads and act acts.
type gatedUpstream struct {
	servers string
	proceed chan struct{}
	// cancelled is the number of calls that were cancelled.
	cancelled atomic.Int64

	mu    sync.Mutex
	acted map[string]int // calls by tool
}

func newGated(t *testing.T) *gatedUpstream {
	t.Helper()
	g := &gatedUpstream{proceed: make(chan struct{}), acted: map[string]int{}, servers: filepath.Join(t.TempDir(), "servers.json")}
	s := mcptest.New(t, "acts").Echo()
	for name, class := range map[string]*mcp.ToolAnnotations{"look": mcptest.Reads(), "act": nil} {
		s.Tool(&mcp.Tool{Name: name, Annotations: class}, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			g.mu.Lock()
			g.acted[name]++
			g.mu.Unlock()
			select {
			case <-g.proceed:
				return mcptest.Texts("done"), nil
			case <-ctx.Done():
				g.cancelled.Add(1)
				return nil, ctx.Err()
			}
		})
	}
	mcptest.WriteServers(t, g.servers, s)
	return g
}

func (g *gatedUpstream) calls(tool string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.acted[tool]
}

// serveThree starts three servers on one PostgreSQL, and waits until they can call the upstream.
func (g *gatedUpstream) serveThree(t *testing.T, url string) (all []*process, clients []*client) {
	t.Helper()
	const admin = "0123456789abcdef0123456789abcdef"
	database := env("COMET_DATABASE_URL="+url, "COMET_MCP_SERVERS="+g.servers, "COMET_ADMIN_TOKEN="+admin, secretKeys(t))
	for range 3 {
		p := serve(t, t.TempDir(), database)
		c := newClient(t, p.url(t), admin)
		eventually(t, func() bool {
			status, _, _ := c.do(t.Context(), http.MethodPost, "/api/v1/tools/call", map[string]any{"tool": "acts:echo", "arguments": map[string]any{}})
			return status == http.StatusOK
		}, "the upstream is ready")
		all, clients = append(all, p), append(clients, c)
	}
	return all, clients
}

// TestAHolderThatWasStoppedIsFenced stops the process that holds a workflow until others take it for dead, and continues it:
// its results come too late to count, and nothing is executed twice without a decision.
func TestAHolderThatWasStoppedIsFenced(t *testing.T) {
	t.Parallel()
	for _, name := range storetest.Databases() {
		if name == "postgres" {
			testStoppedHolder(t)
		}
	}
}

func testStoppedHolder(t *testing.T) {
	t.Helper()
	g := newGated(t)
	database := storetest.EmptyPostgres(t)
	all, clients := g.serveThree(t, database)
	first := make(chan workflow.View, 1)
	go func() { // the client of the holder waits all the time
		var v workflow.View
		_, body, _ := clients[0].do(t.Context(), http.MethodPost, "/api/v1/tools/call", map[string]any{"tool": "agentcards:execute_dag", "arguments": json.RawMessage(
			`{"workflow":{"tasks":[{"id":"a","tool":"acts:look"},{"id":"b","tool":"acts:act"},{"id":"c","tool":"acts:echo","arguments":{"a":"$a.result","b":"$b.result"}}]}}`)})
		var res struct {
			View workflow.View `json:"structured_content"`
		}
		_ = json.Unmarshal(body, &res)
		v = res.View
		first <- v
	}()
	eventually(t, func() bool { return g.calls("look") == 1 && g.calls("act") == 1 }, "both steps run")
	require.NoError(t, all[0].cmd.Process.Signal(syscall.SIGSTOP))
	var paused workflow.View
	eventually(t, func() bool {
		for _, w := range get[struct{ Workflows []workflow.Summary }](t, clients[1], "/api/v1/workflows?status=paused").Workflows {
			paused = get[workflow.View](t, clients[2], "/api/v1/workflows/"+w.WorkflowID)
		}
		return paused.Status == "uncertain"
	}, "the workflow asks about the lost result")
	close(g.proceed) // the results arrive at the process that is stopped
	require.NoError(t, all[0].cmd.Process.Signal(syscall.SIGCONT))
	var late workflow.View
	eventually(t, func() bool {
		select {
		case late = <-first:
			return true
		default:
			return false
		}
	}, "the holder responds")
	require.Equal(t, paused.WorkflowID, late.WorkflowID)
	require.Equal(t, paused.CheckpointID, late.CheckpointID, "the holder that was stopped has changed nothing")
	for _, c := range clients {
		require.Equal(t, paused, get[workflow.View](t, c, "/api/v1/workflows/"+paused.WorkflowID))
	}

	clients[0].must(t, http.StatusOK, http.MethodPost, "/api/v1/workflows/"+paused.WorkflowID+"/checkpoints/"+paused.CheckpointID,
		map[string]any{"approved": true, "resolution": "accept", "results": map[string]any{"b": "done"}})
	eventually(t, func() bool {
		return get[workflow.View](t, clients[1], "/api/v1/workflows/"+paused.WorkflowID).Status == "complete"
	}, "the workflow ends")
	require.Equal(t, 2, g.calls("look"), "a step that only reads is repeated")
	require.Equal(t, 1, g.calls("act"))
	requireEndsOnce(t, database, paused.WorkflowID)
	require.Zero(t, get[ledgercheck.Verification](t, clients[2], "/api/v1/ledger/verify").Total)
	for _, p := range all {
		p.stop(t)
	}
}

// TestAnAbortReachesTheHolder aborts a workflow at a replica that does not hold it: the calls of the holder are cancelled.
func TestAnAbortReachesTheHolder(t *testing.T) {
	t.Parallel()
	for _, name := range storetest.Databases() {
		if name == "postgres" {
			testAbortElsewhere(t)
		}
	}
}

func testAbortElsewhere(t *testing.T) {
	t.Helper()
	g := newGated(t)
	all, clients := g.serveThree(t, storetest.EmptyPostgres(t))
	started := into[workflow.View](t, clients[0], http.StatusAccepted, http.MethodPost, "/api/v1/workflows", json.RawMessage(
		`{"workflow":{"tasks":[{"id":"a","tool":"acts:look","timeout_ms":86400000},{"id":"b","tool":"acts:act","timeout_ms":86400000}]}}`))
	eventually(t, func() bool { return g.calls("look") == 1 && g.calls("act") == 1 }, "both steps run")
	waiting := doAsync(t.Context(), clients[2], http.MethodGet, "/api/v1/workflows/"+started.WorkflowID+"?wait=60", nil)
	aborted := into[workflow.View](t, clients[1], http.StatusOK, http.MethodPost, "/api/v1/workflows/"+started.WorkflowID+"/abort", map[string]any{"reason": "wrong folder"})
	require.Equal(t, "aborted", aborted.Status)
	var waited workflow.View
	require.NoError(t, json.Unmarshal(testkit.Receive(t, waiting).body, &waited))
	require.Equal(t, aborted, waited, "a third replica waits for the end")
	eventually(t, func() bool { return g.cancelled.Load() == 2 }, "the calls are cancelled")
	require.Equal(t, aborted, get[workflow.View](t, clients[0], "/api/v1/workflows/"+started.WorkflowID))
	for _, p := range all {
		p.stop(t)
	}
}

// requireEndsOnce checks that each attempt of a step has ended at most once.
func requireEndsOnce(t *testing.T, database, id string) {
	t.Helper()
	s, err := store.Open(t.Context(), store.Options{DatabaseURL: database, SkipMigrations: true})
	require.NoError(t, err)
	all, err := store.Rows[json.RawMessage](s.Reads(t.Context()), "SELECT data FROM events WHERE key = ? AND type = ? ORDER BY seq", id, workflow.EventStepEnded)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	seen := map[string]bool{}
	for _, data := range all {
		var e workflow.EventData
		require.NoError(t, json.Unmarshal(data, &e))
		key := fmt.Sprintf("%s %d %s", e.Step, e.Attempt, e.StepStatus)
		require.False(t, seen[key], key)
		seen[key] = true
	}
	require.Equal(t, map[string]bool{"b 1 uncertain": true, "b 1 success": true, "a 2 success": true, "c 1 success": true}, seen)
}
