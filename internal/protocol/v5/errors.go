package v5

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	wire "comet/internal/wire/v5"
	"comet/internal/wire/v5/codes"
	"comet/models"
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

func (e codedError) data() *wire.Writer {
	w := new(wire.Writer)
	if e.reason != "" {
		w.Add("reason", e.reason)
	}
	if e.code == codes.E17 {
		return w.Text("desc", e.code.Meaning()).Number("needed", e.needed).Number("have", e.have)
	}
	return w.Text("desc", e.desc)
}

func errSubmitScope() error {
	return errorf(codes.E90, "scope", "requesting work takes a token with the scope messages:send")
}

// unknownSession returns E42 for a CTX without a session.
func unknownSession(name string) error {
	if name == "" || name == wire.SystemContext {
		return errorf(codes.E42, "", "CTX must name a session, not %s", cmp.Or(name, "-"))
	}
	return errorf(codes.E42, "", "there is no session %s", name)
}

// notFoundAs replaces errs.NotFound by an error with a code of the protocol.
func notFoundAs(err error, code codes.Code, format string, args ...any) error {
	if errs.Is(err, errs.NotFound) {
		return errorf(code, "", format, args...)
	}
	return err
}

// isNotFound reports whether an error is errs.NotFound, also because of a purge.
func isNotFound(err error) bool { return errs.Is(err, errs.NotFound) }

func isSignatureError(err error) bool {
	coded, ok := errors.AsType[codedError](err)
	return ok && coded.code == codes.E90 && coded.reason == codes.ReasonSignature
}

// reportError gives the core's errors about a report their codes.
func reportError(err error, s sender, m wire.Message) error {
	switch {
	case isNotFound(err):
		return errorf(codes.E40, "", "%s has no task %s in %s", s.address, m.Task, m.Context)
	case errs.Is(err, errs.TaskState):
		return stateError(err, m)
	}
	return err
}

// stateError returns E15 for a message that a task in its state does not accept.
func stateError(err error, m wire.Message) error {
	desc := fmt.Sprintf("%s does not accept %s now", m.Task, m.Type)
	if state, ok := errs.From(err).Meta["state"].(models.TaskState); ok {
		desc = fmt.Sprintf("%s is %s and does not accept %s now", m.Task, state, m.Type)
	}
	return codedError{code: codes.E15, reason: codes.ReasonTransition, desc: desc, cause: err}
}

// errorReply replies with E to a message. One whose sender could not be parsed is addressed to User.
func (p *Protocol) errorReply(m wire.Message, err error) protocol.Reply {
	if m.From.Role == 0 || m.From.IsMulticast() {
		m.From = wire.Address{Role: wire.User}
	}
	number := p.numbers.next(m.Context)
	var out wire.Message
	if invalid, ok := errors.AsType[*wire.Error](err); ok {
		out = invalid.Reply(m, self, number)
	} else {
		coded := p.toCodedError(err)
		data, err := coded.data().Data()
		if err != nil {
			data = "-"
		}
		out = m.Reply(self, number, wire.Failure, data)
		out.State, out.Err = wire.Failed, coded.code
	}
	line, formatErr := out.Format()
	if formatErr != nil { // segments of an invalid message may be invalid in the reply
		plain := wire.Message{From: m.From}.Reply(self, number, wire.Failure, out.Data)
		plain.State, plain.Err = out.State, out.Err
		line, formatErr = plain.Format()
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
	if known, ok := errors.AsType[codedError](err); ok {
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

// authErrorText returns the text of an authentication error. It does not say what is wrong with a
// token or a name; it names what is missing if there is neither.
func authErrorText(own *errs.Error) string {
	switch {
	case own.Meta["header"] != nil || own.Meta["missing"] != nil:
		return own.Detail
	case own.Meta["tokenless"] != nil:
		return "the agent is not accepted"
	}
	return "the token is not accepted"
}

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

// storedReport is stored with a task whose worker reported E, or S with pieces, so that the
// requester receives the same DATA. Code is "" for S.
type storedReport struct {
	Code codes.Code `json:"code,omitempty"`
	Data wire.Data  `json:"data,omitempty"`
}

// reportOf returns the stored report of a task. Another protocol may have stored something else, also with a code.
func reportOf(t models.Task) (r storedReport) {
	_ = json.Unmarshal(t.Detail, &r)
	if r.Code != "" && !r.Code.Valid() {
		return storedReport{}
	}
	return r
}

// dataOfPieces returns the DATA of an S whose result was received in pieces, "" for another result.
func dataOfPieces(t models.Task) wire.Data {
	if report := reportOf(t); t.State == models.TaskDone && report.Code == "" {
		return report.Data
	}
	return ""
}

// failureCodes are the codes of the core's failures (PROTOCOL_V5 §8.2).
var failureCodes = map[orchestrator.Failure]codes.Code{ //nolint:gochecknoglobals // a constant
	orchestrator.FailureExpired:     codes.E20,
	orchestrator.FailureTimeout:     codes.E21,
	orchestrator.FailureLost:        codes.E22,
	orchestrator.FailureUnavailable: codes.E30,
	orchestrator.FailureSaturated:   codes.E31,
	orchestrator.FailureResource:    codes.E32,
	orchestrator.FailureBudget:      codes.E17,
	orchestrator.FailureUnsupported: codes.E19,
	orchestrator.FailureInvalid:     codes.E10,
	orchestrator.FailureQuestions:   codes.E18,
	orchestrator.FailureUnanswered:  codes.E23,
	orchestrator.FailureWork:        codes.E99,
}

// coreFailure converts the code of a worker's E (PROTOCOL_V5 §8.2).
func coreFailure(c codes.Code) orchestrator.Failure {
	switch c {
	case codes.E23: // no worker waits for a user
		return orchestrator.FailureWork
	case codes.E20, codes.E22: // a worker's own time-outs are retried
		return orchestrator.FailureTimeout
	}
	for failure, code := range failureCodes {
		if code == c {
			return failure
		}
	}
	switch {
	case c >= codes.E10 && c < codes.E20:
		return orchestrator.FailureInvalid
	case c >= codes.E20 && c < codes.E30:
		return orchestrator.FailureTimeout
	}
	return orchestrator.FailureWork
}

// errorCode returns the code of a failed task: that of its worker's E, where it reported one, and
// otherwise that of the core's failure.
func errorCode(t models.Task, report storedReport) codes.Code {
	failure := orchestrator.Failure(t.ErrorCode)
	if report.Code != "" && coreFailure(report.Code) == failure {
		return report.Code
	}
	return cmp.Or(failureCodes[failure], codes.E99)
}
