package a2a_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"comet/internal/a2a"
	"comet/internal/auth"
	"comet/internal/events"
	"comet/internal/netguard"
	"comet/internal/orchestrator"
	"comet/internal/testkit"
	"comet/internal/testkit/mcptest"
	"comet/internal/testkit/toolstest"
	"comet/internal/workflow"
	"comet/models"
	"comet/store/storetest"
	"comet/webhooks"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// harness is a server of A2A over a running orchestrator.
type harness struct {
	*testkit.Work
	*testkit.Client // of an admin
	auth            *auth.Auth
	keys            *auth.ServiceKeys
	handler         *a2a.Handler
	hooks           *webhooks.Webhooks
	flows           *workflow.Engine // nil unless workflows are executed
	server          *httptest.Server
}

// onDatabases runs a case with a server on a fresh database of each kind.
func onDatabases(t *testing.T, name string, fn func(t *testing.T, h *harness)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, db *storetest.DB) { fn(t, start(t, db)) })
	})
}

func start(t *testing.T, db *storetest.DB) *harness {
	t.Helper()
	h := newHarness(t, db)
	feed := events.NewFeed(db.Store, nil)
	relay := events.NewRelay(db.Store, feed, &events.Options{Poll: 20 * time.Millisecond, Deliveries: h.hooks})
	require.NoError(t, relay.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, relay.Stop(context.Background())) })
	h.Work = testkit.StartWork(t, db, orchestrator.Options{Classes: classes()})
	h.serve(t, feed, workflow.New(workflow.Dependencies{Store: db.Store, Auth: h.auth, Feed: feed}, nil))
	return h
}

func classes() map[string]orchestrator.Policy {
	return map[string]orchestrator.Policy{a2a.Class: a2a.Policy()}
}

// withWorkflows runs a case with a server that also executes workflows, over an upstream with tools of each class.
func withWorkflows(t *testing.T, name string, fn func(t *testing.T, h *harness)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, db *storetest.DB) {
			h := newHarness(t, db)
			stack := toolstest.Start(t, db, &toolstest.Options{Work: orchestrator.Options{Classes: classes()}, Deliveries: h.hooks}, mcptest.NewPaper(t, "paper").Fails("no ink"))
			h.Work, h.flows = stack.Work, stack.Workflows
			h.serve(t, stack.Feed, stack.Workflows)
			t.Cleanup(func() { // a step that runs would keep the engine from stopping after a failure
				running, _ := h.flows.List(context.Background(), models.System(), workflow.Query{Status: "running", Limit: 100})
				for _, w := range running {
					_ = h.flows.Abort(context.Background(), models.System(), w.WorkflowID, "the test has ended")
				}
			})
			fn(t, h)
		})
	})
}

// newHarness returns a server without its orchestrator.
func newHarness(t *testing.T, db *storetest.DB) *harness {
	t.Helper()
	h := &harness{auth: auth.New(db.Store, nil), keys: auth.NewServiceKeys(db.Store, nil, nil)}
	h.hooks = webhooks.New(db.Store, &webhooks.Options{
		Guard: netguard.New([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}), Poll: 20 * time.Millisecond,
		TaskEvents: a2a.PushedEvents(),
		Render: func(ctx context.Context, hook models.Webhook, d models.Delivery) ([]byte, string, error) {
			return h.handler.Render(ctx, hook, d)
		},
	})
	return h
}

// serve starts the server and a client of an admin.
func (h *harness) serve(t *testing.T, feed *events.Feed, flows *workflow.Engine) {
	t.Helper()
	h.handler = a2a.New(a2a.Dependencies{
		Store: h.DB.Store, Auth: h.auth, Keys: h.keys, Orchestrator: h.Orchestrator, Workflows: flows, Feed: feed, Webhooks: h.hooks,
	}, &a2a.Options{Version: "1.2.3"})
	require.NoError(t, h.hooks.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, h.hooks.Stop(context.Background())) })
	h.server = httptest.NewServer(h.handler)
	t.Cleanup(func() {
		h.handler.Drain()
		h.server.Close()
	})
	h.Client = h.client(t, "", models.ScopeAdmin)
}

