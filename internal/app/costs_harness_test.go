package app_test

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"comet/internal/app"
	"comet/internal/config"
	"comet/store/storetest"
)

var updateCosts = flag.Bool("update", false, "rewrite the cost transcripts and their table in docs/performance.md")

// measured is a server whose statements are recorded. Its clock stands still, so nothing expires
// and no interval ends.
type measured struct {
	*client
	app      *app.App
	clock    *storetest.Clock
	recorder *recorder
	database string
}

// measure runs a test with a separate server on every database, after the work of the start is
// done.
func measure(t *testing.T, change func(*config.Config), fn func(t *testing.T, m *measured)) {
	t.Helper()
	for _, name := range storetest.Databases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const never = 1000 * time.Hour
			cfg := configured(t, name)
			cfg.Events.PollInterval, cfg.Transport.Heartbeat, cfg.Transport.RedeliverAfter = never, never, never
			cfg.Webhooks.AllowNetworks = []string{"127.0.0.1"}
			cfg.Transport.V5Listen, cfg.Transport.V5SelfRegistration, cfg.Sandbox.Warm = "127.0.0.1:0", true, 0
			if change != nil {
				change(&cfg)
			}
			m := &measured{clock: storetest.NewClock(), recorder: newRecorder(), database: name}
			m.recorder.begin("")
			a, err := app.New(t.Context(), cfg, &app.Options{Clock: m.clock.Now, Connector: storetest.Statements(m.recorder.record)})
			require.NoError(t, err)
			require.NoError(t, a.Start(t.Context()))
			t.Cleanup(func() { require.NoError(t, a.Stop(context.Background())) })
			m.app, m.client = a, newClient(t, a.URL(), adminToken(t, cfg.Data))
			eventually(t, func() bool { return m.status(t, "/readyz") == http.StatusOK }, "the server is ready")
			m.awaitStart(t, cfg)
			fn(t, m)
		})
	}
}

// awaitStart waits until every recurring job has run once and all writes of the start are
// committed.
func (m *measured) awaitStart(t *testing.T, cfg config.Config) {
	t.Helper()
	db := opened(t, cfg)
	due := fmt.Sprintf("SELECT kind FROM jobs WHERE run_at <= %d OR lease <> ''", m.clock.Now().UnixMicro())
	eventually(t, func() bool { return len(scanned(t, db, due)) == 0 }, "the recurring jobs have run")
	m.await(t, committed("DELETE tool_vectors")) // the last cleanup of tool search
	m.settle(t)
}

// condition reports whether an awaited commit has happened.
type condition func(*recorder) bool

// committed requires a transaction with a statement of a shape.
func committed(shape string) condition {
	return func(r *recorder) bool { n, _ := r.committed(shape); return n > 0 }
}

// written requires a number of rows written by statements of a shape.
func written(shape string, rows int64) condition {
	return func(r *recorder) bool { _, n := r.committed(shape); return n >= rows }
}

func (m *measured) await(t *testing.T, until ...condition) {
	t.Helper()
	for i, holds := range until {
		m.eventually(t, func() bool { return holds(m.recorder) }, fmt.Sprintf("condition %d", i+1))
	}
}

// eventually waits for a condition and prints the recorded statements if it is not met.
func (m *measured) eventually(t *testing.T, holds func() bool, what string) {
	t.Helper()
	if !assert.Eventually(t, holds, long, 2*time.Millisecond, what) {
		o := operation{m: m, steps: []step{{"recorded until then", m.recorder.recorded(), ""}}}
		t.Fatal(o.transcript())
	}
}

// settle waits until no transaction is open and every event has its position.
func (m *measured) settle(t *testing.T) {
	t.Helper()
	m.eventually(t, func() bool { return m.recorder.settled(m.database != "sqlite") }, "everything is committed")
}

// agent registers an agent with a budget.
func (m *measured) agent(t *testing.T, id string) {
	t.Helper()
	m.must(t, http.StatusCreated, http.MethodPost, "/api/v1/agents", measuredAgent(id))
}

func measuredAgent(id string) map[string]any {
	return map[string]any{
		"id": id, "name": id, "level": 2, "parent_id": "orch-my-team", "sphere_id": 8, "frequency_hz": 555,
		"capabilities": []string{"custom:dig"}, "type": "infra", "token_budget": 100_000,
	}
}

// worker registers an agent and returns a client with its token.
func (m *measured) worker(t *testing.T, id string) *client {
	t.Helper()
	m.agent(t, id)
	made := into[struct{ Token string }](t, m.client, http.StatusCreated, http.MethodPost, "/api/v1/tokens",
		map[string]any{"name": id, "scopes": []string{"agents:write", "tools:call"}, "agent_id": id})
	return newClient(t, m.URL, made.Token)
}

// operation is one transcript: the cost of each step of an operation.
type operation struct {
	m     *measured
	title string
	steps []step
}

// step is the cost of a part of an operation.
type step struct {
	name    string
	entries []entry
	request string
}

func (m *measured) operation(title string) *operation { return &operation{m: m, title: title} }

// step records the cost of act and of everything that follows from it. act gets the id to send as
// X-Request-Id; until are further conditions.
func (o *operation) step(t *testing.T, name string, act func(id string), until ...condition) {
	t.Helper()
	id := fmt.Sprintf("step-%d", len(o.steps)+1)
	o.m.settle(t)
	o.m.recorder.begin(id)
	act(id)
	o.m.await(t, until...)
	o.m.settle(t)
	o.steps = append(o.steps, step{name, o.m.recorder.recorded(), id})
}

// post is a step with one request.
func (o *operation) post(t *testing.T, name string, by *client, status int, path string, body any, until ...condition) (answer []byte) {
	t.Helper()
	o.step(t, name, func(id string) { answer = by.must(t, status, http.MethodPost, path, body, "X-Request-Id", id) }, until...)
	return answer
}

// receiver is a server that responds to every webhook with 200.
func receiver(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	return server.URL
}
