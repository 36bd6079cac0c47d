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

// invalidParams is a JSON-RPC error for parameters that make no sense.
func invalidParams(format string, args ...any) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf(format, args...)}
}

// toolError is a call that the door does not pass on.
func toolError(code, format string, args ...any) *tools.Error {
	return &tools.Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// toRPCError is the JSON-RPC error of what is not a call of a tool; nil stays nil.
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

// writeRPCError answers a request with an error; id is nil where it has none.
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

// errorResponse is the answer to a request with an error.
func errorResponse(id any, problem *jsonrpc.Error) map[string]any {
	return map[string]any{"jsonrpc": "2.0", "id": id, "error": problem}
}

// rawID is an id as it was written, nil for none.
func rawID(id json.RawMessage) any {
	if len(id) == 0 {
		return nil
	}
	return id
}
