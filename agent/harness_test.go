package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"comet/agent"
	"comet/internal/wire/envelope"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	minute = time.Minute
	soon   = 2 * time.Millisecond
)

// verdict is what the server does with a message.
type verdict int

const (
	acknowledge verdict = iota
	ignore              // neither acknowledge nor close
	cutBefore           // close before the effect
	cutAfter            // close after the effect, before the acknowledgement
	unable              // reject with a 5002 of the server itself
)

// server is the server side of the agent's connection.
type server struct {
	t   *testing.T
	url string
	// judge decides about a message; nth counts all messages. Set it before connecting.
	judge func(e envelope.Envelope, nth int) verdict
	hello agent.Hello

	mu          sync.Mutex
	conn        *websocket.Conn
	connections int
	nth         int
	effects     []envelope.Envelope // each message once, without heartbeats
	beats       []envelope.Heartbeat
	known       map[uuid.UUID]bool
	repeats     int
	owed        []owed // messages that the agent has not acknowledged
	refuse      int
	times       int // how many connections it rejects, 0 for all
	refused     int
	instead     envelope.Payload // is sent instead of the hello
}

type owed struct {
	id   uuid.UUID
	data []byte
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{
		t: t, known: map[uuid.UUID]bool{}, judge: func(envelope.Envelope, int) verdict { return acknowledge },
		hello: agent.Hello{AgentID: "deployer", AgentType: "infra", Version: "1.0", HeartbeatSeconds: 15},
	}
	h := httptest.NewServer(http.HandlerFunc(s.connect))
	t.Cleanup(func() {
		s.cut()
		h.Close()
		h.Client().CloseIdleConnections()
	})
	s.url = h.URL
	return s
}

func (s *server) connect(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	status := s.refuse
	if s.refused++; s.times > 0 && s.refused > s.times {
		status = 0
	}
	s.mu.Unlock()
	if status != 0 {
		w.WriteHeader(status)
		_, _ = fmt.Fprint(w, `{"title":"Not authenticated","detail":"the token is not valid"}`)
		return
	}
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"envelope.v1"}})
	if err != nil {
		return
	}
	defer func() { _ = conn.CloseNow() }()
	conn.SetReadLimit(-1)
	hello, _ := json.Marshal(map[string]any{"hello": s.hello})
	if s.instead != nil {
		hello, _ = envelope.Format(envelope.Reply(envelope.Envelope{}, uuid.New(), time.Now(), s.instead))
	}
	if conn.Write(r.Context(), websocket.MessageText, hello) != nil {
		return
	}
	s.mu.Lock()
	s.conn = conn
	s.connections++
	again := append([]owed(nil), s.owed...)
	s.mu.Unlock()
	for _, o := range again {
		_ = conn.Write(r.Context(), websocket.MessageText, o.data)
	}
	for {
		_, data, err := conn.Read(r.Context())
		if err != nil || !s.take(r.Context(), conn, data) {
			return
		}
	}
}

// take handles a frame and reports whether the connection stays open.
func (s *server) take(ctx context.Context, conn *websocket.Conn, data []byte) bool {
	var f struct {
		Type *string
		Ack  []uuid.UUID
	}
	_ = json.Unmarshal(data, &f)
	if f.Type == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		left := s.owed[:0]
		for _, o := range s.owed {
			done := false
			for _, id := range f.Ack {
				done = done || id == o.id
			}
			if !done {
				left = append(left, o)
			}
		}
		s.owed = left
		return true
	}
	e, err := envelope.Parse(data)
	if err != nil {
		s.t.Errorf("the agent sent an invalid envelope: %s: %s", err, data)
		return false
	}
	s.mu.Lock()
	s.nth++
	v := s.judge(e, s.nth)
	if v != cutBefore && v != ignore && v != unable {
		s.effect(e)
	}
	s.mu.Unlock()
	switch v {
	case unable:
		refusal, _ := envelope.Format(envelope.Reply(e, uuid.New(), time.Now(), envelope.Unavailable(envelope.Orchestrator, nil)))
		return conn.Write(ctx, websocket.MessageText, refusal) == nil
	case acknowledge:
		ack, _ := json.Marshal(map[string]any{"ack": []uuid.UUID{e.MessageID}})
		return conn.Write(ctx, websocket.MessageText, ack) == nil
	}
	return v == ignore
}

