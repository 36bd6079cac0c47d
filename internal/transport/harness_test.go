package transport_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	"comet/internal/protocol/envelope"
	"comet/internal/testkit"
	"comet/internal/transport"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testProtocol is a protocol for tests. Its messages are objects with an "id" and an action in
// "do".
type testProtocol struct {
	mu       sync.Mutex
	received []receivedMessage
	hold     chan struct{} // blocks Receive of "slow" messages
	render   func(m models.InboxMessage, limit int) ([][]byte, error)
	rendered int
	rejected string // the agent that the protocol does not accept
}

type receivedMessage struct {
	from models.Principal
	raw  string
	wait time.Duration
}

type note struct {
	ID    string `json:"id,omitzero"`
	Do    string `json:"do,omitzero"`
	Text  string `json:"text,omitzero"`
	Token string `json:"token,omitzero"`
	Key   string `json:"key,omitzero"`
	// Signer is the agent whose signature replaces a token.
	Signer string `json:"signer,omitzero"`
}

func (s *testProtocol) Info() protocol.Info {
	return protocol.Info{
		Name: "notes", Subprotocols: []string{"notes.v1"}, ContentTypes: []string{"application/json"}, Framed: true, Negotiate: s.negotiate, Sender: s.sender,
	}
}

func (s *testProtocol) sender(_ context.Context, raw []byte) (models.Principal, error) {
	var n note
	if json.Unmarshal(raw, &n) != nil || n.Signer == "" {
		return models.Principal{}, errs.New(errs.Unauthenticated, "no signer")
	}
	return models.Principal{TokenID: "key:" + n.Signer, AgentID: &n.Signer}, nil
}

// Order returns the member "key", "none" for an independent message.
func (s *testProtocol) Order(raw []byte) protocol.Order {
	var n note
	_ = json.Unmarshal(raw, &n)
	if n.Key == "none" {
		return protocol.Order{Independent: true}
	}
	return protocol.Order{Key: n.Key}
}

func (s *testProtocol) negotiate(versions []string) (string, error) {
	for _, v := range versions {
		if v == "1.0" {
			return v, nil
		}
	}
	if len(versions) == 0 {
		return "1.0", nil
	}
	return "", errs.New(errs.UnsupportedWork, "no such version")
}

func (s *testProtocol) Accepts(agent models.Agent) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if agent.ID == s.rejected {
		return errs.New(errs.InvalidRequest, "the agent is mute")
	}
	return nil
}

// rejectAgent makes the protocol reject an agent.
func (s *testProtocol) rejectAgent(agentID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rejected = agentID
}

func (s *testProtocol) Receive(ctx context.Context, from protocol.Peer, raw []byte, wait time.Duration) protocol.Reply {
	s.mu.Lock()
	s.received = append(s.received, receivedMessage{from.Principal, string(raw), wait})
	s.mu.Unlock()
	var n note
	if err := json.Unmarshal(raw, &n); err != nil {
		return s.Refuse(errs.New(errs.MalformedJSON, "no note"), raw)
	}
	a := protocol.Reply{Status: http.StatusAccepted, MessageID: n.ID}
	switch n.Do {
	case "refuse":
		a = s.Refuse(errs.New(errs.InvalidRequest, "as asked"), raw)
		a.MessageID = n.ID
	case "reply":
		a.Body, a.SendBack, a.Location = []byte(`{"reply":"`+n.ID+`"}`), true, "/made/"+n.ID
	case "present":
		a.Joined = true
	case "wait":
		<-ctx.Done()
	case "slow":
		<-s.hold
	}
	return a
}

