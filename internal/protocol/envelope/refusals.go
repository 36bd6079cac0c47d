package envelope

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"comet/internal/errs"
	"comet/internal/protocol"
	wire "comet/internal/wire/envelope"
)

// refusal is an error that knows how the protocol says it.
type refusal struct {
	wire.Failure
	cause error
}

// Error implements error.
func (r refusal) Error() string { return r.Message }

// Unwrap returns the core's error, nil where there is none.
func (r refusal) Unwrap() error { return r.cause }

func asError(err error, e **errs.Error) bool { return errors.As(err, e) }

// Refuse implements protocol.Dialect.
func (d *Protocol) Refuse(err error, raw []byte) protocol.Reply {
	var e wire.Envelope
	if raw != nil && len(raw) <= wire.MaxSize {
		e, _ = wire.Parse(raw) // to echo its ids
	}
	return d.refuse(e, err)
}

// refuse answers a message with an error envelope (decisions: “The body of a failure is
// itself an error envelope”).
func (d *Protocol) refuse(e wire.Envelope, err error) protocol.Reply {
	f := failureFor(e, err)
	answer := protocol.Reply{Status: f.Code.HTTPStatus(), IsError: true, RetryAfter: retryAfter(err)}
	if f.Code == wire.CodeUnavailable && answer.RetryAfter == 0 { // our own trouble, it may come again
		answer.RetryAfter = time.Second
	}
	if e.MessageID != [16]byte{} {
		answer.MessageID = e.MessageID.String()
	}
	var own *errs.Error
	switch {
	case !asError(err, &own):
	case own.Code == errs.BodyTooLarge:
		answer.Status = http.StatusRequestEntityTooLarge
	case own.Code == errs.RateLimited || own.Code == errs.Busy:
		answer.Status = http.StatusTooManyRequests
	case own.Code == errs.UnsupportedMediaType:
		answer.Status = http.StatusUnsupportedMediaType
	}
	if f.Code == wire.CodeUnavailable && own == nil && !errors.As(err, new(refusal)) {
		d.log.Error("a message could not be handled", "error", err, "message_id", answer.MessageID)
	}
	answer, err = d.replyWith(answer, wire.Reply(e, newID(), d.clock(), f))
	if err != nil {
		d.log.Error("an error could not be written", "error", err)
	}
	return answer
}

// failureFor is what the protocol says of an error. What it has no code for is an
// invalid message where the sender is wrong, and an unavailable agent, ourselves, where
// we are: that one may be sent again.
func failureFor(e wire.Envelope, err error) wire.Failure {
	var invalid *wire.Error
	var known refusal
	var own *errs.Error
	switch {
	case errors.As(err, &invalid):
		return invalid.Failure
	case errors.As(err, &known):
		return known.Failure
	case !errors.As(err, &own):
		return wire.Unavailable(wire.Orchestrator, nil)
	}
	switch own.Code {
	case errs.Unauthenticated, errs.AgentInactive, errs.MissingScope, errs.ForeignAgent:
		return wire.AuthenticationFailed(e.From)
	case errs.Timeout, errs.Unavailable, errs.Busy, errs.RateLimited, errs.Internal:
		return wire.Unavailable(wire.Orchestrator, nil)
	case errs.UnsupportedWork: // the versions of Negotiate
		versions, _ := own.Meta["versions"].([]string)
		return wire.UnsupportedVersion(strings.Join(versions, ", "), []string{wire.Version})
	case errs.LimitReached:
		limit, _ := own.Meta["limit"].(int)
		return wire.ResourceLimit("output_bytes", int64(limit), int64(limit)+1)
	}
	return wire.InvalidMessage(problems(own)...)
}

// problems are the fields of a core's error, as paths in the message.
func problems(e *errs.Error) []wire.Problem {
	var out []wire.Problem
	for _, f := range e.Fields {
		out = append(out, wire.Problem{Field: "payload" + strings.ReplaceAll(f.Pointer, "/", "."), Detail: f.Detail})
	}
	if len(out) == 0 {
		out = []wire.Problem{{Detail: e.Detail}}
	}
	return out
}

// retryAfter is when a refused message may come again, where the core says so.
func retryAfter(err error) time.Duration {
	if errs.Is(err, errs.Busy) || errs.Is(err, errs.Unavailable) || errors.Is(err, context.DeadlineExceeded) {
		return time.Second
	}
	seconds, _ := metaOfError(err)["retry_after"].(int)
	return time.Duration(seconds) * time.Second
}
