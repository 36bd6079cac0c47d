package app_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/app"
	"comet/store/storetest"
)

// v5WorkerKinds are the kinds of workers that speak PROTOCOL_V5, on a WebSocket or over TCP. The other
// kind is the package agent.
func v5WorkerKinds() []string { return []string{"websocket", "tcp"} }

// TestDialectsTogether: whoever asks, in whichever dialect, is served by whoever can do
// it, in whichever that speaks. Each behaviour is one case for every pair of them. The
// cases run at once, because most of what some take is a retry's pause.
func TestDialectsTogether(t *testing.T) {
	t.Parallel()
	every := append([]string{"envelope"}, v5WorkerKinds()...)
	behaviours := []struct {
		rule    string
		workers []string
		behaves func(*testing.T, *protocolFixture, requester, *protocolWorker)
	}{
		{"work that is done", every, succeeds},
		{"its progress", every, reportsProgress},
		{"work that fails", every, fails},
		{"work that is silent", every, timesOut},
		{"work that is done at the second attempt", every, isRetried},
		{"a cancellation", every, isCancelled},
		{"a budget nobody has", every, exceedsBudget},
		{"a budget its worker finds too small", every, rejectsBudget},
		{"a question of its worker", v5WorkerKinds(), asksQuestion}, // the envelope protocol has no words for one
		{"text that a line cannot hold", every, returnsUnsafeText},
		{"a megabyte", every, returnsLargeText},
	}
	runProtocolFixture(t, func(t *testing.T, h *protocolFixture) {
		var running sync.WaitGroup
		defer running.Wait()
		for _, who := range h.requesters() {
			for _, b := range behaviours {
				for _, kind := range b.workers {
					running.Go(func() {
						t.Run(who.name()+" to "+kind+"/"+b.rule, func(t *testing.T) { b.behaves(t, h, who, h.newWorker(t, kind)) })
					})
				}
			}
			running.Go(func() {
				t.Run(who.name()+"/work that nobody offers", func(t *testing.T) {
					got := who.submit(t, testRequest{capability: "fly", action: "ok"})
					require.Equal(t, "unsupported", got.state, "%+v", got)
				})
			})
		}
	})
}

// The behaviours.
func succeeds(t *testing.T, h *protocolFixture, who requester, w *protocolWorker) {
	got := who.submit(t, testRequest{capability: w.id, action: "ok", budget: 100})
	require.Equal(t, "done", got.state, "%+v", got)
	require.Equal(t, "n is 5", got.text)
	require.EqualValues(t, 30, h.detail(t, got.task).Tokens, "its agent has used so many")
}

func reportsProgress(t *testing.T, h *protocolFixture, who requester, w *protocolWorker) {
	got := who.submit(t, testRequest{capability: w.id, action: "progress"})
	require.Equal(t, "done", got.state, "%+v", got)
	require.Equal(t, "half of it", h.detail(t, got.task).StepName)
}

func fails(t *testing.T, h *protocolFixture, who requester, w *protocolWorker) {
	got := who.submit(t, testRequest{capability: w.id, action: "fail"})
	require.Equal(t, "failed", got.state, "%+v", got)
	require.Equal(t, "failed", h.detail(t, got.task).State)
}

// timesOut: each dialect has its own number of attempts.
func timesOut(t *testing.T, h *protocolFixture, who requester, w *protocolWorker) {
	got := who.submit(t, testRequest{capability: w.id, action: "silent", silent: true})
	require.Equal(t, "timeout", got.state, "%+v", got)
	d := h.detail(t, got.task)
	require.Equal(t, "timeout", *d.Failure)
	require.Equal(t, map[string][]string{
		"REST": {"timed_out", "timed_out"}, "envelope": {"timed_out", "timed_out", "timed_out", "timed_out"}, "pipe": {"timed_out", "timed_out", "timed_out"},
	}[who.name()], d.attempts())
}

func isRetried(t *testing.T, h *protocolFixture, who requester, w *protocolWorker) {
	got := who.submit(t, testRequest{capability: w.id, action: "retry", budget: 100})
	require.Equal(t, "done", got.state, "%+v", got)
	require.Equal(t, "n is 5", got.text)
	d := h.detail(t, got.task)
	require.Equal(t, []string{"failed", "succeeded"}, d.attempts())
	require.EqualValues(t, 30, d.Tokens)
	if told := w.receivedRequests(); w.speaksV5() { // the others are not told of the attempts before
		require.Len(t, told, 2)
		_, first := told[0].Data.Get("retry")
		require.False(t, first)
		second, _ := told[1].Data.Get("retry")
		require.Equal(t, "1", second)
	}
}

func isCancelled(t *testing.T, h *protocolFixture, who requester, w *protocolWorker) {
	got := who.submit(t, testRequest{capability: w.id, action: "hang", cancel: w.started})
	require.Equal(t, "cancelled", h.detail(t, got.task).State)
	require.Equal(t, w.id, <-w.stopped, "the worker is told")
}

func exceedsBudget(t *testing.T, _ *protocolFixture, who requester, w *protocolWorker) {
	require.Equal(t, "too dear", who.submit(t, testRequest{capability: w.id, action: "ok", budget: 9000}).state)
	require.Empty(t, w.receivedRequests(), "the ledger has said no")
}

