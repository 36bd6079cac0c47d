package api

import (
	"errors"
	"strings"

	"comet/internal/errs"
	"comet/internal/tools"
)

// toolProblem is an error of a call of a tool as this door tells it: a problem whose tool_error
// is the name that MCP clients see.
func toolProblem(err error) error {
	var e *tools.Error
	if !errors.As(err, &e) {
		return err
	}
	code := errs.CodeFailed
	switch {
	case e.Code == tools.CodeToolNotFound:
		code = errs.NotFound
	case e.Code == tools.CodeBudgetExceeded:
		code = errs.BudgetExceeded
	case e.Code == tools.CodePermissionDenied:
		code = errs.ToolDenied
	case e.Code == tools.CodeInvalidArguments:
		code = errs.InvalidRequest
	case e.Code == tools.CodeServerError:
		code = errs.UpstreamFailed
	case e.Code == tools.CodeUnavailable:
		code = errs.Unavailable
	case e.Code == tools.CodeInternal:
		code = errs.Internal
	case strings.HasSuffix(e.Code, "_BUSY"):
		code = errs.Busy
	}
	out := errs.New(code, "%s", e.Message).With("tool_error", e.Code)
	if at, ok := e.Details["reset_at"]; ok {
		_ = out.With("reset_at", at)
	}
	if len(e.Details) > 0 {
		_ = out.With("tool_details", e.Details)
	}
	return out
}
