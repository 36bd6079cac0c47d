package app_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/app"
	"comet/internal/background"
	"comet/internal/config"
	"comet/internal/testkit/mcptest"
	"comet/internal/workflow"
	"comet/store"
	"comet/store/ledgercheck"
	"comet/store/replicas"
	"comet/store/storetest"
)

// boundaryEnv makes the test binary a server that kills itself at the boundary in its value.
const boundaryEnv = "COMET_TEST_BOUNDARY"

// boundary is a point of a process at which it kills itself: before or after the commit of a transaction.
type boundary struct {
	// Statement is a regular expression, "" for a process that does not kill itself. The Nth transaction with such a
	// statement counts, from 1.
	Statement string
	Nth       int
	// Committed is set for the point after the commit; nothing follows from the commit in this process.
	Committed bool
	// Ahead is how much the clock of the process is ahead.
	Ahead time.Duration
}

// at makes a process a server of this binary with a boundary.
func (b boundary) at(data string) setting {
	return func(cmd *exec.Cmd) {
		value, _ := json.Marshal(b) // it cannot fail
		cmd.Path, cmd.Args = os.Args[0], os.Args[:1]
		cmd.Env = append(cmd.Env, boundaryEnv+"="+string(value), "COMET_LISTEN=127.0.0.1:0", "COMET_DATA="+data)
	}
}

// serveToBoundaryIfAsked runs a server until it kills itself or is killed.
func serveToBoundaryIfAsked() bool {
	value := os.Getenv(boundaryEnv)
	if value == "" {
		return false
	}
	var b boundary
	err := json.Unmarshal([]byte(value), &b)
	cfg, loadErr := config.Load(config.Sources{Environ: os.Environ()})
	if err == nil && loadErr == nil {
		begun := time.Now()
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		err = app.Run(ctx, cfg, &app.Options{
			Out: os.Stdout, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)), Connector: storetest.Statements(b.watch()),
			Clock: background.SteadyClock(func() time.Time { return time.Now().Add(b.Ahead) }, func() time.Duration { return time.Since(begun) }),
		})
	}
	if err = errors.Join(err, loadErr); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return true
}

// watch returns a function that receives the statements of a process and kills it at the boundary.
func (b boundary) watch() func(storetest.Statement) {
	wanted := regexp.MustCompile(b.Statement)
	var mu sync.Mutex
	seen, found := 0, map[int64]bool{} // the transactions of connections that have the statement
	return func(s storetest.Statement) {
		mu.Lock()
		defer mu.Unlock()
		switch query := strings.TrimSpace(s.Query); {
		case b.Statement == "":
		case query == "COMMIT" || query == "ROLLBACK":
			if found[s.Connection] && seen == b.Nth && b.Committed && query == "COMMIT" {
				killSelf()
			}
			delete(found, s.Connection)
		case wanted.MatchString(query) && s.Err == nil && s.Rows > 0 && !found[s.Connection]:
			found[s.Connection] = true
			if seen++; seen == b.Nth && !b.Committed {
				killSelf()
			}
		}
	}
}

// killSelf ends the process at once; the goroutine does not go on.
func killSelf() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// The transactions of a workflow, by a statement that only they have.
const (
	startStatement   = `^INSERT INTO "?workflows"?\b`
	stepStatement    = `^UPDATE workflow_steps SET state`
	pauseStatement   = `^INSERT INTO "?checkpoints"?\b`
	decideStatement  = `^UPDATE checkpoints SET state`
	advanceStatement = `^UPDATE workflows SET state`
)

// boundaryDAG is a chain, so that the number of each transaction is known: the steps end one after the other, and "c" asks.
const boundaryDAG = `{"workflow":{"tasks":[
	{"id":"a","tool":"acts:echo","arguments":{"n":1}},
	{"id":"b","tool":"acts:act","arguments":{"n":"$a.result.n"}},
	{"id":"c","tool":"acts:act","arguments":{"after":"$b.result"},"approve":true},
	{"id":"d","tool":"acts:echo","arguments":{"said":"$c.result"}}]}}`

