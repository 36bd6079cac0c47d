package remote_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"comet/internal/a2a"
	"comet/internal/a2a/remote"
	"comet/internal/auth"
	"comet/internal/events"
	"comet/internal/netguard"
	"comet/internal/orchestrator"
	"comet/internal/testkit"
	"comet/models"
	"comet/store/seal"
	"comet/store/storetest"
	"comet/webhooks"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// instance is a running orchestrator with remote agents.
type instance struct {
	*testkit.Work
	remotes *remote.Remotes
	opts    remote.Options
}

// onDatabases runs a case with an instance on a fresh database of each kind.
func onDatabases(t *testing.T, fn func(t *testing.T, h *instance)) {
	t.Helper()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) { fn(t, start(t, db)) })
}

func classes() map[string]orchestrator.Policy {
	return map[string]orchestrator.Policy{a2a.Class: a2a.Policy(), "quick": {
		Timeout: time.Hour, QueueTimeout: time.Hour, ReplyTimeout: time.Hour, MaxDepth: 4, MaxQuestions: 3, Retries: 1, Backoff: []time.Duration{0},
		RetryOn: []orchestrator.Failure{orchestrator.FailureUnavailable}, BreakerFailures: 5, BreakerPause: time.Minute,
	}}
}

func start(t *testing.T, db *storetest.DB) *instance {
	t.Helper()
	keys, err := seal.Parse(seal.NewKey())
	require.NoError(t, err)
	h := &instance{Work: testkit.StartWork(t, db, orchestrator.Options{Classes: classes()}), opts: remote.Options{
		Guard: netguard.New([]netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}), Keys: keys, Clock: db.Clock.Now, Poll: 20 * time.Millisecond, RetryMin: 2 * time.Millisecond,
		RetryMax: 20 * time.Millisecond, PollMin: 2 * time.Millisecond, PollMax: 20 * time.Millisecond, Alive: time.Nanosecond,
	}}
	h.restart(t)
	t.Cleanup(func() { require.NoError(t, h.remotes.Stop(context.Background())) })
	return h
}

// restart starts remote agents, after those of an earlier process have stopped.
func (h *instance) restart(t *testing.T) {
	t.Helper()
	h.remotes = remote.New(h.DB.Store, h.Orchestrator, &h.opts)
	require.NoError(t, h.remotes.Start(t.Context()))
}

// use makes a remote agent execute the tasks of a new agent, and waits until it is online.
func (h *instance) use(t *testing.T, id, cardURL, token string, capabilities ...string) {
	t.Helper()
	h.AddAgent(t, id, "", capabilities...)
	d := remote.Draft{CardURL: cardURL}
	if token != "" {
		d.Auth = remote.AuthDraft{Type: remote.AuthBearer, Secret: token}
	}
	_, first, err := h.remotes.Put(t.Context(), testkit.Admin(), id, d)
	require.NoError(t, err)
	require.True(t, first)
	h.WaitForWorker(t, id, func(w models.Worker) bool { return w.State == models.WorkerOnline })
}

// submit submits a task for an agent.
func (h *instance) submit(t *testing.T, agentID, capability, parameters string) models.Task {
	t.Helper()
	s := orchestrator.Submission{Class: "quick", AgentID: agentID, Parameters: json.RawMessage(parameters), Priority: 1, Traceparent: trace}
	if capability != "" {
		s.Capabilities = []string{capability}
	}
	task, err := h.Submit(t.Context(), testkit.Admin(), s, nil)
	require.NoError(t, err)
	return task.Task
}

const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// end waits for the end of a task and returns it with its result.
func (h *instance) end(t *testing.T, task models.Task) (models.Task, string) {
	t.Helper()
	ended := h.WaitForTask(t, task.ID, testkit.Ended)
	return ended, h.output(t, ended)
}

func (h *instance) output(t *testing.T, task models.Task) string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, h.Output(t.Context(), task, models.StreamResult, 0, func(c models.OutputChunk) error {
		out.Write(c.Data)
		return nil
	}))
	return out.String()
}

// comet is another instance, whose agents are remote agents.
type comet struct {
	*testkit.Work
	server *httptest.Server
	token  string
}

// newComet starts an instance with a server of A2A.
func newComet(t *testing.T, kind string) *comet {
	t.Helper()
	return serve(t, testkit.StartWork(t, storetest.Open(t, kind), orchestrator.Options{Classes: classes()}))
}

// serve starts the server of A2A of an instance.
func serve(t *testing.T, work *testkit.Work) *comet {
	t.Helper()
	db := work.DB
	feed := events.NewFeed(db.Store, nil)
	relay := events.NewRelay(db.Store, feed, &events.Options{Poll: 20 * time.Millisecond})
	require.NoError(t, relay.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, relay.Stop(context.Background())) })
	tokens := auth.New(db.Store, nil)
	c := &comet{Work: work}
	keys := auth.NewServiceKeys(db.Store, nil, nil)
	handler := a2a.New(a2a.Dependencies{Store: db.Store, Auth: tokens, Keys: keys, Webhooks: webhooks.New(db.Store, nil), Orchestrator: c.Orchestrator, Feed: feed}, nil)
	c.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kind := r.URL.Query().Get("only") // leaves the interfaces of one kind in the card
		if r.URL.Path == "/.well-known/jwks.json" {
			var set jose.JSONWebKeySet
			all, _ := keys.Public(r.Context())
			for _, k := range all {
				set.Keys = append(set.Keys, jose.JSONWebKey{Key: k.Public, KeyID: k.ID})
			}
			_ = json.NewEncoder(w).Encode(set)
			return
		}
		if kind == "" {
			handler.ServeHTTP(w, r)
			return
		}
		rec := httptest.NewRecorder()
		handler.ServeHTTP(rec, r)
		var card map[string]any
		if err := json.Unmarshal(rec.Body.Bytes(), &card); err != nil {
			w.WriteHeader(rec.Code)
			return
		}
		var kept []any
		all, _ := card["supportedInterfaces"].([]any)
		for _, i := range all {
			if e, _ := i.(map[string]any); fmt.Sprint(e["protocolBinding"], " ", e["protocolVersion"]) == kind {
				kept = append(kept, i)
			}
		}
		card["supportedInterfaces"] = kept
		delete(card, "signatures")
		_ = json.NewEncoder(w).Encode(card)
	}))
	t.Cleanup(func() {
		handler.Drain()
		c.server.Close()
	})
	made, err := tokens.Create(t.Context(), testkit.Admin(), auth.TokenDraft{Name: new("local"), Scopes: []models.Scope{models.ScopeMessagesSend}}, nil)
	require.NoError(t, err)
	c.token = made.Secret
	return c
}

