package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"regexp"
	"sync/atomic"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"comet/internal/input"
)

// messageHook receives messages in order, with the token of the call whose stream has them; "" if that is unknown. It
// may change a request. The SDK does not get the messages that it handles.
type messageHook func(msg jsonrpc.Message, token string) (taken bool)

type callKey struct{}

// callOf returns the token of the call that a context belongs to, "" for none.
func callOf(ctx context.Context) string {
	token, _ := ctx.Value(callKey{}).(string)
	return token
}

// inbound is what applies to all messages of an upstream.
type inbound struct {
	limit   int // of one, in bytes
	hook    messageHook
	invalid invalidMessages
}

// eventFilter filters a stream of server-sent events: it passes on valid messages and events of
// other names. A response over the limit becomes an error response.
type eventFilter struct {
	io.Closer
	*inbound
	in    *input.EventReader
	calls *handover    // replaces the id of a response; nil for none
	of    string       // token of the call whose stream it is; "" for none
	next  *input.Event // already read from in, with err; nil for none
	out   []byte       // filtered bytes that are not read yet
	err   error        // returned after out
}

func newEventFilter(body io.ReadCloser, rules *inbound) *eventFilter {
	return &eventFilter{Closer: body, inbound: rules, in: input.NewEventReader(body, rules.limit)}
}

// Read implements io.Reader.
func (f *eventFilter) Read(p []byte) (int, error) {
	for len(f.out) == 0 {
		e := f.next
		switch f.next = nil; {
		case e == nil && f.err != nil:
			return 0, f.err
		case e == nil:
			e = &input.Event{}
			*e, f.err = f.in.Next()
		}
		if f.err == nil || errors.Is(f.err, io.EOF) {
			f.out = f.filter(*e)
		}
	}
	n := copy(p, f.out)
	f.out = f.out[n:]
	return n, nil
}

// filter encodes an event for the reader.
func (f *eventFilter) filter(e input.Event) []byte {
	isMessage := len(e.Name) == 0 || string(e.Name) == "message"
	if e.Long != nil {
		if id, ok := responseIDOf(e.Long); ok {
			r := &jsonrpc.Response{ID: id}
			f.calls.rename(r)
			e.Data = errorResponse(r.ID, tooLarge(f.limit))
		} else {
			f.invalid.add(nil)
		}
	} else if isMessage && len(e.Data) > 0 {
		msg, err := jsonrpc.DecodeMessage(e.Data)
		if err != nil {
			f.invalid.add(e.Data)
		}
		if err != nil || f.hook(msg, f.of) {
			e.Data = nil
		} else if r, ok := msg.(*jsonrpc.Request); f.calls.rename(msg) || ok && r.IsCall() {
			e.Data, _ = jsonrpc.EncodeMessage(msg) // it has just been decoded
		}
	}
	if isMessage && len(e.Data) == 0 {
		e.Name = nil // the SDK still reads the id of the event
	}
	return encodeEvent(e)
}

func encodeEvent(e input.Event) []byte {
	var b bytes.Buffer
	for _, f := range []struct {
		name  string
		value []byte
	}{{"event: ", e.Name}, {"id: ", e.ID}, {"retry: ", e.Retry}} {
		if len(f.value) > 0 {
			b.WriteString(f.name)
			b.Write(f.value)
			b.WriteByte('\n')
		}
	}
	if e.Data != nil {
		for line := range bytes.SplitSeq(e.Data, []byte("\n")) {
			b.WriteString("data: ")
			b.Write(line)
			b.WriteByte('\n')
		}
	}
	if b.Len() > 0 {
		b.WriteByte('\n')
	}
	return b.Bytes()
}

// responseIDOf returns the id of the request that a message over the limit answers. Servers write
// the id of a response before or after its result, so one of the ends has it. It returns false for
// requests and notifications, and where neither end shows the id.
func responseIDOf(o *input.LongText) (jsonrpc.ID, bool) {
	raw, isRequest := idInHead(o.Head)
	if last := trailingID().FindSubmatch(o.Tail); raw == nil && last != nil {
		raw = last[1]
	}
	var id any
	if isRequest || json.Unmarshal(raw, &id) != nil || id == nil {
		return jsonrpc.ID{}, false
	}
	out, err := jsonrpc.MakeID(id)
	return out, err == nil
}

// idInHead reads the members that the head holds in full.
func idInHead(head []byte) (id []byte, isRequest bool) {
	dec := jsontext.NewDecoder(bytes.NewReader(head))
	if token, err := dec.ReadToken(); err != nil || token.Kind() != '{' {
		return nil, false
	}
	for dec.PeekKind() == '"' {
		name, err := dec.ReadToken()
		if err != nil {
			return id, false
		}
		key := name.String()
		value, err := dec.ReadValue()
		switch {
		case key == "method":
			return nil, true
		case err != nil:
			return id, false
		case key == "id":
			id = bytes.Clone(value)
		}
	}
	return id, false
}

// trailingID matches an id among the last members of a message. What follows it closes the
// outermost object only, so the id cannot belong to a nested object.
func trailingID() *regexp.Regexp {
	return regexp.MustCompile(`[,{]\s*"id"\s*:\s*(-?\d+|"[^"\\]*")\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$`)
}

type handoverKey struct{}

// handover is a response to a direct call that the SDK reads as the response to its own request. It
// also replaces the id in the messages that the SDK reads after it has resumed the stream.
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
