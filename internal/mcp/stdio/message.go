package stdio

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// maxLine is the size limit of a message over stdio, in bytes.
const maxLine = 16 << 20

// StatelessVersion is the first protocol version without sessions.
const StatelessVersion = "2026-07-28"

// ErrorResponse returns an error response to a request, whose id is nil where it cannot be read.
func ErrorResponse(id any, e *jsonrpc.Error) map[string]any {
	if raw, ok := id.(json.RawMessage); ok && len(raw) == 0 {
		id = nil
	}
	return map[string]any{"jsonrpc": "2.0", "id": id, "error": e}
}

// InvalidRequest returns an error for a message that is not a valid request.
func InvalidRequest(format string, args ...any) *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: fmt.Sprintf(format, args...)}
}

// lineTooLong returns the error for a line over the limit.
func lineTooLong() *jsonrpc.Error {
	return InvalidRequest("a message may have at most %d bytes", maxLine)
}

// DecodeError returns the mistake of an invalid message, and its id, nil if the id cannot be read.
func DecodeError(raw []byte) (id json.RawMessage, mistake *jsonrpc.Error) {
	var m map[string]json.RawMessage
	err := json.Unmarshal(raw, &m)
	var syntax *json.SyntaxError
	switch {
	case len(strings.TrimSpace(string(raw))) == 0:
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeParseError, Message: "the message is empty"}
	case errors.As(err, &syntax):
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeParseError, Message: fmt.Sprintf("the message is not valid JSON: error at byte %d", syntax.Offset)}
	case err != nil || m == nil:
		return nil, InvalidRequest("a JSON-RPC 2.0 message must be an object")
	}
	first := func(name string) byte { // of the value, n where it is missing or null
		if len(m[name]) == 0 {
			return 'n'
		}
		return m[name][0]
	}
	hasID := first("id") == '"' || first("id") == '-' || first("id") >= '0' && first("id") <= '9'
	if hasID {
		id = m["id"]
	}
	switch {
	case string(m["jsonrpc"]) != `"2.0"`:
		return id, InvalidRequest(`jsonrpc must be "2.0"`)
	case len(m["method"]) > 0 && first("method") != '"':
		return id, InvalidRequest("method must be a string")
	case first("id") != 'n' && !hasID:
		return id, InvalidRequest("id must be a string or a number")
	case first("error") != 'n' && first("error") != '{':
		return id, InvalidRequest("error must be an object")
	case first("method") == 'n' && !hasID:
		return id, InvalidRequest("the message has neither a method nor the id of a request")
	}
	return id, InvalidRequest("this is not a JSON-RPC 2.0 message")
}
