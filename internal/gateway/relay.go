package gateway

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Relay connects a client that speaks over one stream, such as stdio, with the /mcp of a
// server, message by message, until the client goes. It understands no more of them than
// that a call that is cancelled ends its request.
func Relay(ctx context.Context, client mcp.Transport, url, token string, log *slog.Logger) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	headers := &bearerHeader{token: token, next: http.DefaultTransport}
	near, err := client.Connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = near.Close() }()
	far, err := (&mcp.StreamableClientTransport{
		Endpoint: url, HTTPClient: headers.client(), MaxRetries: -1, DisableStandaloneSSE: true,
	}).Connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = far.Close() }()
	r := &relay{near: near, far: far, headers: headers, url: url, log: log, calls: map[any]context.CancelFunc{}}
	defer r.running.Wait()
	defer cancel(nil)
	r.running.Go(func() {
		if err := r.back(ctx); err != nil {
			cancel(fmt.Errorf("the connection to the comet server at %s is lost: %w", url, err))
		}
		_ = near.Close() // ends the reading
	})
	return r.forth(ctx)
}

// relay is one client's connection.
type relay struct {
	near, far mcp.Connection
	headers   *bearerHeader
	url       string
	log       *slog.Logger
	running   sync.WaitGroup

	writing sync.Mutex // one message to the client at a time
	mu      sync.Mutex
	calls   map[any]context.CancelFunc // by id, the requests under way
}

// forth carries what the client says to the server, until the client goes.
func (r *relay) forth(ctx context.Context) error {
	for {
		msg, err := r.near.Read(ctx)
		if err != nil {
			return whyOver(ctx, err)
		}
		req, isRequest := msg.(*jsonrpc.Request)
		switch {
		case isRequest && req.IsCall() && req.Method != "initialize":
			// The answer to a call may be long in coming, and others must not wait for it.
			inner := r.begin(ctx, req.ID)
			r.running.Go(func() { r.send(inner, req) })
		case isRequest && req.IsCall():
			r.send(ctx, req)
			r.running.Go(func() { r.listen(ctx) })
		case isRequest && req.Method == "notifications/cancelled":
			r.cancelled(req)
			r.post(ctx, msg)
		default:
			r.post(ctx, msg)
		}
	}
}

// whyOver says why no more of the client's messages can be read: nil where the client, or
// whoever started this, has gone.
func whyOver(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// send makes a call; where it does not reach the server, the client is told so in its answer.
func (r *relay) send(ctx context.Context, req *jsonrpc.Request) {
	err := r.far.Write(ctx, req)
	if err == nil || ctx.Err() != nil {
		return
	}
	r.end(req.ID)
	r.log.Warn("a request does not reach the server", "method", req.Method, "error", err)
	r.tell(ctx, &jsonrpc.Response{ID: req.ID, Error: &jsonrpc.Error{
		Code: jsonrpc.CodeInternalError, Message: fmt.Sprintf("the comet server at %s does not take the request: %v", r.url, err),
	}})
}

func (r *relay) post(ctx context.Context, msg jsonrpc.Message) {
	if err := r.far.Write(ctx, msg); err != nil && ctx.Err() == nil {
		r.log.Warn("a message does not reach the server", "error", err)
	}
}

// back carries what the server says to the client. It returns why it cannot any more, nil
// where ctx has ended.
func (r *relay) back(ctx context.Context) error {
	for {
		msg, err := r.far.Read(ctx)
		if err != nil {
			if ctx.Err() == nil {
				return err
			}
			return nil
		}
		if answer, ok := msg.(*jsonrpc.Response); ok {
			r.end(answer.ID)
		}
		r.tell(ctx, msg)
	}
}

func (r *relay) tell(ctx context.Context, msg jsonrpc.Message) {
	r.writing.Lock()
	defer r.writing.Unlock()
	if err := r.near.Write(ctx, msg); err != nil && ctx.Err() == nil {
		r.log.Debug("the client does not take a message", "error", err)
	}
}

func (r *relay) begin(ctx context.Context, id jsonrpc.ID) context.Context {
	inner, cancel := context.WithCancel(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls[id.Raw()] = cancel
	return inner
}

func (r *relay) end(id jsonrpc.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if cancel := r.calls[id.Raw()]; cancel != nil {
		cancel() // nothing follows the answer
		delete(r.calls, id.Raw())
	}
}

// cancelled ends the request of a call: for a server without sessions that is what cancels it.
func (r *relay) cancelled(req *jsonrpc.Request) {
	var p struct {
		RequestID any `json:"requestId"`
	}
	if json.Unmarshal(req.Params, &p) != nil {
		return
	}
	if f, ok := p.RequestID.(float64); ok {
		p.RequestID = int64(f)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if cancel := r.calls[p.RequestID]; cancel != nil {
		cancel()
		delete(r.calls, p.RequestID)
	}
}

// listen reads what the server says by itself, in the revisions that have a stream for it.
func (r *relay) listen(ctx context.Context) {
	if r.headers.session() == "" {
		return
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url, nil)
	if err != nil {
		return
	}
	req.Header.Set("Accept", "text/event-stream")
	res, err := r.headers.client().Do(req)
	if err != nil {
		return
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return
	}
	for data := range eventData(res.Body) {
		if msg, err := jsonrpc.DecodeMessage(data); err == nil {
			r.tell(ctx, msg)
		}
	}
}

// bearerHeader adds to requests what the server wants with each: the token, and the session
// in the revisions that have one.
type bearerHeader struct {
	token string
	next  http.RoundTripper

	mu sync.Mutex
	id string
}

// client follows no redirect: the token is for the server that was named.
func (b *bearerHeader) client() *http.Client {
	return &http.Client{Transport: b, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func (b *bearerHeader) session() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.id
}

// RoundTrip implements http.RoundTripper.
func (b *bearerHeader) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	id := b.session()
	if b.token != "" {
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	if id != "" && r.Header.Get("Mcp-Session-Id") == "" && r.Header.Get("Mcp-Protocol-Version") < stateless {
		r.Header.Set("Mcp-Session-Id", id)
	}
	res, err := b.next.RoundTrip(r)
	if err == nil && res.Header.Get("Mcp-Session-Id") != "" {
		b.mu.Lock()
		b.id = res.Header.Get("Mcp-Session-Id")
		b.mu.Unlock()
	}
	return res, err
}

// maxEvent is how long an event of a stream may be, in bytes.
const maxEvent = 16 << 20

// eventData yields the data of each event of a stream (Server-sent events).
func eventData(stream io.Reader) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		lines := bufio.NewScanner(stream)
		lines.Buffer(nil, maxEvent)
		var data []byte
		for lines.Scan() {
			line := lines.Bytes()
			switch value, ok := bytes.CutPrefix(line, []byte("data:")); {
			case ok:
				if len(data) > 0 {
					data = append(data, '\n')
				}
				data = append(data, bytes.TrimPrefix(value, []byte(" "))...)
			case len(line) == 0 && len(data) > 0:
				if !yield(data) {
					return
				}
				data = nil
			}
		}
	}
}
