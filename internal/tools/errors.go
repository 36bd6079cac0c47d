package tools

import (
	"errors"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/errs"
)

// The names that failed calls have (AgentCards, “Codes d'erreur”, and in their manner). Those
// of the sandbox are its own.
const (
	CodeToolNotFound     = "TOOL_NOT_FOUND"
	CodePromptNotFound   = "PROMPT_NOT_FOUND"
	CodeResourceNotFound = "RESOURCE_NOT_FOUND"
	CodeServerError      = "MCP_SERVER_ERROR"
	CodeBudgetExceeded   = "BUDGET_EXCEEDED"
	CodePermissionDenied = "PERMISSION_DENIED"
	CodeInvalidArguments = "INVALID_ARGUMENTS"
	CodeUnavailable      = "UNAVAILABLE"
	CodeTaskFailed       = "TASK_FAILED"
	CodeInternal         = "INTERNAL_ERROR"
)

// Error is a call that failed otherwise than by the tool's own word.
type Error struct {
	// Code is the name of what went wrong.
	Code string
	// Message is a sentence for the caller.
	Message string
	// Details are further members of the answer, such as where it went wrong; nil for none.
	Details map[string]any
	// refused is that the call reached no tool.
	refused bool
	// InvalidParameters is that a tool of comet's own was given what makes no sense: a door has an
	// error of its protocol for that, where other failures are answers of tools.
	InvalidParameters bool
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }

// newFailure is a call that reached its tool.
func newFailure(code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// newRefusal is a call that reached no tool.
func newRefusal(code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), refused: true}
}

// toolNotFound is the answer for a tool that is not there or that the caller may not see: it
// does not say which.
func toolNotFound(name string) *Error {
	return newRefusal(CodeToolNotFound, "there is no tool %q; find one with agentcards:search_tools", clip(name))
}

// toError turns an error of a verb into one for who calls a tool. What is ours to know
// stays inside.
func toError(err error) *Error {
	var out *Error
	if errors.As(err, &out) {
		return out
	}
	code, message := errs.CodeOf(err), detailOf(err)
	switch code {
	case errs.BudgetExceeded:
		out := newRefusal(CodeBudgetExceeded, "%s", message)
		out.Details = errs.From(err).Meta
		return out
	case errs.MissingScope, errs.ForeignAgent, errs.AgentInactive, errs.AgentDeactivated, errs.Unauthenticated:
		return newRefusal(CodePermissionDenied, "%s", message)
	case errs.Unavailable, errs.Busy, errs.NoAgent, errs.Timeout, errs.RateLimited:
		return newRefusal(CodeUnavailable, "%s", message)
	case errs.Internal:
		return newFailure(CodeInternal, "comet failed; its log says why")
	default:
		return newFailure(CodeInvalidArguments, "%s", message)
	}
}

// Result is the error as the answer to tools/call: a result with isError, so that the model
// reads it (MCP, “Error Handling”).
func (e *Error) Result() *mcp.CallToolResult {
	inner := map[string]any{"code": e.Code, "message": e.Message}
	for k, v := range e.Details {
		inner[k] = v
	}
	return &mcp.CallToolResult{
		IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: e.Error()}},
		StructuredContent: map[string]any{"error": inner},
	}
}

// detailOf is what a person may be told of an error of a verb.
func detailOf(err error) string {
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