// client returns a client with a new token, which is bound to an agent unless that is "".
func (h *harness) client(t *testing.T, agentID string, scopes ...models.Scope) *testkit.Client {
	t.Helper()
	d := auth.TokenDraft{Name: new("test"), Scopes: scopes}
	if agentID != "" {
		d.AgentID = &agentID
	}
	made, err := h.auth.Create(t.Context(), testkit.Admin(), d, nil)
	require.NoError(t, err)
	return testkit.NewClient(t, h.server.URL, made.Secret)
}

// worker registers an agent that does its tasks with do, which is called again after each reply, until the test ends.
func (h *harness) worker(t *testing.T, id string, do func(ctx context.Context, o orchestrator.TaskWithInput), capabilities ...string) {
	t.Helper()
	h.AddAgent(t, id, "", capabilities...)
	_, err := h.Join(t.Context(), id, orchestrator.JoinRequest{Protocol: "plain", Transport: "websocket", Concurrency: 50})
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
			orders, err := h.OpenTasksOf(ctx, id)
			if err != nil {
				continue
			}
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

// returns is a worker that succeeds with an output.
func (h *harness) returns(output string) func(context.Context, orchestrator.TaskWithInput) {
	return func(ctx context.Context, o orchestrator.TaskWithInput) {
		_, _ = h.Complete(ctx, o.Task.AgentID, o.Task.ID, orchestrator.Result{Output: []byte(output)})
	}
}

// part, message, task and event are what a client reads. Data and messages stay text.
type part struct {
	Text      string
	Raw       []byte
	Data      json.RawMessage
	URL       string
	Filename  string
	MediaType string
}

type message struct {
	MessageID string
	ContextID string
	TaskID    string
	Role      string
	Parts     []part
	Metadata  map[string]any
}

type status struct {
	State     string
	Message   *message
	Timestamp string
}

type artifact struct {
	ArtifactID string
	Parts      []part
}

type task struct {
	ID        string
	ContextID string
	Status    status
	History   []message
	Artifacts []artifact
}

// event is a StreamResponse, or the result of SendMessage.
type event struct {
	Task         *task
	Message      *message
	StatusUpdate *struct {
		TaskID string
		Status status
	}
	ArtifactUpdate *struct {
		Artifact  artifact
		Append    bool
		LastChunk bool
	}
}

// state returns the state of a task, or of an update of it.
func (e event) state() string {
	switch {
	case e.Task != nil:
		return e.Task.Status.State
	case e.StatusUpdate != nil:
		return e.StatusUpdate.Status.State
	}
	return ""
}

// rpcFailure is an error of JSON-RPC.
type rpcFailure struct {
	Code    int
	Message string
	Data    []struct{ Reason string }
}

// rpc calls a method of version 1.0 and returns the result or the error.
func rpc(t testing.TB, c *testkit.Client, method, params string, result any, header ...string) *rpcFailure {
	t.Helper()
	resp := c.Do(t, http.MethodPost, "/a2a", `{"jsonrpc":"2.0","id":"7","method":"`+method+`","params":`+params+`}`, append([]string{"A2A-Version", "1.0"}, header...)...)
	var out struct {
		JSONRPC string
		ID      string
		Result  json.RawMessage
		Error   *rpcFailure
	}
	require.NoError(t, json.Unmarshal(resp.Body, &out), "%s", resp.Body)
	require.Equal(t, [2]string{"2.0", "7"}, [2]string{out.JSONRPC, out.ID}, "%s", resp.Body)
	if out.Error == nil && result != nil {
		require.NoError(t, json.Unmarshal(out.Result, result), "%s", resp.Body)
	}
	return out.Error
}

// text returns a message with a text and, if they are not "", a capability, a context and a task.
func text(id, text, capability, contextID, taskID string) string {
	out := map[string]any{"messageId": id, "role": "ROLE_USER", "parts": []any{map[string]string{"text": text}}}
	if capability != "" {
		out["metadata"] = map[string]string{"capability": capability}
	}
	if contextID != "" {
		out["contextId"] = contextID
	}
	if taskID != "" {
		out["taskId"] = taskID
	}
	raw, _ := json.Marshal(out)
	return string(raw)
}

// send sends a message and requires a task.
func send(t testing.TB, c *testkit.Client, message string, configuration ...string) task {
	t.Helper()
	var out event
	require.Nil(t, rpc(t, c, "SendMessage", `{"message":`+message+`,"configuration":`+strings.Join(append(configuration, "{}")[:1], "")+`}`, &out))
	require.NotNil(t, out.Task)
	return *out.Task
}

// getTask returns a task.
func getTask(t testing.TB, c *testkit.Client, id string) task {
	t.Helper()
	var out task
	require.Nil(t, rpc(t, c, "GetTask", `{"id":"`+id+`"}`, &out))
	return out
}

const returnImmediately = `{"returnImmediately":true}`

// received is a server-sent event.
type received struct {
	id string
	event
}

// stream is an open stream.
type stream struct {
	t    *testing.T
	in   *bufio.Scanner
	end  context.CancelFunc
	wrap bool // its events are responses of JSON-RPC
}

// open opens a stream over HTTP+JSON, or over JSON-RPC if path is "". It ends with the test.
func open(t *testing.T, c *testkit.Client, path, body string, header ...string) *stream {
	t.Helper()
	s := &stream{t: t, wrap: path == ""}
	if path == "" {
		path = "/a2a"
	} else {
		path = "/a2a/rest" + path
	}
	ctx, cancel := context.WithCancel(t.Context())
	s.end = cancel
	resp, err := c.Open(ctx, http.MethodPost, path, body, append([]string{"A2A-Version", "1.0", "Content-Type", "application/json"}, header...)...)
	require.NoError(t, err)
	t.Cleanup(func() {
		cancel()
		_ = resp.Body.Close()
	})
	require.Equal(t, "text/event-stream", resp.Header.Get("Content-Type"))
	s.in = bufio.NewScanner(resp.Body)
	return s
}

// next returns the next event. ok is false at the end of the stream.
func (s *stream) next() (out received, ok bool) {
	s.t.Helper()
	for s.in.Scan() {
		line := s.in.Text()
		if id, found := strings.CutPrefix(line, "id: "); found {
			out.id = id
		}
		if data, found := strings.CutPrefix(line, "data: "); found {
			if s.wrap {
				var response struct{ Result json.RawMessage }
				require.NoError(s.t, json.Unmarshal([]byte(data), &response))
				data = string(response.Result)
			}
			require.NoError(s.t, json.Unmarshal([]byte(data), &out.event), data)
			return out, true
		}
	}
	return out, false
}

// rawEvents returns the data of all events of a response.
func rawEvents(t *testing.T, resp *http.Response) (all []string) {
	t.Helper()
	defer func() { _ = resp.Body.Close() }()
	for in := bufio.NewScanner(resp.Body); in.Scan(); {
		if data, found := strings.CutPrefix(in.Text(), "data: "); found {
			all = append(all, data)
		}
	}
	return all
}

// must returns the next event.
func (s *stream) must() received {
	s.t.Helper()
	out, ok := s.next()
	require.True(s.t, ok, "the stream has ended")
	return out
}

// rest returns all events until the stream ends.
func (s *stream) rest() (all []received) {
	s.t.Helper()
	for {
		e, ok := s.next()
		if !ok {
			return all
		}
		all = append(all, e)
	}
}

// position returns the position in the id of an event.
func (r received) position(t *testing.T) int64 {
	t.Helper()
	first, _, _ := strings.Cut(r.id, ".")
	n, err := strconv.ParseInt(first, 10, 64)
	require.NoError(t, err)
	return n
}
