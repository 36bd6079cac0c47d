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
	"comet/internal/jobs"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	"comet/internal/protocol/envelope"
	"comet/internal/registry"
	"comet/internal/transport"
	"comet/internal/usage"
	wire "comet/internal/wire/envelope"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// speech is a dialect of the tests: its messages are objects with an "id" and what they
// ask for.
type speech struct {
	mu       sync.Mutex
	heard    []utterance
	hold     chan struct{} // holds Receive of "slow" messages
	render   func(m models.InboxMessage, limit int) ([][]byte, error)
	rendered int
	mute     string // the agent that cannot be spoken to
}

type utterance struct {
	from models.Principal
	raw  string
	wait time.Duration
}

type note struct {
	ID    string `json:"id,omitzero"`
	Do    string `json:"do,omitzero"`
	Text  string `json:"text,omitzero"`
	Token string `json:"token,omitzero"`
}

func (s *speech) Name() string        { return "notes" }
func (s *speech) Subprotocol() string { return "notes.v1" }

func (s *speech) Unframed() bool { return false }

func (s *speech) OrderingKey(raw []byte) string { return wire.TaskOf(raw) }

func (s *speech) Negotiate(versions []string) (string, error) {
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

func (s *speech) Accepts(agent models.Agent) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if agent.ID == s.mute {
		return errs.New(errs.InvalidRequest, "the agent is mute")
	}
	return nil
}

// refuses has an agent be one that cannot be spoken to.
func (s *speech) refuses(agentID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mute = agentID
}

func (s *speech) Receive(ctx context.Context, from models.Principal, raw []byte, wait time.Duration) protocol.Reply {
	s.mu.Lock()
	s.heard = append(s.heard, utterance{from, string(raw), wait})
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

func (s *speech) Render(_ context.Context, a models.Agent, m models.InboxMessage, limit int) ([][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rendered++
	if s.render != nil {
		return s.render(m, limit)
	}
	b, err := json.Marshal(note{ID: m.ID, Do: string(m.Kind), Text: a.ID})
	return [][]byte{b}, err
}

func (s *speech) Refuse(err error, raw []byte) protocol.Reply {
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

func (s *speech) Token(raw []byte) (string, []byte) {
	var n note
	if json.Unmarshal(raw, &n) != nil {
		return "", raw
	}
	token := n.Token
	n.Token = ""
	rest, _ := json.Marshal(n)
	return token, rest
}

func (s *speech) utterances() []utterance {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]utterance{}, s.heard...)
}

// house is a server with lines on a database of its own.
type house struct {
	*orchestrator.Orchestrator
	db     *storetest.DB
	auth   *auth.Auth
	speech *speech
	links  *transport.Transports
	url    string
	server *httptest.Server
	seen   *prometheus.Registry

	once sync.Once
	task string
}

// bed is what several houses can stand on.
type bed struct {
	db   *storetest.DB
	work *orchestrator.Orchestrator
}

func newBed(t *testing.T, db *storetest.DB) bed {
	t.Helper()
	require.NoError(t, registry.New(db.Store, nil).Bootstrap(t.Context()))
	work := orchestrator.New(db.Store, usage.New(db.Store, nil), &orchestrator.Options{
		Classes: map[string]orchestrator.Policy{envelope.Class: envelope.Policy()}, Poll: 5 * time.Millisecond,
	})
	runner := jobs.New(db.Store, &jobs.Options{Poll: 5 * time.Millisecond})
	work.Register(runner)
	require.NoError(t, work.Start(t.Context()))
	require.NoError(t, runner.Start(t.Context()))
	t.Cleanup(func() {
		require.NoError(t, runner.Stop(context.Background()))
		require.NoError(t, work.Stop(context.Background()))
	})
	require.Eventually(t, func() bool { return work.Check(t.Context()) == nil }, time.Minute, time.Millisecond)
	return bed{db, work}
}

// rule runs one case on a fresh house on every kind of database.
func rule(t *testing.T, name string, opts *transport.Options, fn func(t *testing.T, h *house)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, db *storetest.DB) { fn(t, open(t, newBed(t, db), opts, nil)) })
	})
}

