package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/input"
)

const (
	// directPrefix begins the ids of direct calls. The SDK's ids are numbers.
	directPrefix = "comet-"
	// cancelTimeout limits the notification of a cancelled call.
	cancelTimeout = 2 * time.Second
	// statelessVersion is the first protocol version whose requests carry the version and the
	// capabilities of the client.
	statelessVersion = "2026-07-28"
)

// directCalls makes tool calls on the connection of a session without the SDK: the arguments are
// written as they are, and the result is read as it is. A response over HTTP that is more than the
// result is left to the SDK.
type directCalls struct {
	last atomic.Int64
	meta []byte      // members of every _meta
	head http.Header // of requests over HTTP
}

// newDirectCalls returns the calls of a connected session.
func newDirectCalls(s *session) *directCalls {
	d := &directCalls{head: http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}}
	version := s.client.InitializeResult().ProtocolVersion
	d.head.Set("Mcp-Protocol-Version", version)
	if id := s.client.ID(); id != "" {
		d.head.Set("Mcp-Session-Id", id)
	}
	if version >= statelessVersion {
		capabilities := `{"elicitation":{"form":{}}}`
		if len(s.launch.Roots) > 0 {
			capabilities = `{"roots":{},"elicitation":{"form":{}}}`
		}
		info, _ := json.Marshal(s.implementation()) // cannot fail
		d.meta = appendMember(d.meta, mcp.MetaKeyProtocolVersion, strconv.AppendQuote(nil, version))
		d.meta = appendMember(d.meta, mcp.MetaKeyClientInfo, info)
		d.meta = appendMember(d.meta, mcp.MetaKeyClientCapabilities, []byte(capabilities))
		d.head.Set("Mcp-Method", "tools/call")
	}
	if s.http != nil {
		maps.Copy(d.head, s.http.headers)
	}
	return d
}

// message returns the request of a call.
func (d *directCalls) message(id, tool string, args json.RawMessage, meta mcp.Meta) []byte {
	members := d.meta
	for name, value := range meta {
		text, _ := json.Marshal(value) // a progress token cannot fail
		members = appendMember(bytes.Clone(members), name, text)
	}
	name, _ := json.Marshal(tool) // a string cannot fail
	out := make([]byte, 0, len(args)+len(members)+len(name)+128)
	out = append(append(out, `{"jsonrpc":"2.0","id":"`...), id...)
	out = append(append(out, `","method":"tools/call","params":{"name":`...), name...)
	out = append(append(out, `,"arguments":`...), args...)
	if len(members) > 0 {
		out = append(append(append(out, `,"_meta":{`...), members...), '}')
	}
	return append(out, "}}"...)
}

// callTool calls a tool and returns its result.
func (s *session) callTool(ctx context.Context, tool string, args json.RawMessage, r round) (*Result, error) {
	hasHeaders := s.http != nil && (s.catalogue.Load().names[tool] || s.http.closed() || s.http.origin.User != nil)
	if hasHeaders || r.state != "" || r.answers != nil {
		return s.callBySDK(ctx, tool, args, r)
	}
	id := directPrefix + strconv.FormatInt(s.direct.last.Add(1), 10)
	if bytes.ContainsAny(args, "\r\n") { // a message over stdio is one line
		plain := jsontext.Value(bytes.Clone(args))
		if err := plain.Compact(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)); err != nil {
			return nil, err
		}
		args = json.RawMessage(plain)
	}
	message := s.direct.message(id, tool, args, r.meta)
	if s.stdio != nil {
		raw, err := s.stdio.request(ctx, id, append(message, '\n'))
		if ctx.Err() != nil {
			go s.cancelDirect(ctx, id) // ends within cancelTimeout
		}
		if err != nil {
			return nil, err
		}
		return readResult(raw)
	}
	raw, rest, err := s.postCall(ctx, id, tool, message, &r.call.read)
	var res *Result
	switch {
	case rest != nil:
		res, err = s.callBySDK(context.WithValue(ctx, handoverKey{}, rest), tool, args, r)
		rest.close()
	case err == nil:
		res, err = readResult(raw)
	}
	if ctx.Err() != nil {
		go s.cancelDirect(ctx, id) // ends within cancelTimeout
	}
	return res, err
}

