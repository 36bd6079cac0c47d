package tools

import (
	"errors"
	"strings"

	"comet/internal/errs"
)

// An error of a call has two members beside its code: memberName is its name in the notation of
// AgentCards (“Codes d'erreur”), such as TOOL_NOT_FOUND, and memberDetails are further facts, absent
// where there are none. The sandbox has its own names.
const (
	memberName    = "tool_error"
	memberDetails = "tool_details"
)

// ErrInvalidArguments is the cause of errors for invalid input of one of comet's own tools. An API
// may have a protocol error for that, where other failures are results of tools.
var ErrInvalidArguments = errors.New("invalid arguments of comet's own tool")

// NewError returns an error of a call with a name in the notation of AgentCards.
func NewError(code errs.Code, name, format string, args ...any) *errs.Error {
	return errs.New(code, format, args...).With(memberName, name)
}

// ErrorName returns the name of an error of a call, "" for other errors.
func ErrorName(err error) string {
	name, _ := errs.From(err).Meta[memberName].(string)
	return name
}

// ErrorDetails returns the further facts of an error of a call, nil for none. The map is read only.
func ErrorDetails(err error) map[string]any {
	details, _ := errs.From(err).Meta[memberDetails].(map[string]any)
	return details
}

// ErrorText returns an error of a call as a model reads it: its name and a sentence.
func ErrorText(err error) string { return ErrorName(err) + ": " + errs.From(err).Detail }

// WithDetails adds further facts to an error.
func WithDetails(e *errs.Error, details map[string]any) *errs.Error {
	if len(details) == 0 {
		return e
	}
	return e.With(memberDetails, details)
}

// toCallError returns the error of a call for one of the core, without internal details.
func toCallError(err error) *errs.Error {
	e := errs.From(err)
	switch {
	case ErrorName(e) != "":
		return e
	case e.Code == errs.BudgetExceeded:
		return WithDetails(NewError(e.Code, "BUDGET_EXCEEDED", "%s", Detail(e)).With("reset_at", e.Meta["reset_at"]), e.Meta)
	case e.Code == errs.UpstreamFailed:
		return WithDetails(NewError(e.Code, "MCP_SERVER_ERROR", "%s", e.Detail), e.Meta)
	case e.Code == errs.Internal:
		return NewError(e.Code, "INTERNAL_ERROR", "internal error; see the log of comet")
	}
	switch e.Code {
	case errs.ToolDenied, errs.MissingScope, errs.ForeignAgent, errs.AgentInactive, errs.AgentDeactivated, errs.Unauthenticated:
		return NewError(errs.ToolDenied, "PERMISSION_DENIED", "%s", Detail(e))
	case errs.Unavailable, errs.Busy, errs.NoAgent, errs.Timeout, errs.RateLimited:
		return NewError(errs.Unavailable, "UNAVAILABLE", "%s", Detail(e))
	}
	return NewError(errs.InvalidRequest, "INVALID_ARGUMENTS", "%s", Detail(e))
}

// Detail returns the detail of an error that callers may see.
func Detail(err error) string {
	e := errs.From(err)
	if len(e.Fields) == 0 {
		return e.Detail
	}
	details := make([]string, len(e.Fields))
	for i, f := range e.Fields {
		details[i] = f.Detail
	}
	return strings.Join(details, "; ")
}
