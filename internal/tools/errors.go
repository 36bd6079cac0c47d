package tools

import (
	"errors"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/errs"
)

// Codes of failed calls (AgentCards, “Codes d'erreur”, and further ones of the same form). The
// sandbox has its own codes.
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

// Error is a call that failed for another reason than an error result of the tool.
type Error struct {
	// Code is the code of the failure.
	Code string
	// Message is a sentence for the caller.
	Message string
	// Details are further members of the error, nil for none.
	Details map[string]any
	// refused is true where the call reached no tool.
	refused bool
	// InvalidParameters is true for invalid input of one of comet's own tools. An API may have a
	// protocol error for that, where other failures are results of tools.
	InvalidParameters bool
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }

// newFailure returns the error of a call that reached its tool.
func newFailure(code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// newRefusal returns the error of a call that reached no tool.
func newRefusal(code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), refused: true}
}

// toolNotFound is the error for a tool that does not exist or is hidden from the caller.
func toolNotFound(name string) *Error {
	return newRefusal(CodeToolNotFound, "there is no tool %q; find one with agentcards:search_tools", clip(name))
}

// toError converts an error of the core to an error of a call. Internal details stay out of it.
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
		return newFailure(CodeInternal, "internal error; see the log of comet")
	default:
		return newFailure(CodeInvalidArguments, "%s", message)
	}
}

// Result returns the error as a result of tools/call with isError, so that the model reads it
// (MCP, “Error Handling”).
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

// detailOf returns the detail of an error that callers may see.
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
