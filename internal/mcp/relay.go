package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

const (
	// maxInFlight is how many requests of a client may wait for their answers; further ones
	// wait to be read.
	maxInFlight = 1000
	// drainTimeout is for how long a client that says no more may hear what it has asked.
	drainTimeout = 10 * time.Second
	// sendTimeout is for how long the server may take what needs no work: the beginning of a
	// session, and what wants no answer. What the client says next waits for it.
	sendTimeout = 30 * time.Second
)

// Relay connects a client that speaks over in and out, a message a line, with the /mcp at
// url, message by message, until the client goes or ctx ends. It understands no more of them
// than what the transport wants to know of each, and how a session begins: where the server
// has forgotten it, which a restart makes it do, it is begun again, and the client goes on.
func Relay(ctx context.Context, in io.ReadCloser, out io.Writer, url, token string, log *slog.Logger) error {
	ctx, cancel := context.WithCancel(ctx)
	r := &relay{
		life: ctx, out: out, url: url, token: token, log: log, calls: map[string]context.CancelFunc{}, slots: make(chan struct{}, maxInFlight),
		http: &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, // the token is for this server
	}
	defer r.running.Wait()
	defer cancel()
	lines, ended := make(chan json.RawMessage), make(chan struct{})
	go func() { // a read of a terminal or pipe is not to be interrupted
		defer close(ended)
		r.read(ctx, in, lines)
	}()
	for {
		select {
		case <-ctx.Done():
			r.closeSession()
			return nil
		case line := <-lines:
			r.forward(ctx, line)
		case <-ended:
			r.drain(ctx)
			r.closeSession()
			return nil
		}
	}
}

// relay is one client's connection.
type relay struct {
	life       context.Context // of what is for no single request
	out        io.Writer
	url, token string
	log        *slog.Logger
	http       *http.Client
	running    sync.WaitGroup
	unanswered sync.WaitGroup // of them, the requests that will be answered
	slots      chan struct{}  // has one for each request under way

	writing      sync.Mutex // one message to the client at a time
	initializing sync.Mutex // one beginning of a session at a time
	mu           sync.Mutex
	calls        map[string]context.CancelFunc // by id, the requests under way
	session      relaySession
}

// relaySession is what the server knows a client by, in the revisions that have sessions, and what
// the client said to begin it.
type relaySession struct {
	id, revision   string
	opener, opened *message
}

// message is what a client says, and what the transport has to know of it.
type message struct {
	raw    json.RawMessage
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	params struct {
		Name      string          `json:"name"`
		URI       string          `json:"uri"`
		RequestID json.RawMessage `json:"requestId"`
		Meta      struct {
			Revision string `json:"io.modelcontextprotocol/protocolVersion"`
		} `json:"_meta"`
	}
}

// parseMessage reads a message. What it has for parameters is the server's to refuse.
func parseMessage(line json.RawMessage) (*message, error) {
	m := &message{raw: line}
	if line[0] == '[' && json.Valid(line) {
		return m, nil
	}
	if _, err := jsonrpc.DecodeMessage(line); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(line, m); err != nil {
		return nil, err
	}
	var rest struct {
		Params json.RawMessage `json:"params"`
	}
	if json.Unmarshal(line, &rest) == nil {
		_ = json.Unmarshal(rest.Params, &m.params)
	}
	return m, nil
}

// isRequest reports whether the message wants an answer.
func (m *message) isRequest() bool { return m.Method != "" && len(m.ID) > 0 && string(m.ID) != "null" }

// read hands on the lines of the client until there are no more. One that is too long is
// answered, and left out.
func (r *relay) read(ctx context.Context, in io.Reader, to chan<- json.RawMessage) {
	lines := boundedLines(in, maxLine, func() { r.writeError(nil, jsonrpc.CodeInvalidRequest, lineTooLongText()) })
	for lines.Scan() { // a client that is gone is no failure
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		select {
		case to <- bytes.Clone(line):
		case <-ctx.Done():
			return
		}
	}
}

// forward carries a message of the client to the server.
func (r *relay) forward(ctx context.Context, line json.RawMessage) {
	m, err := parseMessage(line)
	if err != nil {
		id, problem := decodeError(line)
		r.writeError(id, problem.Code, problem.Message)
		return
	}
	if m.isRequest() && m.Method != "initialize" || line[0] == '[' { // a batch, as 2025-03-26 has them, may ask
		r.forwardRequest(ctx, m)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	switch m.Method {
	case "initialize":
		r.mu.Lock()
		r.session = relaySession{opener: m}
		r.mu.Unlock()
		r.initialize(ctx, m)
	case "notifications/cancelled":
		r.endRequest(m.params.RequestID) // for a server without sessions that is what cancels it
		r.send(ctx, m)
	case "notifications/initialized":
		r.mu.Lock()
		r.session.opened = m
		r.mu.Unlock()
		r.send(ctx, m)
	default:
		r.send(ctx, m)
	}
}

// forwardRequest makes a request whose answer may be long in coming: others do not wait for it.
func (r *relay) forwardRequest(ctx context.Context, m *message) {
	select {
	case r.slots <- struct{}{}:
	case <-ctx.Done():
		return
	}
	ctx, cancel, ok := r.beginRequest(ctx, m)
	if !ok {
		<-r.slots
		r.writeError(m.ID, jsonrpc.CodeInvalidRequest, "the id is that of a request under way")
		return
	}
	lasts := m.Method == "subscriptions/listen" // until the client goes
	if !lasts {
		r.unanswered.Add(1)
	}
	r.running.Go(func() {
		r.send(ctx, m)
		r.endRequest(m.ID)
		cancel()
		<-r.slots
		if !lasts {
			r.unanswered.Done()
		}
	})
}

// beginRequest notes a request, which has an id of its own unless it is a batch.
func (r *relay) beginRequest(ctx context.Context, m *message) (inner context.Context, cancel context.CancelFunc, ok bool) {
	inner, cancel = context.WithCancel(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.isRequest() {
		if r.calls[string(m.ID)] != nil {
			cancel()
			return nil, nil, false
		}
		r.calls[string(m.ID)] = cancel
	}
	return inner, cancel, true
}

// endRequest ends a request.
func (r *relay) endRequest(id json.RawMessage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if cancel := r.calls[string(id)]; cancel != nil {
		cancel()
		delete(r.calls, string(id))
	}
}

// drain waits for the answers to what the client has asked.
func (r *relay) drain(ctx context.Context) {
	answered := make(chan struct{})
	r.running.Go(func() { r.unanswered.Wait(); close(answered) })
	late := time.NewTimer(drainTimeout)
	defer late.Stop()
	select {
	case <-answered:
	case <-late.C:
	case <-ctx.Done():
	}
}

// writeMessage says something to the client.
func (r *relay) writeMessage(msg []byte) {
	var line bytes.Buffer
	if err := json.Compact(&line, msg); err != nil {
		r.log.Warn("the server says what is no JSON", "error", err)
		return
	}
	line.WriteByte('\n')
	r.writing.Lock()
	defer r.writing.Unlock()
	if _, err := r.out.Write(line.Bytes()); err != nil {
		r.log.Debug("the client does not take a message", "error", err)
	}
}

// writeError answers a request with an error.
func (r *relay) writeError(id json.RawMessage, code int64, sentence string) {
	answer, _ := json.Marshal(errorResponse(rawID(id), &jsonrpc.Error{Code: code, Message: sentence})) // of what is JSON
	r.writeMessage(answer)
}