// TestWorkflowsSurviveAKillAtEachBoundary kills the server at each boundary of a workflow, and further servers at those of a
// take-over and of an expiry. The workflow ends, no destructive step is executed twice without a decision to retry, the tokens
// that were charged are those that were counted, and a checkpoint keeps its id.
func TestWorkflowsSurviveAKillAtEachBoundary(t *testing.T) {
	t.Parallel()
	type sudden = func(k *killed, step string, acted bool) // is called by the upstream before and after a destructive step acts
	upstream := func(acted bool) sudden {
		return func(k *killed, step string, after bool) {
			if step == "b" && after == acted {
				k.once.Do(func() { k.current.Load().kill() })
			}
		}
	}
	for _, c := range []struct {
		name       string
		boundaries []boundary // of the processes, one after the other
		upstream   sudden
		responded  bool // the process is killed after its last response
	}{
		{name: "before the start commit", boundaries: []boundary{{Statement: startStatement, Nth: 1}}},
		{name: "after the start commit", boundaries: []boundary{{Statement: startStatement, Nth: 1, Committed: true}}},
		{name: "before the dispatch", boundaries: []boundary{{Statement: stepStatement, Nth: 1, Committed: true}}},
		{name: "after the dispatch", upstream: upstream(false)},
		{name: "before the response is read", upstream: upstream(true)},
		{name: "after the response is read", boundaries: []boundary{{Statement: stepStatement, Nth: 2}}},
		{name: "before the end commit", boundaries: []boundary{{Statement: stepStatement, Nth: 4}}},
		{name: "after the end commit", boundaries: []boundary{{Statement: stepStatement, Nth: 4, Committed: true}}},
		{name: "before the pause commit", boundaries: []boundary{{Statement: pauseStatement, Nth: 1}}},
		{name: "after the pause commit", boundaries: []boundary{{Statement: pauseStatement, Nth: 1, Committed: true}}},
		{name: "before the decision commit", boundaries: []boundary{{Statement: decideStatement, Nth: 1}}},
		{name: "after the decision commit", boundaries: []boundary{{Statement: decideStatement, Nth: 1, Committed: true}}},
		{name: "before the take-over", upstream: upstream(true), boundaries: []boundary{{}, {Statement: advanceStatement, Nth: 1}}},
		{name: "after the take-over", upstream: upstream(true), boundaries: []boundary{{}, {Statement: advanceStatement, Nth: 1, Committed: true}}},
		{name: "before the MCP response", boundaries: []boundary{{Statement: stepStatement, Nth: 5, Committed: true}}},
		{name: "after the MCP response", responded: true},
		{name: "before the commit of the job", boundaries: []boundary{{Statement: pauseStatement, Nth: 1, Committed: true}, {Statement: decideStatement, Nth: 1, Ahead: 2 * time.Hour}}},
		{name: "after the commit of the job", boundaries: []boundary{{Statement: pauseStatement, Nth: 1, Committed: true}, {Statement: decideStatement, Nth: 1, Ahead: 2 * time.Hour, Committed: true}}},
	} {
		for _, database := range storetest.Databases() {
			t.Run(c.name+"/"+database, func(t *testing.T) {
				t.Parallel()
				if len(c.boundaries) == 0 {
					c.boundaries = []boundary{{}}
				}
				k := newKilled(t, database, c.upstream)
				var last boundary
				for _, last = range c.boundaries {
					k.serve(t, last)
					k.drive(t, c.responded)
				}
				k.serve(t, boundary{Ahead: last.Ahead})
				ended := k.finish(t)
				switch {
				case c.name == "before the start commit":
					require.Empty(t, ended)
				case last.Ahead > 0:
					require.Equal(t, []string{"aborted"}, ended)
					require.Equal(t, map[string]int{"b": 1}, k.acted)
				default:
					require.Equal(t, []string{"complete"}, ended)
				}
			})
		}
	}
}

