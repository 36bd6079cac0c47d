package tools

import (
	"errors"
	"strings"

	"comet/internal/errs"
)

// Err is an error of a verb as doors other than MCP tell it: a problem whose tool_error is
// the name that MCP clients see.
func Err(err error) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	code := errs.CodeFailed
	switch {
	case e.Code == CodeToolNotFound:
		code = errs.NotFound
	case e.Code == CodeBudgetExceeded:
		code = errs.BudgetExceeded
	case e.Code == CodePermissionDenied:
		code = errs.ToolDenied
	case e.Code == CodeInvalidArguments:
		code = errs.InvalidRequest
	case e.Code == CodeServerError:
		code = errs.UpstreamFailed
	case e.Code == CodeUnavailable:
		code = errs.Unavailable
	case e.Code == CodeInternal:
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
