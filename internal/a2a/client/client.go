// Package client sends requests of the A2A protocol to agents: version 1.0 over JSON-RPC and HTTP+JSON, and version 0.3 over
// JSON-RPC. It limits the responses that it reads, and distinguishes failures of the connection from failures of the agent
// (docs/adr/0061-remote-a2a-agents.md).
package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"comet/internal/a2a/wire"
	"comet/internal/errs"
	"comet/internal/input"
)

// Limits of responses and streams.
const (
	maxResponse = 12 << 20 // bytes of a response or an event: a result of 8 MiB in Base64
	maxFailure  = 64 << 10 // bytes of the response to a request that failed
	maxEvents   = 100_000  // of a stream
)

// Options configures requests.
type Options struct {
	// Transport makes the connections.
	Transport http.RoundTripper
	// Header and Value are added to each request unless they are "", such as Authorization.
	Header, Value string
	UserAgent     string
	// Timeout limits a request, and the time to the first byte of a stream; default 10 s.
	Timeout time.Duration
	// Silence ends a stream without events, default 10 s.
	Silence time.Duration
}

// Client sends requests to an interface of an agent.
type Client struct {
	opts     Options
	endpoint a2a.AgentInterface
}

// New returns a client.
func New(o Options, e a2a.AgentInterface) *Client {
	o.Timeout, o.Silence = cmp.Or(o.Timeout, 10*time.Second), cmp.Or(o.Silence, 10*time.Second)
	return &Client{o, e}
}

func (c *Client) legacy() bool { return c.endpoint.ProtocolVersion == "0.3" }

// operation is a method in each binding and version. The verb of an operation that only reads is "".
type operation struct{ name, legacy, verb string }

//nolint:gochecknoglobals // constants
var (
	sendMessage     = operation{"SendMessage", "message/send", ":send"}
	streamMessage   = operation{"SendStreamingMessage", "message/stream", ":stream"}
	getTask         = operation{"GetTask", "tasks/get", ""}
	cancelTask      = operation{"CancelTask", "tasks/cancel", ":cancel"}
	subscribeToTask = operation{"SubscribeToTask", "tasks/resubscribe", ":subscribe"}
)

// Each is called with an event and its id, "" for none. Its error ends the stream.
type Each func(id string, e a2a.Event) error

// request is the request of an operation: with a message, or on a task.
type request struct {
	operation
	message        *a2a.Message
	taskID, lastID string
}

// Send sends a message and returns the task as it is then, or a message. The agent does not wait for the end of the task.
func (c *Client) Send(ctx context.Context, m *a2a.Message) (a2a.Event, error) {
	return c.call(ctx, request{operation: sendMessage, message: m})
}

// Get returns a task.
func (c *Client) Get(ctx context.Context, taskID string) (a2a.Event, error) {
	return c.call(ctx, request{operation: getTask, taskID: taskID})
}

// Cancel cancels a task.
func (c *Client) Cancel(ctx context.Context, taskID string) (a2a.Event, error) {
	return c.call(ctx, request{operation: cancelTask, taskID: taskID})
}

// Stream sends a message and calls each with the events of its task until the stream ends. It returns the error of each.
func (c *Client) Stream(ctx context.Context, m *a2a.Message, each Each) error {
	return c.do(ctx, request{operation: streamMessage, message: m}, each)
}

// Subscribe is Stream for a task. Agents that can resume a stream continue after the event lastID, "" for none.
func (c *Client) Subscribe(ctx context.Context, taskID, lastID string, each Each) error {
	return c.do(ctx, request{operation: subscribeToTask, taskID: taskID, lastID: lastID}, each)
}

// call executes an operation without a stream.
func (c *Client) call(ctx context.Context, r request) (out a2a.Event, err error) {
	err = c.do(ctx, r, func(_ string, e a2a.Event) error {
		out = e
		return nil
	})
	return out, err
}

// encode returns the HTTP request.
func (c *Client) encode(ctx context.Context, r request) (*http.Request, error) {
	address, method, params := c.endpoint.URL, http.MethodPost, map[string]any{}
	if r.message != nil {
		text, err := json.Marshal(r.message)
		if err != nil {
			return nil, err
		}
		params["configuration"] = map[string]any{"returnImmediately": true}
		if c.legacy() {
			text, params["configuration"] = wire.Convert(text, true), map[string]any{"blocking": false}
		}
		params["message"] = json.RawMessage(text)
	}
	var body any
	switch {
	case c.endpoint.ProtocolBinding == a2a.TransportProtocolHTTPJSON:
		address = strings.TrimSuffix(address, "/")
		if c.endpoint.Tenant != "" {
			address += "/" + url.PathEscape(c.endpoint.Tenant)
		}
		if body = params; r.message != nil {
			address += "/message" + r.verb
		} else if address += "/tasks/" + url.PathEscape(r.taskID) + r.verb; r.verb == "" {
			method, address, body = http.MethodGet, address+"?historyLength=0", nil
		}
	default:
		if r.message == nil {
			params["id"] = r.taskID
		}
		if r.verb == "" {
			params["historyLength"] = 0
		}
		name := r.legacy
		if !c.legacy() {
			if name = r.name; c.endpoint.Tenant != "" {
				params["tenant"] = c.endpoint.Tenant
			}
		}
		body = map[string]any{"jsonrpc": "2.0", "id": 1, "method": name, "params": params}
	}
	var content bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&content).Encode(body); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, address, &content)
	if err != nil {
		return nil, err
	}
	req.Header.Set("A2A-Version", string(c.endpoint.ProtocolVersion))
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.message != nil {
		if trace, _ := r.message.Metadata["traceparent"].(string); trace != "" {
			req.Header.Set("Traceparent", trace)
		}
	}
	return req, nil
}