// TestATaskOfAToolIsNotRepeatedAfterAKill kills the server while a task calls a tool that may have acted. The task fails, and
// the tool is not called again.
func TestATaskOfAToolIsNotRepeatedAfterAKill(t *testing.T) {
	t.Parallel()
	for _, database := range storetest.Databases() {
		t.Run(database, func(t *testing.T) {
			t.Parallel()
			k := newKilled(t, database, func(k *killed, _ string, acted bool) {
				if acted {
					k.current.Load().kill()
				}
			})
			k.serve(t, boundary{})
			request := map[string]any{"capabilities": []string{"custom:acts:act"}, "timeout_ms": 600_000, "request_id": "once"}
			var task struct {
				ID            string
				State, Error  string
				FailureDetail map[string]bool `json:"failure_detail"`
			}
			eventually(t, func() bool { // until the agent of the upstream is online
				_, _, _ = k.client.do(t.Context(), http.MethodPost, "/api/v1/tasks", request)
				return k.current.Load().hasExited()
			}, "the task calls the tool")
			k.serve(t, boundary{Ahead: 595 * time.Second}) // the attempt times out in a moment
			status, body, err := k.client.do(t.Context(), http.MethodPost, "/api/v1/tasks", request)
			require.NoError(t, err)
			require.Less(t, status, 300, "%s", body)
			require.NoError(t, json.Unmarshal(body, &task))
			eventually(t, func() bool {
				_, body, _ := k.client.do(t.Context(), http.MethodGet, "/api/v1/tasks/"+task.ID, nil)
				return json.Unmarshal(body, &task) == nil && (task.State == "failed" || task.State == "done")
			}, "the task ends")
			require.Equal(t, "failed", task.State)
			require.Contains(t, task.Error, "OUTCOME_UNKNOWN")
			require.Equal(t, map[string]bool{"may_have_acted": true}, task.FailureDetail)
			require.Equal(t, map[string]int{"": 1}, k.acted)
			k.current.Load().stop(t)
		})
	}
}

// killed is a server that is killed, and an upstream whose steps are counted.
type killed struct {
	cfg     config.Config
	servers string
	begun   bool // a workflow was requested
	ahead   bool // the clock of the server is ahead: no decision is made
	current atomic.Pointer[process]
	client  *client
	once    sync.Once // of the kill by the upstream

	mu        sync.Mutex
	acted     map[string]int  // how often a destructive step has acted
	retried   map[string]int  // how often the decision was to retry it
	approvals map[string]bool // the ids of the checkpoints for "c"
	decided   map[string]bool // the checkpoints with a decision
}

func newKilled(t *testing.T, database string, during func(*killed, string, bool)) *killed {
	t.Helper()
	k := &killed{cfg: configured(t, database), acted: map[string]int{}, retried: map[string]int{}, approvals: map[string]bool{}}
	k.servers = filepath.Join(t.TempDir(), "servers.json")
	mcptest.WriteServers(t, k.servers, mcptest.New(t, "acts").Echo().Tool(&mcp.Tool{Name: "act"}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		key, _ := r.Params.Meta["comet/idempotency-key"].(string)
		_, step, _ := strings.Cut(key, "/")
		if during != nil {
			during(k, step, false)
		}
		k.mu.Lock()
		k.acted[step]++
		k.mu.Unlock()
		if during != nil {
			during(k, step, true)
		}
		return mcptest.Texts("done"), nil
	}))
	return k
}

// serve starts a server with a boundary, after it has released what the killed one held.
func (k *killed) serve(t *testing.T, b boundary) {
	t.Helper()
	variables := []string{"COMET_MCP_SERVERS=" + k.servers, "COMET_TOOLS_WAIT_FOR_AUDIT=true"}
	if k.cfg.DatabaseURL != "" {
		variables = append(variables, "COMET_DATABASE_URL="+k.cfg.DatabaseURL)
		s, err := store.Open(t.Context(), store.Options{DatabaseURL: k.cfg.DatabaseURL, SkipMigrations: true})
		require.NoError(t, err)
		require.NoError(t, s.Write(t.Context(), func(tx *store.Tx) error { // as another replica does after three seconds
			_, err := replicas.Release(tx, replicas.All)
			return err
		}))
		require.NoError(t, s.Close())
	}
	k.decided, k.ahead = map[string]bool{}, b.Ahead > 0
	p := serve(t, k.cfg.Data, env(variables...), b.at(k.cfg.Data))
	k.current.Store(p)
	eventually(t, func() bool { return strings.Contains(p.out.String(), "comet listens on") || p.hasExited() }, "the server starts, or is killed by its boundary")
	if p.hasExited() {
		return
	}
	k.client = newClient(t, p.url(t), adminToken(t, k.cfg.Data))
	eventually(t, func() bool {
		status, _, _ := k.client.do(t.Context(), http.MethodPost, "/api/v1/tools/call", map[string]any{"tool": "acts:echo", "arguments": map[string]any{}})
		return status == http.StatusOK || p.hasExited()
	}, "the upstream is ready")
}

