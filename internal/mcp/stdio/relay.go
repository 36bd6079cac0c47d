package stdio

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
	"golang.org/x/sync/semaphore"

	"comet/internal/background"
	"comet/internal/input"
)

const (
	// maxInFlight limits the requests of a client without a response; further ones are not read.
	maxInFlight = 1000
	// drainTimeout limits the wait for pending responses after the end of the client's input.
	drainTimeout = 10 * time.Second
	// sendTimeout limits messages that need no work: the initialization of a session, and messages
	// without a response. The next message of the client waits for them.
	sendTimeout = 30 * time.Second
)

// Relay connects a client over in and out, one message per line, with the MCP endpoint at url,
// until the client disconnects or ctx ends. It reads only what the transport needs of each message.
// When the server does not know the session any more, for example after a restart, Relay
// initializes a new one and the client continues.
func Relay(ctx context.Context, in io.ReadCloser, out io.Writer, url, token string, log *slog.Logger) error {
	ctx, cancel := context.WithCancel(ctx)
	r := &relay{
		life: ctx, out: out, url: url, token: token, log: log, slots: semaphore.NewWeighted(maxInFlight),
		http: &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, // the token is for this server
	}
	defer r.running.Wait()
	defer r.unanswered.Wait()
	defer cancel()
	lines, ended := make(chan json.RawMessage), make(chan struct{})
	go func() { // a read of a terminal or pipe cannot be interrupted
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

type relay struct {
	life       context.Context // context of what outlives a single request
	out        io.Writer
	url, token string
	log        *slog.Logger
	http       *http.Client
	unanswered sync.WaitGroup      // requests whose response is pending
	running    sync.WaitGroup      // streams and subscriptions, which last until the client disconnects
	slots      *semaphore.Weighted // one for each running request
	calls      sync.Map            // the context.CancelFunc of each running request by its id

	writing      sync.Mutex // one message to the client at a time
	initializing sync.Mutex // one initialization at a time
	mu           sync.Mutex
	session      relaySession
}

// relaySession is the session at the server with the client's messages that initialized it.
type relaySession struct {
	id, revision   string
	opener, opened *message
}

// message is a message of the client, with the members that the transport needs.
type message struct {
	raw    json.RawMessage
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name      string          `json:"name"`
		TaskID    string          `json:"taskId"`
		URI       string          `json:"uri"`
		RequestID json.RawMessage `json:"requestId"`
		Meta      struct {
			Revision string `json:"io.modelcontextprotocol/protocolVersion"`
		} `json:"_meta"`
	} `json:"params"`
}

// parseMessage reads a message. The server validates its parameters.
func parseMessage(line json.RawMessage) (*message, error) {
	m := &message{raw: line}
	if line[0] == '[' && json.Valid(line) {
		return m, nil
	}
	if _, err := jsonrpc.DecodeMessage(line); err != nil {
		return nil, err
	}
	_ = json.Unmarshal(line, m) // it is valid; parameters of another type are left out
	return m, nil
}

func (m *message) isRequest() bool { return m.Method != "" && len(m.ID) > 0 && string(m.ID) != "null" }

// read sends the lines of the client to the channel, and answers a line over the limit.
func (r *relay) read(ctx context.Context, in io.Reader, to chan<- json.RawMessage) {
	lines := input.NewLineReader(in, maxLine)
	for {
		line, long, err := lines.Next()
		if long != nil {
			r.writeError(nil, lineTooLong())
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			select {
			case to <- bytes.Clone(line):
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			return // a disconnected client is not a failure
		}
	}
}

func (r *relay) forward(ctx context.Context, line json.RawMessage) {
	m, err := parseMessage(line)
	if err != nil {
		r.writeError(DecodeError(line))
		return
	}
	if m.isRequest() && m.Method != "initialize" || line[0] == '[' { // a batch (2025-03-26), may ask
		r.forwardRequest(ctx, m)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	r.mu.Lock()
	switch m.Method {
	case "initialize":
		r.session = relaySession{opener: m}
	case "notifications/cancelled":
		r.endRequest(m.Params.RequestID) // this cancels it in versions without sessions
	case "notifications/initialized":
		r.session.opened = m
	}
	r.mu.Unlock()
	r.send(ctx, m)
}

// forwardRequest sends a request in the background: its response may take long. A batch has no id.
func (r *relay) forwardRequest(ctx context.Context, m *message) {
	if r.slots.Acquire(ctx, 1) != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	if m.isRequest() {
		if _, taken := r.calls.LoadOrStore(string(m.ID), cancel); taken {
			cancel()
			r.slots.Release(1)
			r.writeError(m.ID, InvalidRequest("another running request has the same id"))
			return
		}
	}
	group := &r.unanswered
	if m.Method == "subscriptions/listen" {
		group = &r.running
	}
	group.Go(func() {
		r.send(ctx, m)
		r.endRequest(m.ID)
		cancel()
		r.slots.Release(1)
	})
}

func (r *relay) endRequest(id json.RawMessage) {
	if cancel, ok := r.calls.LoadAndDelete(string(id)); ok {
		cancel.(context.CancelFunc)()
	}
}

func (r *relay) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	_ = background.WaitFor(ctx, r.unanswered.Wait)
}

func (r *relay) writeMessage(msg []byte) {
	var line bytes.Buffer
	if err := json.Compact(&line, msg); err != nil {
		r.log.Warn("the server sent invalid JSON", "error", err)
		return
	}
	line.WriteByte('\n')
	r.writing.Lock()
	defer r.writing.Unlock()
	if _, err := r.out.Write(line.Bytes()); err != nil {
		r.log.Debug("a message cannot be written to the client", "error", err)
	}
}

func (r *relay) writeError(id json.RawMessage, e *jsonrpc.Error) {
	answer, _ := json.Marshal(ErrorResponse(id, e)) // of what is JSON
	r.writeMessage(answer)
}