func (s *testProtocol) Render(_ context.Context, to protocol.Peer, m models.InboxMessage, limit int) ([][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rendered++
	if s.render != nil {
		return s.render(m, limit)
	}
	b, err := json.Marshal(note{ID: m.ID, Do: m.Kind, Text: to.Agent.ID})
	return [][]byte{b}, err
}

func (s *testProtocol) Refuse(err error, raw []byte) protocol.Reply {
	status := map[errs.Code]int{
		errs.Unauthenticated: 401, errs.AgentInactive: 401, errs.MissingScope: 401, errs.ForeignAgent: 401,
		errs.RateLimited: 429, errs.Unavailable: 503, errs.UnsupportedWork: 422,
	}[errs.CodeOf(err)]
	if status == 0 {
		status = http.StatusBadRequest
	}
	text, _ := json.Marshal(map[string]string{"refused": string(errs.CodeOf(err)), "of": string(raw)})
	return protocol.Reply{Status: status, Body: text, IsError: true}
}

func (s *testProtocol) Token(raw []byte) (string, []byte) {
	var n note
	if json.Unmarshal(raw, &n) != nil {
		return "", raw
	}
	token := n.Token
	n.Token = ""
	rest, _ := json.Marshal(n)
	return token, rest
}

func (s *testProtocol) messages() []receivedMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]receivedMessage{}, s.received...)
}

// fixture is a server with a database of its own.
type fixture struct {
	*testkit.Work
	auth       *auth.Auth
	protocol   *testProtocol
	transports *transport.Server
	url        string
	server     *httptest.Server
	registry   *prometheus.Registry

	once sync.Once
	task string
}

// startWork starts the orchestrator that several servers can share.
func startWork(t *testing.T, db *storetest.DB) *testkit.Work {
	t.Helper()
	return testkit.StartWork(t, db, orchestrator.Options{Classes: map[string]orchestrator.Policy{envelope.Class: envelope.Policy()}})
}

// runCase runs one case on a new fixture for each kind of database.
func runCase(t *testing.T, name string, opts *transport.Options, fn func(t *testing.T, f *fixture)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, db *storetest.DB) { fn(t, openFixture(t, startWork(t, db), opts, nil)) })
	})
}

// openFixture starts a server; change may modify its core.
func openFixture(t *testing.T, w *testkit.Work, opts *transport.Options, change func(*transport.Core)) *fixture {
	t.Helper()
	o := transport.Options{}
	if opts != nil {
		o = *opts
	}
	f := &fixture{Work: w, auth: auth.New(w.DB.Store, nil), protocol: &testProtocol{hold: make(chan struct{})}, registry: prometheus.NewRegistry()}
	o.Registerer = f.registry
	if o.Clock == nil {
		o.Clock = w.DB.Clock.Now
	}
	core := transport.Core{Work: w.Orchestrator, Auth: f.auth, Protocols: []protocol.Protocol{f.protocol}}
	if change != nil {
		change(&core)
	}
	f.transports = transport.New(core, &o)
	r := chi.NewRouter()
	r.Use(middleware.GetHead) // as in the complete router
	f.transports.Mount(r)
	f.server = httptest.NewServer(r)
	f.url = f.server.URL
	require.NoError(t, f.transports.Start(t.Context()))
	t.Cleanup(func() {
		require.NoError(t, f.transports.Stop(context.Background()))
		f.server.Close()
	})
	return f
}

// token issues a token, for an agent or, if agentID is "", for a client with scopes.
func (f *fixture) token(t *testing.T, agentID string, scopes ...models.Scope) auth.Issued {
	t.Helper()
	name := "token of " + agentID
	d := auth.TokenDraft{Name: &name, Scopes: scopes}
	if agentID != "" {
		d.AgentID, d.Scopes = &agentID, append(scopes, models.ScopeTasksRead)
	}
	out, err := f.auth.Create(t.Context(), testkit.Admin(), d, nil)
	require.NoError(t, err)
	return out
}

// agent registers an agent with a capability named like its id, and returns its token.
func (f *fixture) agent(t *testing.T, id string) string {
	t.Helper()
	f.AddAgent(t, id, "infra", "custom:"+id)
	return f.token(t, id).Secret
}

// joinRequest is the request of an agent that joins over a connection of another process.
func joinRequest(via, connectionID string) orchestrator.JoinRequest {
	return orchestrator.JoinRequest{Protocol: "notes", Transport: via, ConnectionID: connectionID}
}

