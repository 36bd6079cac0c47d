package mcp

import (
	"net/http"
	"time"
)

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
