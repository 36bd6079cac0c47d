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

// verdict is what becomes of a message that reached the server.
type verdict int

const (
	acknowledge verdict = iota
	ignore              // as one that is still being stored
	cutBefore           // the line breaks before the effect
	cutAfter            // the line breaks after the effect, before the acknowledgement
	unable              // refused with a 5002 of the server itself, and not acknowledged
)

// server is the other end of the agent's line.
type server struct {
	t   *testing.T
	url string
	// judge decides about a message; nth counts all that came. Set it before connecting.
	judge func(e envelope.Envelope, nth int) verdict
	hello agent.Hello

	mu      sync.Mutex
	line    *websocket.Conn
	lines   int
	nth     int
	effects []envelope.Envelope // each message once, heartbeats left out
	beats   []envelope.Heartbeat
	known   map[uuid.UUID]bool
	repeats int
	owed    []owed // what the agent has not acknowledged
	refuse  int
	times   int // how often it refuses, 0 for ever
	refused int
	instead envelope.Payload // of the hello
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
	s.line = conn
	s.lines++
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

// take handles a frame and reports whether the line stays.
func (s *server) take(ctx context.Context, conn *websocket.Conn, data []byte) bool {
	var f struct {
		Type *string
		Ack  []uuid.UUID
	}
	_ = json.Unmarshal(data, &f)
	if f.Type == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		kept := s.owed[:0]
		for _, o := range s.owed {
			done := false
			for _, id := range f.Ack {
				done = done || id == o.id
			}
			if !done {
				kept = append(kept, o)
			}
		}
		s.owed = kept
		return true
	}
	e, err := envelope.Parse(data)
	if err != nil {
		s.t.Errorf("the agent sent what is no envelope: %s: %s", err, data)
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

// cut breaks the line.
func (s *server) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.line != nil {
		_ = s.line.CloseNow()
		s.line = nil
	}
}

// send sends an envelope until it is acknowledged, on every line.
func (s *server) send(e envelope.Envelope) {
	s.t.Helper()
	data, err := envelope.Format(e)
	require.NoError(s.t, err)
	s.mu.Lock()
	s.owed = append(s.owed, owed{e.MessageID, data})
	line := s.line
	s.mu.Unlock()
	if line != nil {
		_ = line.Write(context.Background(), websocket.MessageText, data)
	}
}

// of returns what came about a request so far.
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

// results returns the final answers to a request so far.
func (s *server) results(request uuid.UUID) (all []envelope.Envelope) {
	for _, e := range s.of(request) {
		if e.Type == envelope.TypeWorkResult || e.Type == envelope.TypeError {
			all = append(all, e)
		}
	}
	return all
}

// output puts together what a request put out on the way, without chunks.
func (s *server) output(request uuid.UUID) (text string) {
	for _, e := range s.of(request) {
		if st, ok := e.Payload.(envelope.WorkStatus); ok && st.Step != nil && st.Step.Chunk == (envelope.Range{}) {
			text += st.Step.Output
		}
	}
	return text
}

// counts returns how many lines there were, and how many messages came again.
func (s *server) counts() (lines, repeats int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lines, s.repeats
}

func (s *server) connected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.line != nil
}

// request is a fresh piece of work.
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

// cancelling takes a request back.
func cancelling(e envelope.Envelope) envelope.Envelope {
	out := request(envelope.WorkTypeCancel, "{}")
	out.Payload = envelope.WorkRequest{TaskID: e.Payload.(envelope.WorkRequest).TaskID, WorkType: envelope.WorkTypeCancel}
	return out
}

// attempt is the same request once more.
func attempt(e envelope.Envelope) envelope.Envelope {
	e.MessageID = uuid.New()
	return e
}

// setup runs an agent against a server until the test ends or stop is called, which
// returns what Run did.
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

// eventually waits for the final answer to a request.
func (s *server) eventually(e envelope.Envelope) envelope.Envelope {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return len(s.results(e.RequestID)) > 0 }, minute, soon)
	return s.results(e.RequestID)[0]
}
