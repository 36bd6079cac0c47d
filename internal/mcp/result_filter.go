package mcp

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"comet/internal/errs"
)

// The codes of refusals that are about HTTP and not about the message: what servers of the
// TypeScript SDK say.
const (
	codeHTTPError = -32000
	codeNoSession = -32001
)

// maxSDKError is how much of a refusal of the SDK's is read, in bytes.
const maxSDKError = 1024

// resultFilter is an answer whose refusals are messages of JSON-RPC, so that a client can tell them
// from those of a proxy. The SDK refuses in plain text; that is kept back until the SDK is
// done, and said anew. Everything else, streams above all, goes its way.
type resultFilter struct {
	*deadlineWriter
	r *http.Request
	// id is that of the request, once it was read; nil for none.
	id any

	status int    // of a refusal that is kept back, 0 for none
	body   []byte // in it
}

// WriteHeader implements http.ResponseWriter.
func (a *resultFilter) WriteHeader(status int) {
	kind := a.Header().Get("Content-Type")
	if status >= http.StatusBadRequest && !strings.HasPrefix(kind, "application/json") {
		a.status = status
		return
	}
	a.deadlineWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (a *resultFilter) Write(b []byte) (int, error) {
	if a.status == 0 {
		return a.deadlineWriter.Write(b)
	}
	a.body = append(a.body, b[:min(len(b), maxSDKError-len(a.body))]...)
	return len(b), nil
}

// Flush implements http.Flusher.
func (a *resultFilter) Flush() {
	if a.status == 0 {
		a.deadlineWriter.Flush()
	}
}

// finish says what was kept back.
func (a *resultFilter) finish() {
	defer a.extendWriteDeadline()
	if a.status == 0 {
		return
	}
	status, said := a.status, strings.TrimSpace(string(a.body))
	a.status = 0
	for _, header := range []string{"Content-Length", "Cache-Control", "Connection"} {
		a.Header().Del(header)
	}
	c, sentence := explainSDKError(a.r, status, said)
	id := a.id
	if status == http.StatusNotFound { // of the session: a client that finds its own id here takes it for an answer
		id = nil
	}
	writeHTTPError(a, status, id, c, sentence)
}

// writeHTTPError answers a request that is not taken. code is what is wrong, "" where that has no name.
func writeHTTPError(w http.ResponseWriter, status int, id any, code errs.Code, sentence string) {
	rpc := int64(codeHTTPError)
	switch status {
	case http.StatusNotFound:
		rpc = codeNoSession
	case http.StatusBadRequest:
		rpc = jsonrpc.CodeInvalidRequest
	}
	writeRPCError(w, status, id, &jsonrpc.Error{Code: rpc, Message: sentence, Data: errorData(status, code)})
}

// errorData is what a program reads of a refusal: the status, which libraries keep to
// themselves, and the code as the errors of this door are written.
func errorData(status int, code errs.Code) []byte {
	if code == "" {
		return fmt.Appendf(nil, `{"status":%d}`, status)
	}
	return fmt.Appendf(nil, `{"code":%q,"status":%d}`, strings.ToUpper(strings.ReplaceAll(string(code), "-", "_")), status)
}

// explainSDKError is what a refusal of the SDK's means: what is wrong, and what to do about it.
func explainSDKError(r *http.Request, status int, said string) (code errs.Code, sentence string) {
	for _, w := range sdkErrors() {
		if w.status == status && strings.Contains(said, w.contains) {
			return w.code, w.sentence
		}
	}
	switch status {
	case http.StatusNotFound:
		return errs.NotFound, "the session is not known: it has ended, or the server was started again; begin one with initialize"
	case http.StatusMethodNotAllowed:
		if r.Header.Get("Mcp-Protocol-Version") >= statelessVersion {
			return errs.MethodNotAllowed, "this revision has no sessions and knows only POST"
		}
		return errs.MethodNotAllowed, "POST brings a message, GET opens the stream of a session, DELETE ends a session; there is nothing else here"
	case http.StatusUnsupportedMediaType:
		return errs.UnsupportedMediaType, "a message is JSON: send it with Content-Type: application/json"
	case http.StatusConflict:
		return errs.Conflict, "the session has a stream already; it has one at a time"
	case http.StatusRequestEntityTooLarge:
		return errs.BodyTooLarge, "the request is too long"
	}
	if status >= http.StatusInternalServerError {
		return errs.Internal, "comet failed; its log says why"
	}
	return errs.InvalidRequest, "the request is none that this door knows (MCP, Streamable HTTP)"
}

// sdkError is a refusal of the SDK's by a part of its text.
type sdkError struct {
	status   int
	contains string
	code     errs.Code
	sentence string
}

func sdkErrors() []sdkError {
	const wrong = http.StatusBadRequest
	return []sdkError{
		{http.StatusForbidden, "session user mismatch", errs.ForeignAgent, "the session is another token's; begin one with initialize"},
		{wrong, "Unsupported protocol version", errs.InvalidHeader, "Mcp-Protocol-Version names a revision that comet does not speak; it speaks " + strings.Join(protocolVersions(), ", ")},
		{wrong, "Accept must contain both", errs.NotAcceptable, "the answer may be JSON or a stream: send Accept: application/json, text/event-stream"},
		{wrong, "for GET requests", errs.NotAcceptable, "the answer is a stream: send Accept: text/event-stream"},
		{wrong, "GET requires", errs.InvalidHeader, "the stream is that of a session: send its Mcp-Session-Id"},
		{wrong, "DELETE requires", errs.InvalidHeader, "what ends is a session: send its Mcp-Session-Id"},
		{wrong, "Last-Event-ID", errs.InvalidHeader, "streams are not repeated: leave out Last-Event-ID"},
		{wrong, "replay", errs.InvalidHeader, "streams are not repeated: leave out Last-Event-ID"},
		{wrong, "batching", errs.InvalidRequest, "this revision has no batches: send one message at a time"},
	}
}

// protocolVersions are those that comet speaks, the newest first.
func protocolVersions() []string {
	return []string{statelessVersion, "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}
}

const (
	// bodyTimeout is how long a request may take to come.
	bodyTimeout = 30 * time.Second
	// defaultWriteTimeout is for how long a client may take nothing of what it is told before its
	// connection is dropped: others are told after it.
	defaultWriteTimeout = 30 * time.Second
)

// deadlineWriter is an answer without an end of its own, whose client has to go on reading.
type deadlineWriter struct {
	http.ResponseWriter
	out     *http.ResponseController
	timeout time.Duration // takenWithin, but for tests
}

func newDeadlineWriter(w http.ResponseWriter, within time.Duration) *deadlineWriter {
	return &deadlineWriter{w, http.NewResponseController(w), within}
}

// limitRequest bounds how long the request may take to come, and calm takes that away. Only a test's
// writer cannot do either.
func (p *deadlineWriter) limitRequest() {
	_ = p.out.SetReadDeadline(time.Now().Add(bodyTimeout))
	_ = p.out.SetWriteDeadline(time.Time{})
}

func (p *deadlineWriter) clearReadDeadline() { _ = p.out.SetReadDeadline(time.Time{}) }

// Write implements http.ResponseWriter.
func (p *deadlineWriter) Write(b []byte) (int, error) {
	_ = p.out.SetWriteDeadline(time.Now().Add(p.timeout))
	return p.ResponseWriter.Write(b)
}

// Flush implements http.Flusher.
func (p *deadlineWriter) Flush() {
	_ = p.out.SetWriteDeadline(time.Now().Add(p.timeout))
	_ = p.out.Flush()
}

// extendWriteDeadline gives the end of the answer, which the server writes, as much time as its other parts.
func (p *deadlineWriter) extendWriteDeadline() { _ = p.out.SetWriteDeadline(time.Now().Add(p.timeout)) }

// Unwrap is for http.ResponseController.
func (p *deadlineWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }
