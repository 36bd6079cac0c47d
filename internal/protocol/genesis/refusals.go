package genesis

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/protocol"
	wire "comet/internal/wire/genesis"
)

// The codes of ERROR messages that the codec does not have.
const (
	codeUnauthorized    wire.Code = "UNAUTHORIZED"
	codeAuthFailed      wire.Code = "AUTH_FAILED"
	codeExpired         wire.Code = "MESSAGE_EXPIRED"
	codeReplayed        wire.Code = "MESSAGE_REPLAYED"
	codeDeduplication   wire.Code = "DEDUPLICATION_ID_REUSED"
	codeNotFound        wire.Code = "NOT_FOUND"
	codeConflict        wire.Code = "CONFLICT"
	codeRateLimited     wire.Code = "RATE_LIMITED"
	codeInternal        wire.Code = "INTERNAL_ERROR"
	codeExecutionFailed           = "EXECUTION_FAILED"
	codeCancelled                 = "CANCELLED"
	codeTimeout                   = "TIMEOUT"
	codeUnsupported               = "UNSUPPORTED_INTENT"
	codeBudget                    = "BUDGET_EXCEEDED"
	codeQueueFull                 = "QUEUE_FULL"
	codeUnavailable               = "UNAVAILABLE"
	codeInvalidResponse           = "INVALID_RESPONSE"
	codeResource                  = "RESOURCE_LIMIT"
)

// refusal is an error with its form in the protocol.
type refusal struct {
	wire.Failure

	status int
	cause  error
}

// Error implements error.
func (r refusal) Error() string { return r.Message }

// Unwrap returns the cause, nil if there is none.
func (r refusal) Unwrap() error { return r.cause }

// coded returns the refusal of a message because of the value at a JSON pointer, "" for the whole message.
func coded(kind wire.ErrorType, code wire.Code, status int, pointer, format string, args ...any) error {
	detail := errs.New(errs.InvalidRequest, format, args...).Detail
	details, _ := json.Marshal(map[string][]wire.Problem{"problems": {{Pointer: pointer, Detail: detail}}}) // marshals always
	return refusal{wire.Failure{ErrorType: kind, ErrorCode: string(code), Message: detail, Details: details}, status, nil}
}

// Refuse implements protocol.Protocol.
func (p *Protocol) Refuse(err error, raw []byte) protocol.Reply {
	var m wire.Message
	if raw != nil && len(raw) <= wire.MaxSize {
		m, _ = wire.Parse(raw) // to echo its ids
	}
	return p.refuse(context.Background(), m, err)
}

// refuse returns an ERROR as the reply to a message.
func (p *Protocol) refuse(ctx context.Context, m wire.Message, err error) protocol.Reply {
	f, status := p.refusalOf(err)
	f.OriginalMessageID = m.ID
	reply := protocol.Reply{Status: status, IsError: true, MessageID: m.ID, RetryAfter: retryAfter(f)}
	switch auth.Refusal(f.ErrorCode) {
	case auth.KeyUnknown, auth.SignatureInvalid:
		reply.BadSignature, reply.Unauthenticated = true, true
	case auth.SignatureRequired:
		reply.Unauthenticated = true
	}
	out := wire.Message{To: cmp.Or(m.From, "unknown"), CorrelationID: cmp.Or(m.CorrelationID, m.ID), Body: f}
	if m.Type != wire.TypeRequest && m.Type != wire.TypeResponse {
		out.CorrelationID = m.CorrelationID
	}
	reply, err = p.replyWith(context.WithoutCancel(ctx), reply, out)
	if err != nil {
		p.log.Error("cannot format an error", "error", err)
	}
	return reply
}

// retryAfter returns how long to wait before a refused message is sent again, 0 if the failure does not say.
func retryAfter(f wire.Failure) time.Duration {
	if f.RetryAfterMS == nil {
		return 0
	}
	return time.Duration(*f.RetryAfterMS) * time.Millisecond
}

