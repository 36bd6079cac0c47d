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
	"comet/internal/wire/v5/codes"
)

// codedError is an error with its code in the protocol (PROTOCOL_V5 §8.3).
type codedError struct {
	code   codes.Code
	reason string // a word, where the code has several meanings
	desc   string
	// needed and have are tokens, for E17 (§9.2).
	needed, have int64
	cause        error // the core's error, nil for none
}

// errorf returns the error that rejects a message.
func errorf(code codes.Code, reason, format string, args ...any) error {
	return codedError{code: code, reason: reason, desc: fmt.Sprintf(format, args...)}
}

// Error implements error.
func (e codedError) Error() string { return e.desc }

// Unwrap returns the core's error, nil for none.
func (e codedError) Unwrap() error { return e.cause }

// data returns the DATA of the E.
func (e codedError) data() *wire.Writer {
	w := new(wire.Writer)
	if e.reason != "" {
		w.Add(keyReason, e.reason)
	}
	if e.code == codes.E17 {
		return w.Text("desc", e.code.Meaning()).Number("needed", e.needed).Number("have", e.have)
	}
	return w.Text("desc", e.desc)
}

// Refuse implements protocol.Protocol.
func (p *Protocol) Refuse(err error, raw []byte) protocol.Reply {
	v4 := isV4(raw)
	if !v4 {
		raw = raw[:min(len(raw), wire.MaxLine)]
	}
	m, _ := parse(string(raw), v4) // only to address the E
	return p.replyInVersion(v4, p.errorReply(m, err))
}

// errorReply replies with E to a message. One whose sender could not be parsed is addressed to
// User.
func (p *Protocol) errorReply(m wire.Message, err error) protocol.Reply {
	if m.From.Role == 0 || m.From.IsMulticast() {
		m.From = wire.Address{Role: wire.User}
	}
	number := p.numbers.next(m.Context)
	var invalid *wire.Error
	var out wire.Message
	if errors.As(err, &invalid) {
		out = wire.Refuse(m, self, number, invalid)
	} else {
		coded := p.toCodedError(err)
		data, err := coded.data().Data()
		if err != nil {
			data = "-"
		}
		out = wire.Reply(m, self, number, wire.Failure, data)
		out.State, out.Err = wire.Failed, coded.code
	}
	line, formatErr := wire.Format(out)
	if formatErr != nil { // segments of an invalid message may be invalid in the reply
		plain := wire.Reply(wire.Message{From: m.From}, self, number, wire.Failure, out.Data)
		plain.State, plain.Err = out.State, out.Err
		line, formatErr = wire.Format(plain)
	}
	if formatErr != nil {
		p.log.Error("an error reply could not be written", "error", formatErr)
	}
	reply := protocol.Reply{
		Status: httpStatus(out.Err), Body: []byte(line), ContentType: contentType, IsError: true, RetryAfter: retryAfter(err, out.Err),
		BadSignature: isSignatureError(err),
	}
	if errs.Is(err, errs.BodyTooLarge) {
		reply.Status = http.StatusRequestEntityTooLarge
	}
	return reply
}

// toCodedError gives an error of the core its code: E99 for an internal error.
func (p *Protocol) toCodedError(err error) codedError {
	var known codedError
	if errors.As(err, &known) {
		return known
	}
	own := errs.From(err)
	e := codedError{code: codes.E10, desc: own.Detail, cause: err}
	if len(own.Fields) > 0 {
		e.desc = own.Fields[0].Detail
	}
	switch own.Code {
	case errs.MissingScope:
		e.code, e.reason, e.desc = codes.E90, "scope", fmt.Sprintf("the token lacks the scope %s", own.Meta["scope"])
	case errs.Unauthenticated, errs.AgentInactive, errs.ForeignAgent:
		e.code, e.reason, e.desc = codes.E90, "token", authErrorText(own)
	case errs.Unavailable, errs.Timeout:
		e.code, e.desc = codes.E30, "comet cannot handle this now"
	case errs.Busy, errs.RateLimited:
		e.code = codes.E31
	case errs.NotFound:
		e.code = codes.E40
	case errs.TaskState:
		e.code, e.reason = codes.E15, codes.ReasonTransition
	case errs.UnsupportedWork:
		e.code = codes.E19
	case errs.BudgetExceeded:
		e.code = codes.E17
		e.needed, _ = own.Meta["requested"].(int64)
		e.have, _ = own.Meta["remaining"].(int64)
	case errs.LimitReached:
		if _, deep := own.Meta["max_depth"]; deep {
			e.code, e.reason = codes.E16, codes.ReasonMaxDepth
		}
	case errs.Internal:
		e.code, e.desc = codes.E99, "comet failed; send the message again"
		p.log.Error("a message could not be handled", "error", err)
	}
	return e
}

// authErrorText returns the text of an authentication error. A sender that has shown a token or a
// name is not told what is wrong with it; a sender without any is told what is missing.
func authErrorText(own *errs.Error) string {
	switch {
	case own.Meta["header"] != nil || own.Meta["missing"] != nil:
		return own.Detail
	case own.Meta["tokenless"] != nil:
		return "the agent is not accepted"
	}
	return "the token is not accepted"
}

// httpStatus returns the HTTP status of a code.
func httpStatus(c codes.Code) int {
	switch c {
	case codes.E17, codes.E31:
		return http.StatusTooManyRequests
	case codes.E19:
		return http.StatusUnprocessableEntity
	case codes.E20, codes.E21, codes.E22, codes.E23:
		return http.StatusGatewayTimeout
	case codes.E30, codes.E32:
		return http.StatusServiceUnavailable
	case codes.E33, codes.E40, codes.E41, codes.E42, codes.E43:
		return http.StatusNotFound
	case codes.E15:
		return http.StatusConflict
	case codes.E90:
		return http.StatusUnauthorized
	case codes.E99:
		return http.StatusInternalServerError
	}
	return http.StatusBadRequest
}

// outcomeStatus returns the HTTP status for a task that failed with a code. A 401 or 500 would be
// about the requester or about comet, not about the worker, so it is 502.
func outcomeStatus(c codes.Code) int {
	switch status := httpStatus(c); status {
	case http.StatusUnauthorized, http.StatusInternalServerError:
		return http.StatusBadGateway
	default:
		return status
	}
}

// retryAfter returns when a rejected message may be sent again, 0 for not stated.
func retryAfter(err error, code codes.Code) time.Duration {
	if seconds, ok := errs.From(err).Meta["retry_after"].(int); ok {
		return time.Duration(seconds) * time.Second
	}
	if code == codes.E30 || code == codes.E31 || code == codes.E99 || errors.Is(err, context.DeadlineExceeded) {
		return time.Second
	}
	return 0
}
