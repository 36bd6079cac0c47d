package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"comet/internal/errs"
	"comet/internal/tools"
)

// invalidParams returns a JSON-RPC error for invalid parameters.
func invalidParams(format string, args ...any) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf(format, args...)}
}

// toolError returns an error for a call that is not passed on.
func toolError(code, format string, args ...any) *tools.Error {
	return &tools.Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// toRPCError converts the error of a request other than a tool call to a JSON-RPC error; nil stays
// nil.
func toRPCError(err error) error {
	var failed *tools.Error
	if !errors.As(err, &failed) {
		return err
	}
	details := map[string]any{}
	for k, v := range failed.Details {
		details[k] = v
	}
	details["code"] = failed.Code
	data, e := json.Marshal(details)
	if e != nil {
		data = nil
	}
	code := int64(jsonrpc.CodeInternalError)
	switch failed.Code {
	case tools.CodeToolNotFound, tools.CodePromptNotFound, tools.CodeResourceNotFound, tools.CodeInvalidArguments, tools.CodePermissionDenied:
		code = jsonrpc.CodeInvalidParams
	}
	return &jsonrpc.Error{Code: code, Message: failed.Message, Data: data}
}

// writeRPCError responds to a request with an error. id is nil if the request has none.
func writeRPCError(w http.ResponseWriter, status int, id any, problem *jsonrpc.Error) {
	if problem.Data == nil && status >= http.StatusBadRequest {
		problem.Data = errorData(status, map[int64]errs.Code{
			jsonrpc.CodeParseError: errs.MalformedJSON, jsonrpc.CodeInvalidRequest: errs.InvalidRequest, jsonrpc.CodeInvalidParams: errs.InvalidParameter,
		}[problem.Code])
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(errorResponse(id, problem))
}

// errorResponse returns an error response to a request.
func errorResponse(id any, problem *jsonrpc.Error) map[string]any {
	return map[string]any{"jsonrpc": "2.0", "id": id, "error": problem}
}

// rawID returns id as it was written, nil if it is empty.
func rawID(id json.RawMessage) any {
	if len(id) == 0 {
		return nil
	}
	return id
}