// open starts a house; change may add to its core.
func open(t *testing.T, b bed, opts *transport.Options, change func(*transport.Core)) *house {
	t.Helper()
	o := transport.Options{}
	if opts != nil {
		o = *opts
	}
	h := &house{Orchestrator: b.work, db: b.db, auth: auth.New(b.db.Store, nil), speech: &speech{hold: make(chan struct{})}, seen: prometheus.NewRegistry()}
	o.Registerer = h.seen
	if o.Clock == nil {
		o.Clock = b.db.Clock.Now
	}
	core := transport.Core{Work: h.Orchestrator, Auth: h.auth, Dialects: []protocol.Protocol{h.speech}}
	if change != nil {
		change(&core)
	}
	h.links = transport.New(core, &o)
	r := chi.NewRouter()
	r.Use(middleware.GetHead) // as in the whole chain
	h.links.Mount(r)
	h.server = httptest.NewServer(r)
	h.url = h.server.URL
	require.NoError(t, h.links.Start(t.Context()))
	t.Cleanup(func() {
		require.NoError(t, h.links.Stop(context.Background()))
		h.server.Close()
	})
	return h
}

func ops() models.Principal {
	return models.Principal{TokenID: "ops", Name: "ops", Scopes: []models.Scope{models.ScopeAdmin}}
}

// token issues one: for an agent, or for nobody ("") with scopes.
func (h *house) token(t *testing.T, agentID string, scopes ...models.Scope) auth.Issued {
	t.Helper()
	name := "token of " + agentID
	d := models.TokenDraft{Name: &name, Scopes: scopes}
	if agentID != "" {
		d.AgentID, d.Scopes = &agentID, append(scopes, models.ScopeTasksRead)
	}
	out, err := h.auth.Create(t.Context(), ops(), d, nil)
	require.NoError(t, err)
	return out
}

// agent registers one that can do what its id says, and returns its token.
func (h *house) agent(t *testing.T, id string) string {
	t.Helper()
	now, parent, sphere, budget := h.db.Now(), "orch-my-team", 8, int64(50_000)
	require.NoError(t, h.db.Write(t.Context(), func(tx *store.Tx) error {
		return tx.InsertAgent(models.Agent{
			ID: id, Name: id, Level: 2, SphereID: &sphere, FrequencyHz: 555, Capabilities: []string{"custom:" + id}, ParentID: &parent, TokenBudget: &budget,
			Type: "infra", IsActive: true, Version: 1, CreatedAt: now, UpdatedAt: now,
		})
	}))
	require.NoError(t, h.ReindexAgent(t.Context(), id))
	return h.token(t, id).Secret
}

// joining is what an agent says that comes on a line of somebody else.
func joining(way, line string) orchestrator.JoinRequest {
	return orchestrator.JoinRequest{Dialect: "notes", Link: way, Line: line}
}

// submit asks an agent for work.
func (h *house) submit(t *testing.T, agentID string) models.Task {
	t.Helper()
	out, err := h.Submit(t.Context(), ops(), orchestrator.Submission{Agent: agentID, Priority: models.DefaultPriority}, nil)
	require.NoError(t, err)
	return out.Task
}

// tell puts messages that are no work into an inbox.
func (h *house) tell(t *testing.T, agentID string, n int) {
	t.Helper()
	about := h.elsewhere(t)
	require.NoError(t, h.db.Write(t.Context(), func(tx *store.Tx) error {
		for range n {
			if _, err := tx.EnqueueMessage(models.InboxMessage{AgentID: agentID, Kind: models.MessageCancel, TaskID: about}); err != nil {
				return err
			}
		}
		return nil
	}))
	h.OnWake(orchestrator.WakeInbox, agentID)
}

// elsewhere returns a task that somebody else has.
func (h *house) elsewhere(t *testing.T) string {
	t.Helper()
	h.once.Do(func() {
		h.agent(t, "else")
		_, err := h.Join(t.Context(), "else", orchestrator.JoinRequest{Dialect: "notes", Link: "none"})
		require.NoError(t, err)
		h.task = h.submit(t, "else").ID
	})
	return h.task
}

// worker waits for a worker to be as it should.
func (h *house) worker(t *testing.T, agentID string, right func(models.Worker) bool) models.Worker {
	t.Helper()
	var w models.Worker
	require.Eventually(t, func() bool {
		w = h.CachedWorker(agentID)
		return right(w)
	}, time.Minute, time.Millisecond, "worker %s", agentID)
	return w
}

func online(w models.Worker) bool  { return w.State == models.WorkerOnline }
func offline(w models.Worker) bool { return w.State == models.WorkerOffline }

// inboxOf waits for an agent's inbox to have a number of messages.
func (h *house) inboxOf(t *testing.T, agentID string, n int) (out []models.InboxMessage) {
	t.Helper()
	require.Eventually(t, func() bool {
		var err error
		out, err = h.Messages(context.Background(), agentID, 1000)
		return err == nil && len(out) == n
	}, time.Minute, time.Millisecond)
	return out
}