func (s *server) effect(e envelope.Envelope) {
	if b, ok := e.Payload.(envelope.Heartbeat); ok {
		s.beats = append(s.beats, b)
		return
	}
	if s.known[e.MessageID] {
		s.repeats++
		return
	}
	s.known[e.MessageID] = true
	s.effects = append(s.effects, e)
}

// cut closes the connection.
func (s *server) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		_ = s.conn.CloseNow()
		s.conn = nil
	}
}

// send sends an envelope on every connection until it is acknowledged.
func (s *server) send(e envelope.Envelope) {
	s.t.Helper()
	data, err := envelope.Format(e)
	require.NoError(s.t, err)
	s.mu.Lock()
	s.owed = append(s.owed, owed{e.MessageID, data})
	conn := s.conn
	s.mu.Unlock()
	if conn != nil {
		_ = conn.Write(context.Background(), websocket.MessageText, data)
	}
}

// of returns the messages about a request so far.
func (s *server) of(request uuid.UUID) (all []envelope.Envelope) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.effects {
		if e.RequestID == request {
			all = append(all, e)
		}
	}
	return all
}

// results returns the results and errors of a request so far.
func (s *server) results(request uuid.UUID) (all []envelope.Envelope) {
	for _, e := range s.of(request) {
		if e.Type == envelope.TypeWorkResult || e.Type == envelope.TypeError {
			all = append(all, e)
		}
	}
	return all
}

// output is the output of a request so far, without chunks.
func (s *server) output(request uuid.UUID) (text string) {
	for _, e := range s.of(request) {
		if st, ok := e.Payload.(envelope.WorkStatus); ok && st.Step != nil && st.Step.Chunk == (envelope.Range{}) {
			text += st.Step.Output
		}
	}
	return text
}

// counts returns the number of connections and of redelivered messages.
func (s *server) counts() (connections, repeats int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connections, s.repeats
}

func (s *server) connected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn != nil
}

// request is a new request.
func request(workType, parameters string) envelope.Envelope {
	return envelope.Envelope{
		ProtocolVersion: "1.0", MessageID: uuid.New(), From: "orchestrator", To: "infra", Timestamp: time.Now(),
		TraceID: uuid.New(), RequestID: uuid.New(), Type: envelope.TypeWorkRequest,
		Payload: envelope.WorkRequest{TaskID: uuid.New(), WorkType: workType, Parameters: json.RawMessage(parameters)},
	}
}

// hinted adds hints to a request.
func hinted(e envelope.Envelope, h envelope.Hints) envelope.Envelope {
	p := e.Payload.(envelope.WorkRequest)
	p.Hints = h
	e.Payload = p
	return e
}

// cancelling is the cancellation of a request.
func cancelling(e envelope.Envelope) envelope.Envelope {
	out := request(envelope.WorkTypeCancel, "{}")
	out.Payload = envelope.WorkRequest{TaskID: e.Payload.(envelope.WorkRequest).TaskID, WorkType: envelope.WorkTypeCancel}
	return out
}

// attempt is the same request in a new message.
func attempt(e envelope.Envelope) envelope.Envelope {
	e.MessageID = uuid.New()
	return e
}

// setup runs an agent against a server until the test ends or stop is called; stop returns what
// Run returned.
func setup(t *testing.T, s *server, opts *agent.Options, handlers map[string]agent.Handler) (stop func() error) {
	t.Helper()
	if opts == nil {
		opts = &agent.Options{}
	}
	if opts.Drain == 0 {
		opts.Drain = -1
	}
	transport := &http.Transport{}
	opts.Client = &http.Client{Transport: transport}
	a, err := agent.New(s.url, "secret", opts.Backoff(time.Millisecond, 5*time.Millisecond))
	require.NoError(t, err)
	for name, h := range handlers {
		a.Handle(name, h)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	var result error
	go func() {
		defer close(ended)
		result = a.Run(ctx)
	}()
	stop = func() error {
		cancel()
		<-ended
		transport.CloseIdleConnections()
		return result
	}
	t.Cleanup(func() { _ = stop() })
	require.Eventually(t, s.connected, minute, soon)
	return stop
}

// eventually waits for the result of a request.
func (s *server) eventually(e envelope.Envelope) envelope.Envelope {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return len(s.results(e.RequestID)) > 0 }, minute, soon)
	return s.results(e.RequestID)[0]
}
