package mcp

import (
	"bytes"
	"net/http"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/errs"
	"comet/internal/httpkit"
)

// maxSDKError limits the kept part of an error text of the SDK, in bytes.
const maxSDKError = 1024

// resultFilter is a response writer that turns errors of the SDK into JSON-RPC messages, so that a
// client can distinguish them from errors of a proxy. It holds back the plain text of the SDK and
// writes a message at the end. Other responses, such as streams, pass unchanged.
type resultFilter struct {
	http.ResponseWriter
	stream *httpkit.Stream
	r      *http.Request
	// countFailure is called with the code of each error.
	countFailure func(code string)
	// id is the id of the request, nil until it is read.
	id any

	// intro is written before the first event of a stream.
	intro string

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
	a.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (a *resultFilter) Write(b []byte) (int, error) {
	if a.status == 0 {
		if bytes.HasSuffix(b, []byte(cancelledResponse+"\n\n")) {
			return len(b), nil
		}
		if a.intro != "" && a.Header().Get("Content-Type") == "text/event-stream" {
			if _, err := a.stream.Write([]byte(a.intro)); err != nil {
				return 0, err
			}
			a.intro = ""
		}
		return a.stream.Write(b)
	}
	a.body = append(a.body, b[:min(len(b), maxSDKError-len(a.body))]...)
	return len(b), nil
}

// Flush implements http.Flusher.
func (a *resultFilter) Flush() {
	if a.status == 0 {
		_ = a.stream.Flush()
	}
}

// finish writes the error that was held back.
func (a *resultFilter) finish() {
	defer a.stream.ExtendDeadline() // the server writes the end of the response
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

// explainSDKError returns the code of an error of the SDK and a sentence with a remedy.
func explainSDKError(r *http.Request, status int, said string) (code errs.Code, sentence string) {
	if status == http.StatusMethodNotAllowed && r.Header.Get("Mcp-Protocol-Version") >= statelessVersion {
		return errs.MethodNotAllowed, "this protocol version has no sessions and only supports POST"
	}
	for _, w := range sdkErrors() {
		if w.status == status && strings.Contains(said, w.contains) {
			return w.code, w.sentence
		}
	}
	if status >= http.StatusInternalServerError {
		return errs.Internal, "comet failed; see its log"
	}
	return errs.InvalidRequest, "the request is invalid (MCP, Streamable HTTP)"
}

// sdkError identifies an error of the SDK by its status and a part of its text.
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
		{wrong, "Unsupported protocol version", errs.InvalidHeader, "Mcp-Protocol-Version names a protocol version that comet does not support; it supports " + strings.Join(mcp.SupportedProtocolVersions(), ", ")},
		{wrong, "Accept must contain both", errs.NotAcceptable, "the response is JSON or a stream: send Accept: application/json, text/event-stream"},
		{wrong, "for GET requests", errs.NotAcceptable, "the response is a stream: send Accept: text/event-stream"},
		{wrong, "GET requires", errs.InvalidHeader, "the stream belongs to a session: send its Mcp-Session-Id"},
		{wrong, "DELETE requires", errs.InvalidHeader, "DELETE ends a session: send its Mcp-Session-Id"},
		{wrong, "malformed Last-Event-ID", errs.InvalidHeader, "Last-Event-ID must be the id of an event of this session"},
		{wrong, "Last-Event-ID", errs.InvalidHeader, "only a GET resumes a stream: remove Last-Event-ID from this POST"},
		{wrong, "replay", errs.InvalidHeader, "the stream cannot be resumed after this Last-Event-ID: it is not the id of an event of this session, or later events are no longer kept (at most ten minutes, and only a limited amount); a GET without Last-Event-ID opens a new stream"},
		{http.StatusNotFound, "", errs.NotFound, "the session is unknown: it has ended, or the server was restarted; start one with initialize"},
		{http.StatusMethodNotAllowed, "", errs.MethodNotAllowed, "POST sends a message, GET opens the stream of a session, DELETE ends a session; other methods are not supported"},
		{http.StatusUnsupportedMediaType, "", errs.UnsupportedMediaType, "a message must be JSON: send Content-Type: application/json"},
		{http.StatusConflict, "", errs.Conflict, "the session already has a stream"},
		{http.StatusRequestEntityTooLarge, "", errs.BodyTooLarge, "the request is too large"},
		{wrong, "batching", errs.InvalidRequest, "this protocol version has no batches: send one message per request"},
	}
}

const (
	// bodyTimeout limits how long a request may take to arrive.
	bodyTimeout = 30 * time.Second
	// defaultWriteTimeout limits how long a client may read nothing of its response before its
	// connection is closed.
	defaultWriteTimeout = 30 * time.Second
)

// newResultFilter returns a response writer without a total deadline. The request must arrive within
// bodyTimeout, and its client must keep reading.
func newResultFilter(w http.ResponseWriter, r *http.Request, timeout time.Duration, countFailure func(code string)) *resultFilter {
	a := &resultFilter{ResponseWriter: w, stream: httpkit.NewStream(w, timeout), r: r, countFailure: countFailure}
	control := http.NewResponseController(w) // fails only for the writer of a test
	_ = control.SetReadDeadline(time.Now().Add(bodyTimeout))
	_ = control.SetWriteDeadline(time.Time{})
	return a
}

// Unwrap supports http.ResponseController.
func (a *resultFilter) Unwrap() http.ResponseWriter { return a.ResponseWriter }
