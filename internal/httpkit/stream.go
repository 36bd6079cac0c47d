package httpkit

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"time"

	"comet/internal/background"
	"comet/internal/errs"
)

// StreamLimits limits the open streams, in total and per token, and ends them when the server stops.
type StreamLimits struct {
	max, maxPerToken int
	limiter          *background.Limiter[string]
	draining         context.Context
	drain            context.CancelFunc
}

// NewStreamLimits allows most streams, a tenth of them for one token.
func NewStreamLimits(most int) *StreamLimits {
	s := &StreamLimits{max: most, maxPerToken: max(most/10, 1)}
	s.limiter = background.NewLimiter[string](s.max, s.maxPerToken)
	s.draining, s.drain = context.WithCancel(context.Background())
	return s
}

// Acquire counts a stream of a token until release is called. It returns errs.Busy at a limit.
func (s *StreamLimits) Acquire(tokenID string) (release func(), err error) {
	release, err = s.limiter.Acquire(tokenID)
	switch {
	case errors.Is(err, background.ErrFull):
		return nil, errs.New(errs.Busy, "the server has reached its limit of %d open streams; try again later", s.max)
	case err != nil:
		return nil, errs.New(errs.Busy, "the token has reached its limit of %d open streams; try again later", s.maxPerToken)
	}
	return release, nil
}

// Drain ends the contexts of UntilDrain. It may be called twice.
func (s *StreamLimits) Drain() { s.drain() }

// Draining reports whether Drain was called.
func (s *StreamLimits) Draining() bool { return s.draining.Err() != nil }

// UntilDrain returns a context that ends with ctx and when the server stops.
func (s *StreamLimits) UntilDrain(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.draining, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// Stream is a response that is written in parts. A client that does not read a part in time is
// disconnected.
type Stream struct {
	w          http.ResponseWriter
	controller *http.ResponseController
	timeout    time.Duration
}

// NewStream returns a stream that replaces the server's deadlines for the connection, also that for
// reading, because a connection whose read deadline passes ends its request.
func NewStream(w http.ResponseWriter, timeout time.Duration) *Stream {
	s := &Stream{w: w, controller: http.NewResponseController(innermost(w)), timeout: timeout}
	_ = s.controller.SetReadDeadline(time.Time{}) // only a test's response writer fails
	return s
}

// NewEventStream is NewStream for server-sent events; it sets their headers.
func NewEventStream(w http.ResponseWriter, timeout time.Duration) *Stream {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // proxies must not buffer it
	return NewStream(w, timeout)
}

// Write implements io.Writer.
func (s *Stream) Write(p []byte) (int, error) {
	s.ExtendDeadline()
	return s.w.Write(p)
}

// Flush sends what was written, or the headers alone.
func (s *Stream) Flush() error {
	s.ExtendDeadline()
	return s.controller.Flush()
}

// ExtendDeadline gives the client the whole timeout again.
func (s *Stream) ExtendDeadline() {
	_ = s.controller.SetWriteDeadline(time.Now().Add(s.timeout)) // only a test's response writer fails
}

// AppendEvent appends a server-sent event to b. An empty id or name is left out, and a line break
// in data begins another data line.
func AppendEvent(b []byte, id, name string, data []byte) []byte {
	if id != "" {
		b = append(append(append(b, "id: "...), id...), '\n')
	}
	if name != "" {
		b = append(append(append(b, "event: "...), name...), '\n')
	}
	for line := range bytes.SplitSeq(data, []byte{'\n'}) {
		b = append(append(append(b, "data: "...), line...), '\n')
	}
	return append(b, '\n')
}
