package a2a

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"comet/internal/errs"
)

// failure is how an error is reported in both bindings (A2A 1.0 §5.4).
type failure struct {
	is error
	// code is that of JSON-RPC, status the HTTP status of HTTP+JSON, and grpc the status in its body.
	code, status int
	grpc         string
	// reason is that of the ErrorInfo, "" for errors of JSON-RPC itself, which have none.
	reason string
}

// failures are the errors of A2A, the last one for all others.
var failures = []failure{ //nolint:gochecknoglobals // a constant table
	{a2a.ErrTaskNotFound, -32001, http.StatusNotFound, "NOT_FOUND", "TASK_NOT_FOUND"},
	{a2a.ErrTaskNotCancelable, -32002, http.StatusConflict, "FAILED_PRECONDITION", "TASK_NOT_CANCELABLE"},
	{a2a.ErrPushNotificationNotSupported, -32003, http.StatusBadRequest, "UNIMPLEMENTED", "PUSH_NOTIFICATION_NOT_SUPPORTED"},
	{a2a.ErrUnsupportedOperation, -32004, http.StatusBadRequest, "UNIMPLEMENTED", "UNSUPPORTED_OPERATION"},
	{a2a.ErrUnsupportedContentType, -32005, http.StatusUnsupportedMediaType, "INVALID_ARGUMENT", "CONTENT_TYPE_NOT_SUPPORTED"},
	{a2a.ErrVersionNotSupported, -32009, http.StatusBadRequest, "UNIMPLEMENTED", "VERSION_NOT_SUPPORTED"},
	{a2a.ErrParseError, -32700, http.StatusBadRequest, "INVALID_ARGUMENT", ""},
	{a2a.ErrInvalidRequest, -32600, http.StatusBadRequest, "INVALID_ARGUMENT", ""},
	{a2a.ErrMethodNotFound, -32601, http.StatusNotFound, "NOT_FOUND", ""},
	{a2a.ErrInvalidParams, -32602, http.StatusBadRequest, "INVALID_ARGUMENT", ""},
	{a2a.ErrUnauthenticated, -32600, http.StatusUnauthorized, "UNAUTHENTICATED", ""},
	{a2a.ErrUnauthorized, -32600, http.StatusForbidden, "PERMISSION_DENIED", ""},
	{errMethodNotAllowed, -32600, http.StatusMethodNotAllowed, "INVALID_ARGUMENT", ""},
	{errTooLarge, -32600, http.StatusRequestEntityTooLarge, "INVALID_ARGUMENT", ""},
	{errRateLimited, -32603, http.StatusTooManyRequests, "RESOURCE_EXHAUSTED", ""},
	{errUnavailable, -32603, http.StatusServiceUnavailable, "UNAVAILABLE", ""},
	{a2a.ErrInternalError, -32603, http.StatusInternalServerError, "INTERNAL", ""},
}

// Errors for which A2A has no code.
var (
	errMethodNotAllowed = errors.New("the HTTP method is not allowed")
	errTooLarge         = errors.New("the request is too large")
	errRateLimited      = errors.New("too many requests")
	errUnavailable      = errors.New("the server is not available at the moment")
)

// fail returns an error of A2A with a text for the client.
func fail(is error, format string, args ...any) error {
	return a2a.NewError(is, fmt.Sprintf(format, args...))
}

// sentinels are the errors of A2A for the codes of errs. Other invalid requests are a2a.ErrInvalidParams.
var sentinels = map[errs.Code]error{ //nolint:gochecknoglobals // a constant table
	errs.MalformedJSON: a2a.ErrParseError, errs.UnsupportedMediaType: a2a.ErrUnsupportedContentType, errs.BodyTooLarge: errTooLarge,
	errs.NotFound: a2a.ErrTaskNotFound, errs.TaskState: a2a.ErrUnsupportedOperation,
	errs.Unauthenticated: a2a.ErrUnauthenticated, errs.AgentInactive: a2a.ErrUnauthenticated,
	errs.MissingScope: a2a.ErrUnauthorized, errs.ForeignAgent: a2a.ErrUnauthorized, errs.ToolDenied: a2a.ErrUnauthorized,
	errs.RateLimited: errRateLimited, errs.Busy: errUnavailable, errs.Unavailable: errUnavailable, errs.NoAgent: errUnavailable, errs.Timeout: errUnavailable,
	errs.Conflict: a2a.ErrInvalidParams, errs.AddressRefused: a2a.ErrInvalidParams, errs.LimitReached: a2a.ErrInvalidParams, errs.AgentDeactivated: a2a.ErrInvalidParams,
}

// describe returns how an error is reported, and its text. Details of internal errors are not for clients.
func describe(err error) (failure, string) {
	var own *a2a.Error
	if !errors.As(err, &own) {
		e := errs.From(err)
		is, known := sentinels[e.Code]
		switch {
		case known:
			own = a2a.NewError(is, e.Detail)
		case e.Code.IsInvalid():
			own = a2a.NewError(a2a.ErrInvalidParams, e.Detail)
		default:
			own = a2a.NewError(a2a.ErrInternalError, "the server failed; its log says why")
		}
	}
	for _, f := range failures {
		if errors.Is(own.Err, f.is) {
			return f, own.Error()
		}
	}
	return failures[len(failures)-1], own.Error()
}

// errorInfo is a google.rpc.ErrorInfo in ProtoJSON.
type errorInfo struct {
	Type   string `json:"@type"`
	Reason string `json:"reason"`
	Domain string `json:"domain"`
}

// details returns the ErrorInfo of a failure in a list, nil without one.
func (f failure) details() []errorInfo {
	if f.reason == "" {
		return nil
	}
	return []errorInfo{{"type.googleapis.com/google.rpc.ErrorInfo", f.reason, "a2a-protocol.org"}}
}
