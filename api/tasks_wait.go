package api

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"comet/internal/telemetry"
	"comet/models"
)

const (
	// maxWait is how long a request may wait for something.
	maxWait = time.Minute
	// afterWait is what is left of a request's time for its answer.
	afterWait = time.Second
	// maxInline is how much output an answer may hold, in bytes.
	maxInline = 64 << 10
)

// waiter is a verb that waits, as a token, for something to become of a task.
type waiter func(ctx context.Context, who, id string, patience time.Duration) (models.Task, error)

// await lets a verb wait, for as long as the client has patience and the request time,
// and not longer than the server runs. Where too many wait already, the error is errs.Busy
// and the task as it is comes with it.
func (s *Server) await(r *http.Request, id string, patience time.Duration, wait waiter) (models.Task, error) {
	if end, ok := r.Context().Deadline(); ok {
		patience = min(patience, time.Until(end)-afterWait)
	}
	ctx, stop := s.streams.until(r.Context())
	defer stop()
	t, err := wait(ctx, caller(r).TokenID, id, patience)
	if err != nil && s.streams.ending() { // it was interrupted while it looked
		t, err = s.work.Task(r.Context(), id)
	}
	return t, err
}

// grant is how long a client that asks for seconds may wait.
func (s *Server) grant(seconds int) time.Duration {
	most := max(min(maxWait, s.opts.RequestTimeout-afterWait), 0).Truncate(time.Second)
	return min(time.Duration(seconds)*time.Second, most)
}

// preferredWait reads "Prefer: wait=N" (RFC 7240 §4.3), 0 without one. Preferences the
// server does not know are none of its business.
func (s *Server) preferredWait(r *http.Request) (time.Duration, error) {
	for part := range strings.SplitSeq(strings.Join(r.Header["Prefer"], ","), ",") {
		name, value, _ := strings.Cut(part, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "wait") {
			continue
		}
		value, _, _ = strings.Cut(value, ";")
		n, err := strconv.ParseUint(strings.Trim(strings.TrimSpace(value), `"`), 10, 31)
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return 0, invalidHeader("Prefer", "wait", "Prefer must name whole seconds to wait, such as wait=10")
		}
		return s.grant(int(min(n, uint64(maxWait.Seconds())))), nil
	}
	return 0, nil
}

// outputText returns the whole result of a task that has ended, nil where it is too long
// for an answer or no text.
func (s *Server) outputText(r *http.Request, t models.Task) (*string, error) {
	if t.OutputBytes > maxInline {
		return nil, nil //nolint:nilnil // it has an address of its own
	}
	text := make([]byte, 0, t.OutputBytes)
	err := s.work.Output(r.Context(), t.ID, models.StreamResult, 0, func(o models.OutputChunk) error {
		text = append(text, o.Data...)
		return nil
	})
	if err != nil || len(text) > maxInline || !utf8.Valid(text) {
		return nil, err
	}
	return new(string(text)), nil
}

// traceparent returns the request's W3C trace context (Trace Context §3.2), "" for none
// that is valid.
func traceparent(r *http.Request) string {
	if lines := r.Header["Traceparent"]; len(lines) == 1 && telemetry.IsTraceparent(lines[0]) {
		return lines[0]
	}
	return ""
}