// answer is a response with its body.
type answer struct {
	*http.Response
	body string
}

// do makes a request.
func (h *house) do(t *testing.T, method, path, token, body string, headers ...string) answer {
	t.Helper()
	a, err := request(t.Context(), method, h.url+path, token, body, headers...)
	require.NoError(t, err)
	return a
}

// request makes a request, also from a goroutine of a test.
func request(ctx context.Context, method, url, token, body string, headers ...string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answer{resp, string(b)}, err
}

// begin makes a request that takes its time; what came is received from the channel.
func (h *house) begin(ctx context.Context, method, path, token, body string, headers ...string) <-chan answer {
	got := make(chan answer, 1)
	go func() {
		a, err := request(ctx, method, h.url+path, token, body, headers...)
		if err != nil {
			a = answer{&http.Response{}, err.Error()}
		}
		got <- a
	}()
	return got
}

// caller is an agent's end of a WebSocket.
type caller struct {
	t    *testing.T
	conn *websocket.Conn
	resp *http.Response
}

// said is what comes on a line: a note, or a line frame.
type said struct {
	Hello map[string]any    `json:"hello"`
	Ack   []string          `json:"ack"`
	Bye   map[string]string `json:"bye"`
	note
	Reply   string `json:"reply"`
	Refused string `json:"refused"`
}

// dial opens a WebSocket and leaves its hello unread.
func (h *house) dial(t *testing.T, token, query string, protocols ...string) (*caller, error) {
	t.Helper()
	conn, resp, err := websocket.Dial(t.Context(), h.url+"/api/agent/connect"+query, &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + token}}, Subprotocols: protocols,
	})
	if err != nil {
		return &caller{t: t, resp: resp}, err
	}
	conn.SetReadLimit(32 << 20)
	t.Cleanup(func() { _ = conn.CloseNow() })
	return &caller{t, conn, resp}, nil
}

// connect opens a WebSocket whose hello was read.
func (h *house) connect(t *testing.T, token, query string) *caller {
	t.Helper()
	c, err := h.dial(t, token, query, "notes.v1")
	require.NoError(t, err)
	require.NotEmpty(t, c.hear().Hello)
	return c
}

// hear returns the next frame.
func (c *caller) hear() said {
	c.t.Helper()
	s, err := c.read()
	require.NoError(c.t, err)
	return s
}

func (c *caller) read() (s said, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, raw, err := c.conn.Read(ctx)
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	return s, err
}

// say sends a frame.
func (c *caller) say(v any) {
	c.t.Helper()
	b, err := json.Marshal(v)
	require.NoError(c.t, err)
	require.NoError(c.t, c.conn.Write(c.t.Context(), websocket.MessageText, b))
}

// ack acknowledges.
func (c *caller) ack(ids ...string) { c.say(map[string][]string{"ack": ids}) }

// barrier returns what came before the answer to a message that is sent now: whatever
// else the line had to say has been said.
func (c *caller) barrier(id string) (before []said) {
	c.t.Helper()
	c.say(note{ID: id})
	for {
		s := c.hear()
		if len(s.Ack) == 1 && s.Ack[0] == id {
			return before
		}
		before = append(before, s)
	}
}

// closed reads until the connection is closed, and returns what came and with what code.
func (c *caller) closed() (all []said, code websocket.StatusCode) {
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

// metric returns a counter or gauge as the registry shows it, 0 where it has none.
func (h *house) metric(t *testing.T, name string, labels ...string) int {
	t.Helper()
	sum := 0.0
	families, err := h.seen.Gather()
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

// deactivate takes an agent out of service.
func (h *house) deactivate(t *testing.T, id string) {
	t.Helper()
	require.NoError(t, h.db.Write(t.Context(), func(tx *store.Tx) error {
		before, err := tx.Agent(id)
		if err != nil {
			return err
		}
		after := before
		after.IsActive, after.Version = false, before.Version+1
		return tx.UpdateAgent(before, after)
	}))
}

// metricIs waits for a counter or gauge: what is counted is counted after it was done.
func (h *house) metricIs(t *testing.T, want int, name string, labels ...string) {
	t.Helper()
	require.Eventually(t, func() bool { return h.metric(t, name, labels...) == want }, time.Minute, time.Millisecond, "%s %v", name, labels)
}
