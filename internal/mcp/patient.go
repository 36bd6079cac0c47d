package mcp

import (
	"net/http"
	"time"
)

const (
	// bodyWithin is how long a request may take to come.
	bodyWithin = 30 * time.Second
	// takenWithin is for how long a client may take nothing of what it is told before its
	// connection is dropped: others are told after it.
	takenWithin = 30 * time.Second
)

// patient is an answer without an end of its own, whose client has to go on reading.
type patient struct {
	http.ResponseWriter
	out    *http.ResponseController
	within time.Duration // takenWithin, but for tests
}

func newPatient(w http.ResponseWriter, within time.Duration) *patient {
	return &patient{w, http.NewResponseController(w), within}
}

// hurry bounds how long the request may take to come, and calm takes that away. Only a test's
// writer cannot do either.
func (p *patient) hurry() {
	_ = p.out.SetReadDeadline(time.Now().Add(bodyWithin))
	_ = p.out.SetWriteDeadline(time.Time{})
}

func (p *patient) calm() { _ = p.out.SetReadDeadline(time.Time{}) }

// Write implements http.ResponseWriter.
func (p *patient) Write(b []byte) (int, error) {
	_ = p.out.SetWriteDeadline(time.Now().Add(p.within))
	return p.ResponseWriter.Write(b)
}

// Flush implements http.Flusher.
func (p *patient) Flush() {
	_ = p.out.SetWriteDeadline(time.Now().Add(p.within))
	_ = p.out.Flush()
}

// last gives the end of the answer, which the server writes, as much time as its other parts.
func (p *patient) last() { _ = p.out.SetWriteDeadline(time.Now().Add(p.within)) }

// Unwrap is for http.ResponseController.
func (p *patient) Unwrap() http.ResponseWriter { return p.ResponseWriter }