// worker registers an agent that does its tasks with do, which is called again after each reply, until the test ends.
func (c *comet) worker(t *testing.T, id string, do func(ctx context.Context, o orchestrator.TaskWithInput), capabilities ...string) {
	t.Helper()
	c.AddAgent(t, id, "", capabilities...)
	_, err := c.Join(t.Context(), id, orchestrator.JoinRequest{Protocol: "plain", Transport: "websocket", Concurrency: 50})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		done := map[string]bool{}
		for tick := time.NewTicker(time.Millisecond); ; {
			select {
			case <-tick.C:
			case <-ctx.Done():
				tick.Stop()
				return
			}
			orders, _ := c.OpenTasksOf(ctx, id)
			for _, o := range orders {
				key := fmt.Sprint(o.Task.ID, o.Task.Attempt, o.Task.Questions)
				if o.Task.WaitingFor == models.NotWaiting && !done[key] {
					done[key] = true
					do(ctx, o)
				}
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

func (c *comet) complete(ctx context.Context, o orchestrator.TaskWithInput, output string) {
	_, _ = c.Complete(ctx, o.Task.AgentID, o.Task.ID, orchestrator.Result{Output: []byte(output)})
}

// call is a request that a fake has received.
type call struct {
	method string
	params struct {
		ID      string
		Message struct {
			MessageID, ContextID, TaskID string
			Parts                        json.RawMessage
			Metadata                     map[string]any
		}
		Configuration map[string]any
	}
	header http.Header
}

// fake is a remote agent that responds as a test says. It speaks version 1.0 over JSON-RPC.
type fake struct {
	server *httptest.Server

	mu    sync.Mutex
	card  string
	keys  string // at /keys
	calls []call
	on    func(w http.ResponseWriter, r *http.Request, c call) string
}

const streamingCard = `{"name":"Fake","description":"d","version":"3","capabilities":{"streaming":true},"skills":[{"id":"cook"}],
	"supportedInterfaces":[{"url":"URL/rpc","protocolBinding":"JSONRPC","protocolVersion":"1.0"}]}`

var pollingCard = strings.Replace(streamingCard, "true", "false", 1)

// newFake starts a fake with a card, in which URL is its address. The result of on is that of the call, "" if on has responded itself.
func newFake(t *testing.T, card string, on func(w http.ResponseWriter, r *http.Request, c call) string) *fake {
	t.Helper()
	f := &fake{card: card, on: on}
	f.server = httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(f.server.Close)
	t.Cleanup(f.server.CloseClientConnections)
	return f
}

func (f *fake) url() string { return f.server.URL + "/card.json" }

func (f *fake) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	if r.Method == http.MethodGet {
		text := strings.ReplaceAll(f.card, "URL", f.server.URL)
		if r.URL.Path == "/keys" {
			text = f.keys
			if r.Header.Get("Authorization") != "" {
				text = "a set of keys needs no secret"
			}
		}
		f.mu.Unlock()
		_, _ = io.WriteString(w, text)
		return
	}
	c := call{header: r.Header}
	var in struct {
		Method string
		Params json.RawMessage
	}
	if json.Unmarshal(body, &in) == nil {
		c.method = in.Method
		_ = json.Unmarshal(in.Params, &c.params)
	}
	f.calls = append(f.calls, c)
	on := f.on
	f.mu.Unlock()
	if result := on(w, r, c); result != "" {
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":1,"result":%s}`, result)
	}
}

// set changes the card and, unless it is nil, the behaviour.
func (f *fake) set(card string, on func(w http.ResponseWriter, r *http.Request, c call) string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.card = card
	if on != nil {
		f.on = on
	}
}

// called returns the calls of a method.
func (f *fake) called(method string) (out []call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		if c.method == method {
			out = append(out, c)
		}
	}
	return out
}

// waitFor waits until a method was called n times, and returns the last call.
func (f *fake) waitFor(t *testing.T, method string, n int) call {
	t.Helper()
	require.Eventually(t, func() bool { return len(f.called(method)) >= n }, testkit.Timeout, 5*time.Millisecond, method)
	all := f.called(method)
	return all[len(all)-1]
}

// task is a task of a fake.
func task(state, rest string) string {
	return `{"id":"r-1","contextId":"c-1","status":{"state":"TASK_STATE_` + state + `"` + rest + `}`
}

// sse writes events of a stream.
func sse(w http.ResponseWriter, events ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for i, e := range events {
		_, _ = fmt.Fprintf(w, "id: %d\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":%s}\n\n", i+1, e)
	}
	_ = http.NewResponseController(w).Flush()
}

const completed = `{"statusUpdate":{"taskId":"r-1","contextId":"c-1","status":{"state":"TASK_STATE_COMPLETED"}}}`
