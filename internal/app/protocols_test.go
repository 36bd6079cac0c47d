package app_test

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/app"
	"comet/internal/testkit"
	"comet/store/storetest"
)

// v5WorkerKinds returns the kinds of workers that speak PROTOCOL_V5. The other kind uses the
// package agent.
func v5WorkerKinds() []string { return []string{"websocket", "tcp"} }

// TestProtocolsInterwork: a request in any protocol is served by a worker that speaks any protocol.
// Each pair of them is a cell of the table in docs/interop.md. Further behaviours are tested for the
// pairs of REST, envelopes and PROTOCOL_V5. The cases run in parallel, because most of their time is
// spent in pauses before retries.
func TestProtocolsInterwork(t *testing.T) {
	testkit.SkipIfShort(t, "it runs every behaviour with every pair of protocols")
	t.Parallel()
	every := append([]string{"envelope"}, v5WorkerKinds()...)
	behaviours := []struct {
		name    string
		workers []string
		test    func(*testing.T, *protocolFixture, requester, *protocolWorker)
	}{
		{"its progress", every, reportsProgress},
		{"a task that times out", every, timesOut},
		{"a task that succeeds at the second attempt", every, isRetried},
		{"a budget that the worker rejects", every, rejectsBudget},
		{"text that a line cannot contain", every, returnsUnsafeText},
		{"a megabyte", every, returnsLargeText},
	}
	runProtocolFixture(t, func(t *testing.T, f *protocolFixture) {
		var running sync.WaitGroup
		defer running.Wait()
		for _, req := range f.requesters()[:3] {
			for _, b := range behaviours {
				for _, kind := range b.workers {
					running.Go(func() {
						t.Run(req.name()+" to "+kind+"/"+b.name, func(t *testing.T) { b.test(t, f, req, f.newWorker(t, kind)) })
					})
				}
			}
		}
		running.Wait() // before the cells, which would take the time that the pauses measure
		slots := make(chan struct{}, maxCells)
		for _, req := range f.requesters() {
			for _, kind := range interopWorkers() {
				running.Go(func() {
					slots <- struct{}{}
					defer func() { <-slots }()
					t.Run(req.name()+" to "+kind, func(t *testing.T) { runCell(t, f, req, kind) })
				})
			}
			running.Go(func() {
				t.Run(req.name()+"/a capability that no agent offers", func(t *testing.T) {
					got := req.submit(t, testRequest{capability: "fly", action: "ok"})
					require.Equal(t, "unsupported", got.state, "%+v", got)
				})
			})
		}
	})
}

// The behaviours.
func reportsProgress(t *testing.T, f *protocolFixture, req requester, w *protocolWorker) {
	got := req.submit(t, testRequest{capability: w.id, action: "progress"})
	require.Equal(t, "done", got.state, "%+v", got)
	require.Equal(t, "half of it", f.detail(t, got.task).StepName)
}

// timesOut: each protocol has its own number of attempts.
func timesOut(t *testing.T, f *protocolFixture, req requester, w *protocolWorker) {
	got := req.submit(t, testRequest{capability: w.id, action: "silent", silent: true})
	require.Equal(t, "timeout", got.state, "%+v", got)
	d := f.detail(t, got.task)
	require.Equal(t, "timeout", *d.Failure)
	require.Equal(t, map[string][]string{
		"REST": {"timed_out", "timed_out"}, "envelope": {"timed_out", "timed_out", "timed_out", "timed_out"}, "v5": {"timed_out", "timed_out", "timed_out"},
	}[req.name()], d.attempts())
}

func isRetried(t *testing.T, f *protocolFixture, req requester, w *protocolWorker) {
	got := req.submit(t, testRequest{capability: w.id, action: "retry", budget: 100})
	require.Equal(t, "done", got.state, "%+v", got)
	require.Equal(t, "n is 5", got.text)
	d := f.detail(t, got.task)
	require.Equal(t, []string{"failed", "succeeded"}, d.attempts())
	require.EqualValues(t, 30, d.Tokens)
	if received := w.receivedRequests(); w.speaksV5() { // the other protocols do not mention earlier attempts
		require.Len(t, received, 2)
		_, first := received[0].Data.Get("retry")
		require.False(t, first)
		second, _ := received[1].Data.Get("retry")
		require.Equal(t, "1", second)
	}
}

// rejectsBudget: E17 is about the task's budget. The envelope protocol has only 5005, a limit of
// the worker, whose name the other protocols do not show.
func rejectsBudget(t *testing.T, f *protocolFixture, req requester, w *protocolWorker) {
	got := req.submit(t, testRequest{capability: w.id, action: "too much", budget: 20})
	d := f.detail(t, got.task)
	if w.speaksV5() {
		require.Equal(t, []string{"budget_exceeded", "over budget"}, []string{*d.Failure, got.state}, "%+v", got)
		require.Equal(t, []string{"failed"}, d.attempts(), "another attempt would exceed the budget too")
		if req.name() == "v5" {
			require.Equal(t, "desc=budget insufficient;needed=150;have=20", got.text)
		}
		return
	}
	require.Equal(t, "resource_limit", *d.Failure)
	want := "limited"
	if req.name() == "envelope" && w.kind == "envelope" {
		want = "over budget"
	}
	require.Equal(t, want, got.state, "%+v", got)
}

// unsafeText is text that PROTOCOL_V5 cannot write in a line.
const unsafeText = "a | b > c \"d\"\n"

func returnsUnsafeText(t *testing.T, _ *protocolFixture, req requester, w *protocolWorker) {
	got := req.submit(t, testRequest{capability: w.id, action: "long"})
	require.Equal(t, "done", got.state, "%+v", got)
	require.Equal(t, strings.Repeat(unsafeText, 300), got.text)
}