// rejectsBudget: E17 is of the budget. An envelope has only 5005, one of the worker's own
// limits, whose name the other dialects do not have.
func rejectsBudget(t *testing.T, h *protocolFixture, who requester, w *protocolWorker) {
	got := who.submit(t, testRequest{capability: w.id, action: "too much", budget: 20})
	d := h.detail(t, got.task)
	if w.speaksV5() {
		require.Equal(t, []string{"budget_exceeded", "too dear"}, []string{*d.Failure, got.state}, "%+v", got)
		require.Equal(t, []string{"failed"}, d.attempts(), "it would be too dear again")
		if who.name() == "pipe" {
			require.Equal(t, "desc=budget insufficient;needed=150;have=20", got.text)
		}
		return
	}
	require.Equal(t, "resource_limit", *d.Failure)
	want := "limited"
	if who.name() == "envelope" && w.kind == "envelope" {
		want = "too dear"
	}
	require.Equal(t, want, got.state, "%+v", got)
}

func asksQuestion(t *testing.T, h *protocolFixture, who requester, w *protocolWorker) {
	got := who.submit(t, testRequest{capability: w.id, action: "ask", reply: "txt"})
	require.Equal(t, "done", got.state, "%+v", got)
	require.Equal(t, "in txt", got.text)
	require.Equal(t, []string{"succeeded"}, h.detail(t, got.task).attempts(), "it is the same attempt")
}

// unsafeText is what no line of the pipe protocol can hold.
const unsafeText = "a | b > c \"d\"\n"

func returnsUnsafeText(t *testing.T, _ *protocolFixture, who requester, w *protocolWorker) {
	got := who.submit(t, testRequest{capability: w.id, action: "long"})
	require.Equal(t, "done", got.state, "%+v", got)
	require.Equal(t, strings.Repeat(unsafeText, 300), got.text)
}

// largeText is longer than what an envelope has room for. Its characters are of four bytes,
// because a line counts characters.
func largeText() string {
	length := 1 << 20
	if len(buildFlags()) > 0 { // each page takes long
		length = 300 << 10
	}
	var b strings.Builder
	for n := 0; b.Len() <= length; n++ {
		for _, digit := range strconv.Itoa(n) {
			b.WriteRune('𝟎' + digit - '0')
		}
		b.WriteRune('𝟶')
	}
	return b.String()
}

func returnsLargeText(t *testing.T, _ *protocolFixture, who requester, w *protocolWorker) {
	got := who.submit(t, testRequest{capability: w.id, action: "large", complete: true})
	require.Equal(t, "done", got.state, "%+v", got)
	require.Zero(t, strings.Compare(got.text, largeText()), "%d of %d bytes", len(got.text), len(largeText()))
}

// testRequest is what is asked for.
type testRequest struct {
	capability, action string
	budget             int64
	// cancel takes it back once it receives.
	cancel <-chan string
	// silent allows the shortest silence there is.
	silent bool
	// reply answers what is asked back.
	reply string
	// complete fetches a result that has no room in one message.
	complete bool
}

// outcome is what came of it, in words that are of no dialect.
type outcome struct{ state, text, task string }

// requester asks in one dialect.
type requester interface {
	name() string
	submit(t *testing.T, q testRequest) outcome
}

// protocolFixture is a house in which all dialects are spoken.
type protocolFixture struct {
	*client
	v5Addr string       // where TCP is taken
	agents atomic.Int64 // agents
}

type protocolTask struct {
	State, ID string
	Failure   *string
	Error     string
	StepName  string `json:"step_name"`
	Tokens    int64
	Attempts  []struct{ State string }
	Question  *struct {
		Text    string
		Options []string
	}
}

func (d protocolTask) attempts() (states []string) {
	for _, a := range d.Attempts {
		states = append(states, a.State)
	}
	return states
}

func (h *protocolFixture) detail(t *testing.T, task string) protocolTask {
	t.Helper()
	return get[protocolTask](t, h.client, "/api/v1/tasks/"+task)
}

func (h *protocolFixture) requesters() []requester {
	return []requester{restRequester{h}, envelopeRequester{h}, v5Requester{h}}
}

// runProtocolFixture runs a test in such a house on every database.
func runProtocolFixture(t *testing.T, fn func(t *testing.T, h *protocolFixture)) {
	t.Helper()
	for _, name := range storetest.Databases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := configured(t, name)
			cfg.Transport.V5Listen, cfg.Log.Level = "127.0.0.1:0", "warn"
			a, err := app.New(t.Context(), cfg, nil)
			require.NoError(t, err)
			require.NoError(t, a.Start(t.Context()))
			t.Cleanup(func() { require.NoError(t, a.Stop(context.Background())) })
			fn(t, &protocolFixture{client: newClient(t, a.URL(), adminToken(t, cfg.Data)), v5Addr: a.V5Addr()})
		})
	}
}

// registerAgent registers an agent of small means and returns its id and its token, which has a
// scope.
func (h *protocolFixture) registerAgent(t *testing.T, name, scope string) (id, token string) {
	t.Helper()
	id = fmt.Sprintf("%s-%d", name, h.agents.Add(1))
	h.create(t, "/api/v1/agents", map[string]any{
		"id": id, "name": id, "level": 2, "parent_id": "orch-my-team", "sphere_id": 8, "frequency_hz": 555,
		"capabilities": []string{"custom:" + id}, "type": "infra", "token_budget": 5000,
	})
	return id, h.create(t, "/api/v1/tokens", map[string]any{"name": id, "scopes": []string{scope}, "agent_id": id}).Token
}

// create posts what makes something.
func (h *protocolFixture) create(t *testing.T, path string, body any) (made struct{ Token string }) {
	t.Helper()
	status, raw, err := h.do(t.Context(), http.MethodPost, path, body)
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, status, "%s", raw)
	decode(t, raw, &made)
	return made
}