// callBySDK calls a tool through the SDK's session.
func (s *session) callBySDK(ctx context.Context, tool string, args json.RawMessage, r round) (*Result, error) {
	res, err := s.client.CallTool(ctx, &mcp.CallToolParams{
		Meta: r.meta, Name: tool, Arguments: args, InputResponses: r.answers, RequestState: r.state,
	})
	if err != nil {
		return nil, err
	}
	return NewResult(res), nil
}

// cancelDirect notifies the upstream of a cancelled call.
func (s *session) cancelDirect(ctx context.Context, id string) {
	message := []byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"reason":"` + ctx.Err().Error() + `","requestId":"` + id + `"}}`)
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
	defer stop()
	defer context.AfterFunc(s.life, stop)()
	if s.stdio != nil {
		_ = s.stdio.send(ctx, append(message, '\n'))
		return
	}
	head := s.direct.head.Clone()
	if head.Get("Mcp-Method") != "" {
		head.Set("Mcp-Method", "notifications/cancelled")
	}
	if resp, err := s.post(ctx, head, message); err == nil {
		_ = resp.Body.Close()
	}
}

// readReply reads a response to a direct call: its id and either the result or the error. It reports
// whether msg is one.
func readReply(msg []byte) (id string, result []byte, problem *jsonrpc.Error, ok bool) {
	version := false
	ok = input.EachMember(msg, func(name string, value []byte) bool {
		switch name {
		case "jsonrpc":
			version = string(value) == `"2.0"`
		case "id":
			id, _ = input.JSONString(value)
		case "result":
			result = value
		case "error":
			problem = &jsonrpc.Error{}
			return value[0] == '{' && json.Unmarshal(value, problem) == nil
		case "method":
			return false
		}
		return true
	})
	return id, result, problem, ok && version && strings.HasPrefix(id, directPrefix) && (result == nil) != (problem == nil)
}

// asError returns nil for nil.
func asError(problem *jsonrpc.Error) error {
	if problem == nil {
		return nil
	}
	return problem
}

// post sends a message. The response is unfiltered, and a redirect is not followed.
func (s *session) post(ctx context.Context, head http.Header, message []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.launch.URL, bytes.NewReader(message))
	if err != nil {
		return nil, err
	}
	req.Header = head
	resp, err := s.http.base.RoundTrip(req)
	if err != nil {
		return nil, &url.Error{Op: "Post", URL: req.URL.Redacted(), Err: err}
	}
	return resp, nil
}

// postCall sends a call and reads its result. If the response is more than that, such as a stream
// with other messages or an error of HTTP, it returns the rest of it for the SDK. It sets read if the
// response was read to its end.
func (s *session) postCall(ctx context.Context, id, tool string, message []byte, read *bool) (raw []byte, rest *handover, err error) {
	head := s.direct.head.Clone()
	if head.Get("Mcp-Method") != "" {
		head.Set("Mcp-Name", tool)
	}
	resp, err := s.post(ctx, head, message)
	if err != nil {
		return nil, nil, err
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case resp.StatusCode == http.StatusOK && kind == "application/json":
		buf := bytes.NewBuffer(make([]byte, 0, max(min(resp.ContentLength, int64(s.opts.MaxMessage)), 0)+bytes.MinRead))
		_, err := buf.ReadFrom(io.LimitReader(resp.Body, int64(s.opts.MaxMessage)+1))
		data := buf.Bytes()
		if got, result, problem, ok := readReply(data); err == nil && ok && got == id && len(data) <= s.opts.MaxMessage {
			_, *read = resp.Body.Close(), true
			return result, nil, asError(problem)
		}
		body := io.MultiReader(bytes.NewReader(data), resp.Body)
		if err != nil {
			body = io.MultiReader(bytes.NewReader(data), failingReader{err})
		}
		resp.Body = &limitedBody{Reader: body, Closer: resp.Body}
	case resp.StatusCode == http.StatusOK && kind == "text/event-stream":
		events := s.http.newEventFilter(resp.Body)
		raw, problem, found := events.readDirect(id)
		if found {
			go func() { // until the end, so that the connection can be reused; the context ends within drainTimeout
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}()
			return raw, nil, asError(problem)
		}
		resp.Body = events
	}
	rest = &handover{id: id}
	rest.resp.Store(resp)
	return nil, rest, nil
}

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

// readDirect reads events until the response to a direct call. It returns false for a stream that is
// for the SDK, whose next event the filter keeps.
func (f *eventFilter) readDirect(id string) (result []byte, problem *jsonrpc.Error, found bool) {
	for {
		e, err := f.in.Next()
		isMessage := len(e.Name) == 0 || string(e.Name) == "message"
		if isMessage && e.Long == nil && len(e.Data) > 0 {
			if got, result, problem, ok := readReply(e.Data); ok && got == id {
				return bytes.Clone(result), problem, true
			}
		}
		skipped := err == nil && e.Long == nil
		if skipped && isMessage && len(e.Data) > 0 {
			msg, err := jsonrpc.DecodeMessage(e.Data)
			skipped = err == nil && f.hook(msg) // progress
		}
		if !skipped {
			f.next, f.err = &e, err
			return nil, nil, false
		}
		f.out = append(f.out, encodeEvent(input.Event{ID: e.ID, Retry: e.Retry})...) // the SDK resumes after it
	}
}

// handoverKey is the context key of the handover of a call.
type handoverKey struct{}

// handover is a response to a direct call that the SDK reads as the response to its own request. It
// also replaces the id in what the SDK reads when it resumes the stream.
type handover struct {
	id   string
	resp atomic.Pointer[http.Response] // nil when it is taken
	sdk  jsonrpc.ID                    // of the SDK's request
}

// take returns the response for the SDK's request, nil if it is taken.
func (h *handover) take(req *http.Request) *http.Response {
	resp := h.resp.Swap(nil)
	if resp != nil {
		h.sdk, _ = requestID(req)
		closeBody(req)
		resp.Request = req
	}
	return resp
}

// close closes a response that was not taken.
func (h *handover) close() {
	if resp := h.resp.Swap(nil); resp != nil {
		_ = resp.Body.Close()
	}
}

// rename replaces the id of a response to the call, and reports whether msg is one.
func (h *handover) rename(msg jsonrpc.Message) bool {
	resp, ok := msg.(*jsonrpc.Response)
	if h == nil || !ok || resp.ID.Raw() != h.id {
		return false
	}
	resp.ID = h.sdk
	return true
}

// directReply is the response to a direct call over stdio.
type directReply struct {
	result []byte
	err    error
}

// request sends the line of a direct call and returns its result.
func (c *stdio) request(ctx context.Context, id string, line []byte) ([]byte, error) {
	reply := make(chan directReply, 1)
	c.mu.Lock()
	c.direct[id] = reply
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.direct, id)
		c.mu.Unlock()
	}()
	if err := c.send(ctx, line); err != nil {
		return nil, err
	}
	select {
	case r := <-reply:
		return r.result, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.closed:
	case <-c.ended:
	}
	select {
	case r := <-reply: // the last message
		return r.result, r.err
	default:
		return nil, errors.New("the connection has ended")
	}
}

// reply passes a response to the direct call with the id, and reports whether there is one.
func (c *stdio) reply(id any, r directReply) bool {
	text, _ := id.(string)
	c.mu.Lock()
	defer c.mu.Unlock()
	waiting := c.direct[text]
	if waiting == nil {
		return false
	}
	delete(c.direct, text) // a second response is not for it
	waiting <- r
	return true
}