// submit submits a task to an agent.
func (f *fixture) submit(t *testing.T, agentID string) models.Task {
	t.Helper()
	out, err := f.Submit(t.Context(), testkit.Admin(), orchestrator.Submission{AgentID: agentID, Priority: orchestrator.DefaultPriority}, nil)
	require.NoError(t, err)
	return out.Task
}

// enqueue adds messages that are not task assignments to an inbox.
func (f *fixture) enqueue(t *testing.T, agentID string, n int) {
	t.Helper()
	about := f.otherTask(t)
	require.NoError(t, f.DB.Write(t.Context(), func(tx *store.Tx) error {
		for range n {
			if _, err := tx.Inbox().Enqueue(models.InboxMessage{AgentID: agentID, Kind: models.MessageCancel, TaskID: about}); err != nil {
				return err
			}
		}
		return nil
	}))
	f.OnWake(orchestrator.WakeInbox, agentID)
}

// WaitForInbox waits until the inbox of an agent has n messages, and returns them.
func (f *fixture) WaitForInbox(t *testing.T, agentID string, n int) (out []models.InboxMessage) {
	t.Helper()
	require.Eventually(t, func() bool {
		var err error
		out, err = f.Messages(context.Background(), agentID, 1000)
		return err == nil && len(out) == n
	}, testkit.Timeout, 5*time.Millisecond)
	return out
}

// otherTask returns a task that is assigned to another agent.
func (f *fixture) otherTask(t *testing.T) string {
	t.Helper()
	f.once.Do(func() {
		f.agent(t, "else")
		_, err := f.Join(t.Context(), "else", orchestrator.JoinRequest{Protocol: "notes", Transport: "none"})
		require.NoError(t, err)
		f.task = f.submit(t, "else").ID
	})
	return f.task
}

func online(w models.Worker) bool  { return w.State == models.WorkerOnline }
func offline(w models.Worker) bool { return w.State == models.WorkerOffline }

// response is an HTTP response with its body.
type response struct {
	*http.Response
	body string
}

// do sends a request.
func (f *fixture) do(t *testing.T, method, path, token, body string, headers ...string) response {
	t.Helper()
	a, err := request(t.Context(), method, f.url+path, token, body, headers...)
	require.NoError(t, err)
	return a
}

// httpClient has connections of its own: parallel tests close those of http.DefaultTransport, also while a response without
// a body is on its way to the caller.
var httpClient = &http.Client{Transport: &http.Transport{}}

// request sends a request. Goroutines of a test may call it.
func request(ctx context.Context, method, url, token, body string, headers ...string) (response, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return response{}, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := httpClient.Do(req)
	if err != nil {
		return response{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return response{resp, string(b)}, err
}

// doAsync sends a request that takes time; the channel receives its response.
func (f *fixture) doAsync(ctx context.Context, method, path, token, body string, headers ...string) <-chan response {
	got := make(chan response, 1)
	go func() {
		a, err := request(ctx, method, f.url+path, token, body, headers...)
		if err != nil {
			a = response{&http.Response{}, err.Error()}
		}
		got <- a
	}()
	return got
}

// wsClient is the agent's end of a WebSocket.
type wsClient struct {
	t    *testing.T
	conn *websocket.Conn
	resp *http.Response
	// received is what readInBackground read, nil before it is called.
	received chan wsResult
}

type wsResult struct {
	frame wsFrame
	err   error
}

// wsFrame is a received frame: a note or a control frame.
type wsFrame struct {
	Hello map[string]any    `json:"hello"`
	Ack   []string          `json:"ack"`
	Bye   map[string]string `json:"bye"`
	note
	Reply   string `json:"reply"`
	Refused string `json:"refused"`
}

// dial opens a WebSocket and does not read its hello. Pings are answered only during read.
func (f *fixture) dial(t *testing.T, token, query string, protocols ...string) (*wsClient, error) {
	t.Helper()
	conn, resp, err := websocket.Dial(t.Context(), f.url+"/api/agent/connect"+query, &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + token}}, Subprotocols: protocols,
	})
	if err != nil {
		return &wsClient{t: t, resp: resp}, err
	}
	conn.SetReadLimit(32 << 20)
	t.Cleanup(func() { _ = conn.CloseNow() })
	return &wsClient{t: t, conn: conn, resp: resp}, nil
}

