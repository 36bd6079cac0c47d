package mcp

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"comet/internal/errs"
)

// The codes of errors that concern HTTP and not the message, as servers of the TypeScript SDK use
// them.
const (
	codeHTTPError = -32000
	codeNoSession = -32001
)

// maxSDKError limits the kept part of an error text of the SDK, in bytes.
const maxSDKError = 1024

// resultFilter is a response writer that turns errors of the SDK into JSON-RPC messages, so that a
// client can distinguish them from errors of a proxy. It holds back the plain text of the SDK and
// writes a message at the end. Other responses, such as streams, pass unchanged.
type resultFilter struct {
	*deadlineWriter
	r *http.Request
	// id is the id of the request, nil until it is read.
	id any

	status int    // of an error that is held back, 0 for none
	body   []byte // of that error
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

// finish writes the error that was held back.
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
	if status == http.StatusNotFound { // a client would take its own id for a response to its request
		id = nil
	}
	writeHTTPError(a, status, id, c, sentence)
}

// writeHTTPError rejects a request. code is "" for an error without a code.
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

// errorData returns the data of an error: the status, which client libraries hide, and the code in
// the notation of MCP errors.
func errorData(status int, code errs.Code) []byte {
	if code == "" {
		return fmt.Appendf(nil, `{"status":%d}`, status)
	}
	return fmt.Appendf(nil, `{"code":%q,"status":%d}`, strings.ToUpper(strings.ReplaceAll(string(code), "-", "_")), status)
}

// explainSDKError returns the code of an error of the SDK and a sentence with a remedy.
func explainSDKError(r *http.Request, status int, said string) (code errs.Code, sentence string) {
	for _, w := range sdkErrors() {
		if w.status == status && strings.Contains(said, w.contains) {
			return w.code, w.sentence
		}
	}
	switch status {
	case http.StatusNotFound:
		return errs.NotFound, "the session is unknown: it has ended, or the server was restarted; start one with initialize"
	case http.StatusMethodNotAllowed:
		if r.Header.Get("Mcp-Protocol-Version") >= statelessVersion {
			return errs.MethodNotAllowed, "this protocol version has no sessions and only supports POST"
		}
		return errs.MethodNotAllowed, "POST sends a message, GET opens the stream of a session, DELETE ends a session; other methods are not supported"
	case http.StatusUnsupportedMediaType:
		return errs.UnsupportedMediaType, "a message must be JSON: send Content-Type: application/json"
	case http.StatusConflict:
		return errs.Conflict, "the session already has a stream"
	case http.StatusRequestEntityTooLarge:
		return errs.BodyTooLarge, "the request is too large"
	}
	if status >= http.StatusInternalServerError {
		return errs.Internal, "comet failed; see its log"
	}
	return errs.InvalidRequest, "the request is invalid (MCP, Streamable HTTP)"
}

// sdkError identifies an error of the SDK by a part of its text.
type sdkError struct {
	status   int
	contains string
	code     errs.Code
	sentence string
}

func sdkErrors() []sdkError {
	const wrong = http.StatusBadRequest
	return []sdkError{
		{http.StatusForbidden, "session user mismatch", errs.ForeignAgent, "the session belongs to another token; start one with initialize"},
		{wrong, "Unsupported protocol version", errs.InvalidHeader, "Mcp-Protocol-Version names a protocol version that comet does not support; it supports " + strings.Join(protocolVersions(), ", ")},
		{wrong, "Accept must contain both", errs.NotAcceptable, "the response is JSON or a stream: send Accept: application/json, text/event-stream"},
		{wrong, "for GET requests", errs.NotAcceptable, "the response is a stream: send Accept: text/event-stream"},
		{wrong, "GET requires", errs.InvalidHeader, "the stream belongs to a session: send its Mcp-Session-Id"},
		{wrong, "DELETE requires", errs.InvalidHeader, "DELETE ends a session: send its Mcp-Session-Id"},
		{wrong, "Last-Event-ID", errs.InvalidHeader, "streams cannot be resumed: remove Last-Event-ID"},
		{wrong, "replay", errs.InvalidHeader, "streams cannot be resumed: remove Last-Event-ID"},
		{wrong, "batching", errs.InvalidRequest, "this protocol version has no batches: send one message per request"},
	}
}

// protocolVersions returns the supported protocol versions, newest first.
func protocolVersions() []string {
	return []string{statelessVersion, "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}
}

const (
	// bodyTimeout limits how long a request may take to arrive.
	bodyTimeout = 30 * time.Second
	// defaultWriteTimeout limits how long a client may read nothing of its response before its
	// connection is closed.
	defaultWriteTimeout = 30 * time.Second
)

// deadlineWriter is a response writer without a total deadline whose client must keep reading.
type deadlineWriter struct {
	http.ResponseWriter
	out     *http.ResponseController
	timeout time.Duration // shorter in tests
}

func newDeadlineWriter(w http.ResponseWriter, within time.Duration) *deadlineWriter {
	return &deadlineWriter{w, http.NewResponseController(w), within}
}

// limitRequest sets the deadline for the arrival of the request; clearReadDeadline removes it. Both
// fail only for the writer of a test.
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

// extendWriteDeadline gives the server the usual time to write the end of the response.
func (p *deadlineWriter) extendWriteDeadline() { _ = p.out.SetWriteDeadline(time.Now().Add(p.timeout)) }

// Unwrap supports http.ResponseController.
func (p *deadlineWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }
