package gateway

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"comet/internal/tools"
)

// invalid is a JSON-RPC error for parameters that make no sense.
func invalid(format string, args ...any) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf(format, args...)}
}

// refused is a call that the door does not pass on.
func refused(code, format string, args ...any) *tools.Error {
	return &tools.Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// protocolError is the JSON-RPC error of what is not a call of a tool; nil stays nil.
func protocolError(err error) error {
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
