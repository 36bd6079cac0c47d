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

// refusal is an error with its form in the protocol.
type refusal struct {
	wire.Failure
	cause error
}

// Error implements error.
func (r refusal) Error() string { return r.Message }

// Unwrap returns the cause, nil if there is none.
func (r refusal) Unwrap() error { return r.cause }

// invalidField returns the refusal of a message because of a member.
func invalidField(cause error, field, detail string) error {
	return refusal{wire.InvalidMessage(wire.Problem{Field: field, Detail: detail}), cause}
}

// Refuse implements protocol.Protocol.
func (p *Protocol) Refuse(err error, raw []byte) protocol.Reply {
	var e wire.Envelope
	if raw != nil && len(raw) <= wire.MaxSize {
		e, _ = wire.Parse(raw) // to echo its ids
	}
	return p.refuse(e, err)
}

// refuse returns an error envelope as the reply to a message (decisions: “The body of a failure is
// itself an error envelope”).
func (p *Protocol) refuse(e wire.Envelope, err error) protocol.Reply {
	f := failureFor(e, err)
	reply := protocol.Reply{Status: f.Code.HTTPStatus(), IsError: true, RetryAfter: retryAfter(err)}
	if f.Code == wire.CodeUnavailable && reply.RetryAfter == 0 { // the failure is ours, so the message may be sent again
		reply.RetryAfter = time.Second
	}
	if e.MessageID != [16]byte{} {
		reply.MessageID = e.MessageID.String()
	}
	switch errs.CodeOf(err) {
	case errs.BodyTooLarge:
		reply.Status = http.StatusRequestEntityTooLarge
	case errs.RateLimited, errs.Busy:
		reply.Status = http.StatusTooManyRequests
	case errs.UnsupportedMediaType:
		reply.Status = http.StatusUnsupportedMediaType
	}
	if f.Code == wire.CodeUnavailable && !errors.As(err, new(*errs.Error)) && !errors.As(err, new(refusal)) && !errors.Is(err, context.Canceled) {
		p.log.Error("cannot process a message", "error", err, "message_id", reply.MessageID)
	}
	reply, err = p.replyWith(reply, wire.Reply(e, newID(), p.clock(), f))
	if err != nil {
		p.log.Error("cannot format an error", "error", err)
	}
	return reply
}

// failureFor converts an error to a failure of the protocol. An error without a code of its own
// becomes an invalid message if the sender caused it. Otherwise it becomes an unavailable
// orchestrator, and the message may be sent again.
func failureFor(e wire.Envelope, err error) wire.Failure {
	var invalid *wire.Error
	var refused refusal
	var coded *errs.Error
	switch {
	case errors.As(err, &invalid):
		return invalid.Failure
	case errors.As(err, &refused):
		return refused.Failure
	case !errors.As(err, &coded):
		return wire.Unavailable(wire.Orchestrator, nil)
	}
	switch coded.Code {
	case errs.Unauthenticated, errs.AgentInactive, errs.MissingScope, errs.ForeignAgent:
		return wire.AuthenticationFailed(e.From)
	case errs.Timeout, errs.Unavailable, errs.Busy, errs.RateLimited, errs.Internal:
		return wire.Unavailable(wire.Orchestrator, nil)
	case errs.UnsupportedWork: // from Negotiate
		versions, _ := coded.Meta["versions"].([]string)
		return wire.UnsupportedVersion(strings.Join(versions, ", "), []string{wire.Version})
	case errs.LimitReached:
		limit, _ := coded.Meta["limit"].(int)
		return wire.ResourceLimit("output_bytes", int64(limit), int64(limit)+1)
	}
	return wire.InvalidMessage(problems(e, coded)...)
}

// problems converts the fields of an error to paths in the message, or in the body of a request that
// is no message.
func problems(e wire.Envelope, coded *errs.Error) []wire.Problem {
	var out []wire.Problem
	for _, f := range coded.Fields {
		problem := wire.Problem{Detail: f.Detail, Field: strings.ReplaceAll(strings.TrimPrefix(f.Pointer, "/"), "/", ".")}
		if f.Parameter == "" && e.Payload != nil {
			problem.Field = "payload" + strings.ReplaceAll(f.Pointer, "/", ".")
		}
		out = append(out, problem)
	}
	if len(out) == 0 {
		out = []wire.Problem{{Detail: coded.Detail}}
	}
	return out
}

// retryAfter returns when a refused message may be sent again, 0 if the error does not say.
func retryAfter(err error) time.Duration {
	if errs.Is(err, errs.Busy) || errs.Is(err, errs.Unavailable) || errors.Is(err, context.DeadlineExceeded) {
		return time.Second
	}
	seconds, _ := errs.From(err).Meta["retry_after"].(int)
	return time.Duration(seconds) * time.Second
}