// largeText is longer than an inline result of the envelope protocol. Its characters have four
// bytes, because a line is limited in characters.
func largeText() string {
	length := 1 << 20
	if len(buildFlags()) > 0 { // with the race detector each page takes long
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

func returnsLargeText(t *testing.T, _ *protocolFixture, req requester, w *protocolWorker) {
	got := req.submit(t, testRequest{capability: w.id, action: "large", complete: true})
	require.Equal(t, "done", got.state, "%+v", got)
	require.Zero(t, strings.Compare(got.text, largeText()), "%d of %d bytes", len(got.text), len(largeText()))
}

// testRequest is a request for a task.
type testRequest struct {
	capability, action string
	budget             int64
	// cancel cancels the task once it receives.
	cancel <-chan string
	// silent sets the shortest timeout.
	silent bool
	// reply replies to the worker's question.
	reply string
	// complete fetches a result that is too long for one message.
	complete bool
	// trace is the trace id of the request, a UUID; "" for any.
	trace string
	// part is that of a worker which sends a part of its result and waits; nil otherwise.
	part *partialResult
}

// partialResult is a part of a result.
type partialResult struct {
	// sent receives when the worker has sent it.
	sent <-chan string
	// shown says that the requester receives it before the end of the task.
	shown bool
	// proceed lets the worker continue.
	proceed func()
}

// waitForPart waits until the worker has sent a part and, if the protocol shows it, the requester has received it. Then the
// worker continues.
func (q testRequest) waitForPart(t *testing.T, received func() bool) {
	t.Helper()
	if q.part == nil {
		return
	}
	testkit.Receive(t, q.part.sent)
	if q.part.shown {
		eventually(t, received, "the requester receives the part")
	}
	q.part.proceed()
}

// traceparent returns the trace of the request as a header, none for any.
func (q testRequest) traceparent() []string {
	if q.trace == "" {
		return nil
	}
	return []string{"Traceparent", "00-" + strings.ReplaceAll(q.trace, "-", "") + "-00f067aa0ba902b7-01"}
}

// isOpen says that the requester acts before the end of the task.
func (q testRequest) isOpen() bool { return q.cancel != nil || q.reply != "" || q.part != nil }

// outcome is the end of a task in terms of no protocol.
type outcome struct{ state, text, task string }

// requester submits tasks in one protocol.
type requester interface {
	name() string
	submit(t *testing.T, q testRequest) outcome
}

// protocolFixture is a server that speaks all protocols.
type protocolFixture struct {
	*client
	v5Addr string       // the address of the TCP listener
	agents atomic.Int64 // counts the registered agents
	// genesisKey verifies the Genesis messages of the server.
	genesisKey ed25519.PublicKey
}

type protocolTask struct {
	State, ID string
	Failure   *string
	Error     string
	StepName  string `json:"step_name"`
	Tokens    int64
	Attempts  []struct{ State string }
	Request   struct{ Traceparent string }
	Timeline  []struct{ Type string }
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

// questions returns how many questions the worker has asked.
func (d protocolTask) questions() (n int) {
	for _, e := range d.Timeline {
		if e.Type == "task.question" {
			n++
		}
	}
	return n
}

func (f *protocolFixture) detail(t *testing.T, task string) protocolTask {
	t.Helper()
	return get[protocolTask](t, f.client, "/api/v1/tasks/"+task)
}

func (f *protocolFixture) requesters() []requester {
	return []requester{
		restRequester{f}, envelopeRequester{f}, v5Requester{f}, genesisRequester{f, "HTTP"}, genesisRequester{f, "WebSocket"}, mcpRequester{f}, a2aRequester{f},
	}
}

// runProtocolFixture runs a test on a new server with each database.
func runProtocolFixture(t *testing.T, fn func(t *testing.T, f *protocolFixture)) {
	t.Helper()
	for _, name := range storetest.Databases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := configured(t, name)
			cfg.Transport.V5Listen, cfg.Transport.V5SelfRegistration, cfg.Log.Level = "127.0.0.1:0", true, "warn"
			cfg.Webhooks.AllowNetworks = []string{"127.0.0.1"} // the remote A2A agents
			a, err := app.New(t.Context(), cfg, nil)
			require.NoError(t, err)
			require.NoError(t, a.Start(t.Context()))
			t.Cleanup(func() { require.NoError(t, a.Stop(context.Background())) })
			f := &protocolFixture{client: newClient(t, a.URL(), adminToken(t, cfg.Data)), v5Addr: a.V5Addr()}
			f.genesisKey = f.serviceKey(t)
			fn(t, f)
		})
	}
}

// registerAgent registers an agent with a small budget and returns its id and a token with the
// scope.
func (f *protocolFixture) registerAgent(t *testing.T, name, scope string) (id, token string) {
	t.Helper()
	id = fmt.Sprintf("%s-%d", name, f.agents.Add(1))
	f.create(t, "/api/v1/agents", map[string]any{
		"id": id, "name": id, "level": 2, "parent_id": "orch-my-team", "sphere_id": 8, "frequency_hz": 555,
		"capabilities": []string{"custom:" + id}, "type": "infra", "token_budget": 5000,
	})
	return id, f.create(t, "/api/v1/tokens", map[string]any{"name": id, "scopes": []string{scope}, "agent_id": id}).Token
}

// create posts a resource.
func (f *protocolFixture) create(t *testing.T, path string, body any) (made struct{ Token string }) {
	t.Helper()
	status, raw, err := f.do(t.Context(), http.MethodPost, path, body)
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, status, "%s", raw)
	decode(t, raw, &made)
	return made
}
