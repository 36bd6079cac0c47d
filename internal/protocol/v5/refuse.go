package v5

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"comet/internal/errs"
	"comet/internal/protocol"
	wire "comet/internal/wire/v5"
)

// codedError is an error that knows how the protocol says it (PROTOCOL_V5 §8.3).
type codedError struct {
	code   wire.Code
	reason string // a word, where the code has more than one meaning
	desc   string
	// needed and have are tokens, where the code is E17 (§9.2).
	needed, have int64
	cause        error
}

// errorf returns the refusal of a message.
func errorf(code wire.Code, reason, format string, args ...any) error {
	return codedError{code: code, reason: reason, desc: fmt.Sprintf(format, args...)}
}

// Error implements error.
func (r codedError) Error() string { return r.desc }

// Unwrap returns the core's error, nil where there is none.
func (r codedError) Unwrap() error { return r.cause }

func (r codedError) data() *wire.Writer {
	w := new(wire.Writer)
	if r.reason != "" {
		w.Add("reason", r.reason)
	}
	if r.code == wire.E17 {
		return w.Text("desc", r.code.Meaning()).Number("needed", r.needed).Number("have", r.have)
	}
	return w.Text("desc", r.desc)
}

// Refuse implements protocol.Dialect.
func (p *Protocol) Refuse(err error, raw []byte) protocol.Reply {
	if isV4(raw) {
		m, _ := parse(string(raw), true)
		return p.toV4(p.errorReply(m, err))
	}
	m, _ := wire.Parse(string(raw[:min(len(raw), wire.MaxLine)])) // to be answered
	return p.errorReply(m, err)
}

// errorReply answers a message with E. A line whose sender could not be read is answered as
// if it were the user's.
func (p *Protocol) errorReply(m wire.Message, err error) protocol.Reply {
	if m.From.Role == 0 || m.From.Many() {
		m.From = wire.Address{Role: wire.User}
	}
	number := p.numbers.next(m.Context)
	var invalid *wire.Error
	var out wire.Message
	if errors.As(err, &invalid) {
		out = wire.Refuse(m, self, number, invalid)
	} else {
		r := p.toCodedError(err)
		data, err := r.data().Data()
		if err != nil {
			data = "-"
		}
		out = wire.Reply(m, self, number, wire.Failure, data)
		out.State, out.Err = wire.Failed, r.code
	}
	line, formatErr := wire.Format(out)
	if formatErr != nil { // what was read of a broken line may not stand in another
		plain := wire.Reply(wire.Message{From: m.From}, self, number, wire.Failure, out.Data)
		plain.State, plain.Err = out.State, out.Err
		line, formatErr = wire.Format(plain)
	}
	if formatErr != nil {
		p.log.Error("an error could not be written", "error", formatErr)
	}
	answer := protocol.Reply{
		Status: httpStatus(out.Err), Body: []byte(line), ContentType: contentType, IsError: true, RetryAfter: retryAfter(err, out.Err),
	}
	answer.BadSignature = isSignatureError(err)
	if errs.Is(err, errs.BodyTooLarge) {
		answer.Status = http.StatusRequestEntityTooLarge
	}
	return answer
}

// toCodedError is what the protocol says of an error of the core. What it has no code for
// is E99 where we are wrong.
func (p *Protocol) toCodedError(err error) codedError {
	var known codedError
	if errors.As(err, &known) {
		return known
	}
	own := errs.From(err)
	r := codedError{code: wire.E10, desc: own.Detail, cause: err}
	if len(own.Fields) > 0 {
		r.desc = own.Fields[0].Detail
	}
	switch own.Code {
	case errs.MissingScope:
		r.code, r.reason, r.desc = wire.E90, "scope", fmt.Sprintf("the token lacks the scope %s", own.Meta["scope"])
	case errs.Unauthenticated, errs.AgentInactive, errs.ForeignAgent:
		r.code, r.reason = wire.E90, "token"
		r.desc = authErrorText(own)
	case errs.Unavailable, errs.Timeout:
		r.code, r.desc = wire.E30, "comet cannot take this now"
	case errs.Busy, errs.RateLimited:
		r.code = wire.E31
	case errs.NotFound:
		r.code = wire.E40
	case errs.TaskState:
		r.code, r.reason = wire.E15, wire.ReasonTransition
	case errs.UnsupportedWork:
		r.code = wire.E19
	case errs.BudgetExceeded:
		r.code = wire.E17
		r.needed, _ = own.Meta["requested"].(int64)
		r.have, _ = own.Meta["remaining"].(int64)
	case errs.LimitReached:
		if _, deep := own.Meta["max_depth"]; deep {
			r.code, r.reason = wire.E16, wire.ReasonMaxDepth
		}
	case errs.Internal:
		r.code, r.desc = wire.E99, "comet failed; the line may be sent again"
		p.log.Error("a message could not be handled", "error", err)
	}
	return r
}

// authErrorText says that somebody is not accepted. Who tries tokens, or names, is not told what
// is wrong with one; who has shown none is told what is missing.
func authErrorText(own *errs.Error) string {
	switch {
	case own.Meta["header"] != nil || own.Meta["missing"] != nil:
		return own.Detail
	case own.Meta["tokenless"] != nil:
		return "the agent is not accepted"
	}
	return "the token is not accepted"
}

// httpStatus is the status of HTTP that goes with a code.
func httpStatus(c wire.Code) int {
	switch c {
	case wire.E17, wire.E31:
		return http.StatusTooManyRequests
	case wire.E19:
		return http.StatusUnprocessableEntity
	case wire.E20, wire.E21, wire.E22, wire.E23:
		return http.StatusGatewayTimeout
	case wire.E30, wire.E32:
		return http.StatusServiceUnavailable
	case wire.E33, wire.E40, wire.E41, wire.E42, wire.E43:
		return http.StatusNotFound
	case wire.E15:
		return http.StatusConflict
	case wire.E90:
		return http.StatusUnauthorized
	case wire.E99:
		return http.StatusInternalServerError
	}
	return http.StatusBadRequest
}

// endStatus is the status of HTTP for work that ended with a code. Who asked was let in, and
// comet did what it had to: what would say otherwise is about the worker.
func endStatus(c wire.Code) int {
	switch status := httpStatus(c); status {
	case http.StatusUnauthorized, http.StatusInternalServerError:
		return http.StatusBadGateway
	default:
		return status
	}
}

// retryAfter is when a refused message may come again, where the core says so, or the
// trouble is ours.
func retryAfter(err error, code wire.Code) time.Duration {
	if seconds, ok := errs.From(err).Meta["retry_after"].(int); ok {
		return time.Duration(seconds) * time.Second
	}
	if code == wire.E30 || code == wire.E31 || code == wire.E99 || errors.Is(err, context.DeadlineExceeded) {
		return time.Second
	}
	return 0
}