// drive executes the workflow until the server is killed. If responded is set, it kills the server after the last response.
func (k *killed) drive(t *testing.T, responded bool) {
	t.Helper()
	p := k.current.Load()
	var calls sync.WaitGroup
	call := func(tool string, arguments any) {
		calls.Go(func() {
			if body := k.callMCP(t, tool, arguments); responded && strings.Contains(body, `"status":"complete"`) {
				p.kill()
			}
		})
	}
	if !k.begun {
		k.begun = true
		call("agentcards__execute_dag", json.RawMessage(boundaryDAG))
	}
	eventually(t, func() bool {
		if !p.hasExited() {
			k.decide(t, call)
		}
		return p.hasExited()
	}, "the server is killed")
	calls.Wait()
}

// callMCP calls a tool over MCP and returns the response, "" for none.
func (k *killed) callMCP(t *testing.T, tool string, arguments any) string {
	t.Helper()
	text, _ := json.Marshal(arguments) // it cannot fail
	_, body, _ := k.client.do(t.Context(), http.MethodPost, "/mcp", json.RawMessage(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+`","arguments":`+string(text)+`,`+meta+`}}`),
		"Accept", "application/json, text/event-stream", "MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", tool)
	return string(body)
}

// decide decides about the checkpoints that the server shows. A server that is killed meanwhile shows none.
func (k *killed) decide(t *testing.T, call func(tool string, arguments any)) {
	t.Helper()
	all, _ := k.workflows(t)
	for _, w := range all {
		if w.Status != "paused" {
			continue
		}
		status, body, _ := k.client.do(t.Context(), http.MethodGet, "/api/v1/workflows/"+w.WorkflowID, nil)
		var v workflow.View
		if status != http.StatusOK || json.Unmarshal(body, &v) != nil || v.CheckpointID == "" || k.ahead {
			continue
		}
		k.mu.Lock()
		arguments := map[string]any{"workflow_id": v.WorkflowID, "checkpoint_id": v.CheckpointID, "approved": true, "digest": v.Context.Digest}
		switch step := v.Context.Steps[0].ID; {
		case v.Status == "approval_required":
			k.approvals[v.CheckpointID] = true
		case k.acted[step] > 0 && !k.decided[v.CheckpointID]:
			arguments["resolution"], arguments["results"] = "accept", map[string]any{step: "done"}
		case !k.decided[v.CheckpointID]:
			arguments["resolution"] = "retry"
			k.retried[step]++
		}
		first := !k.decided[v.CheckpointID]
		k.decided[v.CheckpointID] = true
		k.mu.Unlock()
		if first {
			call("agentcards__approval_response", arguments)
		}
	}
}

// workflows returns the workflows, and false if the server does not respond.
func (k *killed) workflows(t *testing.T) ([]workflow.Summary, bool) {
	t.Helper()
	var list struct{ Workflows []workflow.Summary }
	status, body, _ := k.client.do(t.Context(), http.MethodGet, "/api/v1/workflows", nil)
	read := status == http.StatusOK && json.Unmarshal(body, &list) == nil
	return list.Workflows, read
}

// finish decides until all workflows have ended, checks what they did and charged, and returns their states.
func (k *killed) finish(t *testing.T) (ended []string) {
	t.Helper()
	var calls sync.WaitGroup
	eventually(t, func() bool {
		k.decide(t, func(tool string, arguments any) { calls.Go(func() { k.callMCP(t, tool, arguments) }) })
		all, read := k.workflows(t)
		ended = nil
		for _, w := range all {
			ended = append(ended, w.Status)
		}
		return read && !slices.Contains(ended, "running") && !slices.Contains(ended, "paused")
	}, "the workflow ends")
	calls.Wait()
	require.Zero(t, get[ledgercheck.Verification](t, k.client, "/api/v1/ledger/verify").Total)
	for step, times := range k.acted {
		require.LessOrEqual(t, times, 1+k.retried[step], step)
	}
	require.LessOrEqual(t, len(k.approvals), 1, "the checkpoint keeps its id")
	k.current.Load().stop(t)
	return ended
}