// connect opens a WebSocket, reads its hello and answers pings until the end of the test.
func (f *fixture) connect(t *testing.T, token, query string) *wsClient {
	t.Helper()
	c, err := f.dial(t, token, query, "notes.v1")
	require.NoError(t, err)
	c.readInBackground()
	require.NotEmpty(t, c.next().Hello)
	return c
}

// dialUnread opens a WebSocket, reads its hello and nothing more, and answers no ping.
func (f *fixture) dialUnread(t *testing.T, token string) {
	t.Helper()
	c, err := f.dial(t, token, "", "notes.v1")
	require.NoError(t, err)
	require.NotEmpty(t, c.next().Hello)
}

// readInBackground reads continuously, so that pings are answered; read returns the frames in order.
func (c *wsClient) readInBackground() {
	received := make(chan wsResult, 1000)
	ctx := c.t.Context()
	go func() {
		for {
			frame, err := c.receive(ctx)
			received <- wsResult{frame, err}
			if err != nil {
				return
			}
		}
	}()
	c.received = received
}

// next returns the next frame.
func (c *wsClient) next() wsFrame {
	c.t.Helper()
	s, err := c.read()
	require.NoError(c.t, err)
	return s
}

func (c *wsClient) read() (s wsFrame, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if c.received == nil {
		return c.receive(ctx)
	}
	select {
	case r := <-c.received:
		return r.frame, r.err
	case <-ctx.Done():
		return s, ctx.Err()
	}
}

func (c *wsClient) receive(ctx context.Context) (s wsFrame, err error) {
	_, raw, err := c.conn.Read(ctx)
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	return s, err
}

// send sends a frame.
func (c *wsClient) send(v any) {
	c.t.Helper()
	b, err := json.Marshal(v)
	require.NoError(c.t, err)
	require.NoError(c.t, c.conn.Write(c.t.Context(), websocket.MessageText, b))
}

// ack sends an acknowledgement.
func (c *wsClient) ack(ids ...string) { c.send(map[string][]string{"ack": ids}) }

// barrier sends a message and returns the frames received before its acknowledgement.
func (c *wsClient) barrier(id string) (before []wsFrame) {
	c.t.Helper()
	c.send(note{ID: id})
	for {
		s := c.next()
		if len(s.Ack) == 1 && s.Ack[0] == id {
			return before
		}
		before = append(before, s)
	}
}

// readUntilClosed returns the remaining frames and the close code.
func (c *wsClient) readUntilClosed() (all []wsFrame, code websocket.StatusCode) {
	c.t.Helper()
	for {
		s, err := c.read()
		if err != nil {
			require.NotErrorIs(c.t, err, context.DeadlineExceeded)
			return all, websocket.CloseStatus(err)
		}
		all = append(all, s)
	}
}

// metric returns the value of a counter or gauge, 0 if it does not exist.
func (f *fixture) metric(t *testing.T, name string, labels ...string) int {
	t.Helper()
	sum := 0.0
	families, err := f.registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var b bytes.Buffer
			for _, l := range m.GetLabel() {
				b.WriteString(l.GetValue() + " ")
			}
			if strings.TrimSpace(b.String()) == strings.Join(labels, " ") {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return int(sum)
}

// deactivate deactivates an agent.
func (f *fixture) deactivate(t *testing.T, id string) {
	t.Helper()
	require.NoError(t, f.DB.Write(t.Context(), func(tx *store.Tx) error {
		before, err := tx.Agents().Lock(id)
		if err != nil {
			return err
		}
		after := before
		after.IsActive, after.Version = false, before.Version+1
		return tx.Agents().Update(before, after)
	}))
}

// waitForMetric waits for the value of a counter or gauge, because events are counted after they
// happen.
func (f *fixture) waitForMetric(t *testing.T, want int, name string, labels ...string) {
	t.Helper()
	require.Eventually(t, func() bool { return f.metric(t, name, labels...) == want }, time.Minute, 5*time.Millisecond, "%s %v", name, labels)
}
