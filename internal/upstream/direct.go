package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/input"
)

const (
	// cancelTimeout limits the notification of a cancelled call.
	cancelTimeout = 2 * time.Second
	// statelessVersion is the first protocol version without sessions, whose requests carry the version
	// and the capabilities of the client.
	statelessVersion = "2026-07-28"
)

// directCalls makes tool calls on the connection of a session without the SDK, and passes arguments and
// results on unchanged. An HTTP response that contains more than the result is left to the SDK.
type directCalls struct {
	last atomic.Int64
	meta []byte      // members of every _meta, besides the capabilities of the caller
	head http.Header // of requests over HTTP
}

func newDirectCalls(s *session) *directCalls {
	d := &directCalls{head: http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}}
	version := s.client.InitializeResult().ProtocolVersion
	d.head.Set("Mcp-Protocol-Version", version)
	if id := s.client.ID(); id != "" {
		d.head.Set("Mcp-Session-Id", id)
	}
	if version >= statelessVersion {
		info, _ := json.Marshal(s.implementation()) // cannot fail
		d.meta = appendMember(d.meta, mcp.MetaKeyProtocolVersion, strconv.AppendQuote(nil, version))
		d.meta = appendMember(d.meta, mcp.MetaKeyClientInfo, info)
		d.head.Set("Mcp-Method", "tools/call")
	}
	if s.http != nil {
		maps.Copy(d.head, s.http.headers)
	}
	return d
}

func (d *directCalls) message(id, tool string, args json.RawMessage, meta mcp.Meta) []byte {
	members := d.meta
	for name, value := range meta {
		text, _ := json.Marshal(value) // it has been decoded, or cannot fail
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

func (s *session) callTool(ctx context.Context, tool string, args json.RawMessage, r round) (res *Result, err error) {
	if r.call.Log != nil {
		s.requestLogs(ctx)
	}
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
	var raw []byte
	var rest *handover
	if s.stdio != nil {
		raw, err = s.stdio.request(ctx, id, append(message, '\n'))
	} else {
		raw, rest, err = s.postCall(ctx, id, tool, message, &r.call.read)
	}
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

func (s *session) callBySDK(ctx context.Context, tool string, args json.RawMessage, r round) (*Result, error) {
	res, err := s.client.CallTool(ctx, &mcp.CallToolParams{
		Meta: r.meta, Name: tool, Arguments: args, InputResponses: r.answers, RequestState: r.state,
	})
	return NewResult(res), err
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

// postCall sends a call and reads its result. If the response is a stream with other messages or an
// HTTP error, for example, it returns rest for the SDK. It sets read at the end of the response.
func (s *session) postCall(ctx context.Context, id, tool string, message []byte, read *bool) (raw []byte, rest *handover, err error) {
	head := s.direct.head.Clone()
	if head.Get("Mcp-Method") != "" {
		head.Set("Mcp-Name", tool)
	}
	resp, err := s.post(ctx, head, message) //nolint:bodyclose // it is closed below, or given to the SDK
	if err != nil {
		return nil, nil, err
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case resp.StatusCode == http.StatusOK && kind == "application/json":
		data, problem := s.http.readBody(resp)
		if problem != nil {
			return nil, nil, problem
		}
		*read = true
		if got, reply, ok := readReply(data); ok && got == id {
			return reply.result, nil, reply.err
		}
		resp.Body = io.NopCloser(bytes.NewReader(data))
	case resp.StatusCode == http.StatusOK && kind == "text/event-stream":
		events := newEventFilter(resp.Body, &s.inbound)
		events.of = callOf(ctx)
		if reply, found := events.readDirect(id); found {
			go func() { // until the end, so that the connection can be reused; the context ends within drainTimeout
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}()
			return reply.result, nil, reply.err
		}
		resp.Body = events
	}
	rest = &handover{id: id}
	rest.resp.Store(resp)
	return nil, rest, nil
}

// readDirect reads events until the response to a direct call. It returns false at the first event that
// only the SDK can handle; the filter keeps this event for the SDK.
func (f *eventFilter) readDirect(id string) (r directReply, found bool) {
	for {
		e, err := f.in.Next()
		isMessage := len(e.Name) == 0 || string(e.Name) == "message"
		if isMessage && e.Long == nil && len(e.Data) > 0 {
			if got, r, ok := readReply(e.Data); ok && got == id {
				r.result = bytes.Clone(r.result)
				return r, true
			}
		}
		skipped := err == nil && e.Long == nil
		if skipped && isMessage && len(e.Data) > 0 {
			msg, err := jsonrpc.DecodeMessage(e.Data)
			skipped = err == nil && f.hook(msg, f.of) // progress or a log message
		}
		if !skipped {
			f.next, f.err = &e, err
			return r, false
		}
		f.out = append(f.out, encodeEvent(input.Event{ID: e.ID, Retry: e.Retry})...) // the SDK resumes after it
	}
}