// refusalOf converts an error to the body of an ERROR and its HTTP status. An error without a code of its own is an
// internal one; its text is only logged.
func (p *Protocol) refusalOf(err error) (wire.Failure, int) {
	if e, ok := errors.AsType[*wire.Error](err); ok {
		status := http.StatusBadRequest
		switch e.Code {
		case wire.CodeSignatureInvalid, wire.CodeSignatureRequired:
			status = http.StatusUnauthorized
		}
		return e.Failure(), status
	}
	if r, ok := errors.AsType[refusal](err); ok {
		return r.Failure, r.status
	}
	e := errs.From(err)
	out := wire.Failure{ErrorType: wire.ErrorValidation, Message: e.Detail, Details: problems(e)}
	answer := func(kind wire.ErrorType, code wire.Code, status int) (wire.Failure, int) {
		out.ErrorType, out.ErrorCode = kind, string(code)
		if seconds, ok := e.Meta["retry_after"].(int); ok {
			out.RetryAfterMS = new(int64(seconds) * 1000)
		} else if status == http.StatusServiceUnavailable {
			out.RetryAfterMS = new(int64(1000))
		}
		return out, status
	}
	switch e.Code {
	case errs.Unauthenticated, errs.AgentInactive:
		out.Message = "authentication failed; send a valid token, or a signature with a key that may send messages without a token"
		return answer(wire.ErrorValidation, codeAuthFailed, http.StatusUnauthorized)
	case errs.MissingScope, errs.ForeignAgent:
		return answer(wire.ErrorValidation, codeUnauthorized, http.StatusForbidden)
	case errs.RateLimited:
		return answer(wire.ErrorRouting, codeRateLimited, http.StatusTooManyRequests)
	case errs.Busy:
		return answer(wire.ErrorRouting, codeQueueFull, http.StatusServiceUnavailable)
	case errs.Unavailable, errs.NoAgent, errs.Timeout:
		return answer(wire.ErrorRouting, codeUnavailable, http.StatusServiceUnavailable)
	case errs.BodyTooLarge:
		return answer(wire.ErrorValidation, wire.CodeInvalidMessage, http.StatusRequestEntityTooLarge)
	case errs.UnsupportedMediaType:
		return answer(wire.ErrorValidation, wire.CodeInvalidMessage, http.StatusUnsupportedMediaType)
	case errs.NotFound:
		return answer(wire.ErrorValidation, codeNotFound, http.StatusNotFound)
	case errs.TaskState, errs.Conflict:
		return answer(wire.ErrorValidation, codeConflict, http.StatusConflict)
	case errs.LimitReached:
		return answer(wire.ErrorAgent, codeResource, http.StatusUnprocessableEntity)
	case errs.UnsupportedWork: // from Negotiate
		return answer(wire.ErrorValidation, wire.CodeUnsupportedVersion, http.StatusBadRequest)
	case errs.Internal:
		if !errors.Is(err, context.Canceled) { // the client has closed its request
			p.log.Error("cannot process a message", "error", err)
		}
		out.Message = "comet cannot process the message now; send it again"
		return answer(wire.ErrorRouting, codeInternal, http.StatusInternalServerError)
	}
	return answer(wire.ErrorValidation, wire.CodeInvalidMessage, http.StatusBadRequest)
}

// problems returns the fields of an error as the details of an ERROR, nil if it names none.
func problems(e *errs.Error) []byte {
	if len(e.Fields) == 0 {
		return nil
	}
	all := make([]wire.Problem, len(e.Fields))
	for i, f := range e.Fields {
		all[i] = wire.Problem{Pointer: f.Pointer, Detail: f.Detail}
	}
	text, _ := json.Marshal(map[string][]wire.Problem{"problems": all}) // marshals always
	return text
}

// requestError converts an error of a submission.
func (p *Protocol) requestError(err error, m received, body wire.Request) error {
	e := errs.From(err)
	switch e.Code {
	case errs.RequestIDReused:
		return replayed(m.ID, err)
	case errs.UnsupportedWork:
		if m.To != wire.Broadcast && !p.isAgent(m.To) {
			return coded(wire.ErrorValidation, codeNotFound, http.StatusNotFound, "/to", "there is no agent %s; send the request to broadcast, so that comet selects one", input.Quote(m.To))
		}
		return refusal{wire.Failure{ErrorType: wire.ErrorRouting, ErrorCode: codeUnsupported, Message: e.Detail, Details: p.supported("")}, http.StatusUnprocessableEntity, err}
	case errs.NoAgent, errs.Unavailable:
		named := m.To
		if named == wire.Broadcast {
			named = ""
		}
		return refusal{wire.Failure{
			ErrorType: wire.ErrorRouting, ErrorCode: codeUnavailable, Message: e.Detail, RetryAfterMS: new(int64(1000)), FallbackSuggestion: p.Work.Index().Best([]string{body.Intent}, named),
		}, http.StatusServiceUnavailable, err}
	case errs.BudgetExceeded:
		f := wire.Failure{ErrorType: wire.ErrorRouting, ErrorCode: codeBudget, Message: e.Detail}
		if reset, ok := e.Meta["reset_at"].(time.Time); ok {
			f.RetryAfterMS = new(max(reset.Sub(p.clock()).Milliseconds(), 0))
		}
		return refusal{f, http.StatusTooManyRequests, err}
	}
	return input.Respell(err, "", map[string]string{"/parameters": "/payload", "/budget": "/context/maxTokens", "/workers": "/context/fanout"})
}

// intentFailure returns the RESPONSE to a REQUEST that the service has refused; comet is the responding agent.
func (p *Protocol) intentFailure(ctx context.Context, m received, err error) (protocol.Reply, error) {
	e := errs.From(err)
	if e.Code == errs.Internal {
		return protocol.Reply{}, err
	}
	failed := wire.ErrorDetails{Code: errorCode(e.Code), Message: e.Detail, Details: problems(e), Retryable: e.Code == errs.Busy || e.Code == errs.Unavailable}
	reply := protocol.Reply{Status: http.StatusOK, SendBack: true}
	return p.replyWith(ctx, reply, p.responseTo(m.Message, wire.Response{Status: wire.Failed, Error: &failed}))
}

// errorCode returns the code of a core error in the spelling of the protocol, such as AGENT_ID_EXISTS.
func errorCode(c errs.Code) string {
	return strings.ToUpper(strings.ReplaceAll(string(c), "-", "_"))
}

// replayed returns the refusal of a message whose id was used for another one.
func replayed(id string, cause error) error {
	return refusal{wire.Failure{ErrorType: wire.ErrorValidation, ErrorCode: string(codeReplayed), Message: "the id " + id + " was used before for another message; use a new id for each message"}, http.StatusConflict, cause}
}