// do sends a request and calls each with its result, or with the events of its stream.
func (c *Client) do(ctx context.Context, r request, each Each) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watch := time.AfterFunc(c.opts.Timeout, cancel) // without a response, or without events
	defer watch.Stop()
	req, err := c.encode(ctx, r)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	if r.operation == streamMessage || r.operation == subscribeToTask {
		req.Header.Set("Accept", "text/event-stream")
	}
	if r.lastID != "" {
		req.Header.Set("Last-Event-ID", r.lastID)
	}
	resp, err := c.opts.send(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if err := checkStatus(resp); err != nil {
		return err
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if kind == "text/event-stream" && req.Header.Get("Accept") == kind {
		return c.readStream(resp.Body, watch, each)
	}
	raw, err := readAll(resp, maxResponse) // also of an agent that does not stream this task
	if err != nil {
		return err
	}
	e, err := c.decode(raw, r.operation == getTask || r.operation == cancelTask)
	if err != nil {
		return err
	}
	return each("", e)
}

// decode decodes an event or the result of a request, which is a task if isTask is set.
func (c *Client) decode(raw []byte, isTask bool) (e a2a.Event, err error) {
	if c.endpoint.ProtocolBinding == a2a.TransportProtocolJSONRPC {
		if raw, err = unwrap(raw); err != nil {
			return nil, err
		}
	}
	if e, err = wire.DecodeEvent(raw, c.legacy(), isTask); err != nil {
		return nil, invalid("%s", err.Error())
	}
	return e, nil
}

// readStream reads the events of a stream. It resets watch after each.
func (c *Client) readStream(body io.Reader, watch *time.Timer, each Each) error {
	in := input.NewEventReader(body, maxResponse)
	watch.Reset(c.opts.Silence) // comments are no events
	for n := 0; ; {
		event, err := in.Next()
		switch {
		case event.Long != nil:
			return &Error{Kind: TooLarge, Text: fmt.Sprintf("an event of the remote agent has more than %d bytes", maxResponse)}
		case err != nil:
			return &Error{Kind: Unreachable, Text: "the stream of the remote agent has ended: " + err.Error()}
		case len(event.Data) == 0:
			continue
		}
		if n++; n > maxEvents {
			return &Error{Kind: TooLarge, Text: fmt.Sprintf("the remote agent has sent more than %d events", maxEvents)}
		}
		watch.Stop()
		e, err := c.decode(event.Data, false)
		if err == nil {
			err = each(string(event.ID[:min(len(event.ID), wire.MaxID)]), e)
		}
		if err != nil {
			return err
		}
		watch.Reset(c.opts.Silence)
	}
}

// send sends a request without following redirects, which would bypass the check of the address.
func (o *Options) send(req *http.Request) (*http.Response, error) {
	if o.UserAgent != "" {
		req.Header.Set("User-Agent", o.UserAgent)
	}
	if o.Header != "" {
		req.Header.Set(o.Header, o.Value)
	}
	resp, err := o.Transport.RoundTrip(req)
	if err != nil {
		if refused := errs.From(err); refused.Code == errs.AddressRefused {
			return nil, &Error{Kind: Refused, Text: refused.Detail}
		}
		return nil, &Error{Kind: Unreachable, Text: "the remote agent cannot be reached: " + cause(req, err)}
	}
	return resp, nil
}

// cause is the reason of a failed request without its address, which may contain a secret.
func cause(req *http.Request, err error) string {
	if req.Context().Err() != nil {
		return "it has not responded in time"
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	return err.Error()
}

// readAll reads a response of at most limit bytes.
func readAll(resp *http.Response, limit int64) ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	switch {
	case err != nil:
		return nil, &Error{Kind: Unreachable, Text: "the response of the remote agent is incomplete: " + cause(resp.Request, err)}
	case int64(len(raw)) > limit:
		return nil, &Error{Kind: TooLarge, Text: fmt.Sprintf("the response of the remote agent has more than %d bytes", limit)}
	}
	return raw, nil
}
