package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/errs"
	"comet/internal/mcp/stdio"
	"comet/internal/tools"
	"comet/internal/upstream"
)

func invalidParams(format string, args ...any) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf(format, args...)}
}

// The codes of errors that concern HTTP and not the message, as in the TypeScript SDK.
const (
	codeHTTPError = -32000
	codeNoSession = -32001
)

// toolResult returns the error of a call as a result, for the model (MCP, “Error Handling”).
func toolResult(err error) *mcp.CallToolResult {
	e := map[string]any{"code": tools.ErrorName(err), "message": errs.From(err).Detail}
	maps.Copy(e, tools.ErrorDetails(err))
	return &mcp.CallToolResult{
		IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: tools.ErrorText(err)}},
		StructuredContent: map[string]any{"error": e},
	}
}

// toRPCError converts an error of the tools to a JSON-RPC error; it returns others and nil unchanged.
func toRPCError(err error) error {
	if err == nil || tools.ErrorName(err) == "" {
		return err
	}
	e, code := errs.From(err), int64(jsonrpc.CodeInternalError)
	if rpc := clientError(err); rpc != nil {
		return rpc
	}
	switch e.Code {
	case errs.NotFound, errs.InvalidRequest, errs.ToolDenied:
		code = jsonrpc.CodeInvalidParams
	}
	details := map[string]any{}
	maps.Copy(details, tools.ErrorDetails(err))
	details["code"] = tools.ErrorName(err)
	data, _ := json.Marshal(details) // nil if it cannot be encoded
	return &jsonrpc.Error{Code: code, Message: e.Detail, Data: data}
}

// clientError returns the error of an upstream that its client program handles instead of the model, nil
// for others.
func clientError(err error) *jsonrpc.Error {
	details := tools.ErrorDetails(err)
	code, _ := details["rpc_code"].(int64)
	if code != mcp.CodeMissingRequiredClientCapabilities && code != mcp.CodeURLElicitationRequired {
		return nil
	}
	data, _ := details["rpc_data"].(json.RawMessage)
	return &jsonrpc.Error{Code: code, Message: errs.From(err).Detail, Data: data}
}

// countFailure reports the code of a failed request to Options.OnFailure.
func (g *Server) countFailure(code string) {
	if g.opts.OnFailure != nil {
		g.opts.OnFailure(code)
	}
}

// countFailures is a middleware that counts JSON-RPC errors. A cancellation is no failure.
func (g *Server) countFailures(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		res, err := next(ctx, method, req)
		if errors.Is(err, context.Canceled) && ctx.Err() != nil {
			return res, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the request was cancelled"} // see cancelledResponse
		}
		if err != nil {
			problem := &jsonrpc.Error{Code: jsonrpc.CodeInternalError}
			errors.As(err, &problem)
			g.countFailure(failureCode(problem))
		}
		return res, err
	}
}

// cancelledResponse is the end of the SDK's response to a cancelled request, which comet does not send on
// streams (MCP, Cancellation). In a result or in parameters more braces follow the same text.
const cancelledResponse = `,"error":{"code":-32603,"message":"the request was cancelled"}}`

// failureCode returns the code of an error, "other" for one that only the SDK has.
func failureCode(e *jsonrpc.Error) string {
	switch e.Code {
	case jsonrpc.CodeParseError, jsonrpc.CodeInvalidRequest, jsonrpc.CodeMethodNotFound, jsonrpc.CodeInvalidParams, jsonrpc.CodeInternalError,
		codeHTTPError, codeNoSession:
		return strconv.FormatInt(e.Code, 10)
	}
	return "other"
}

// writeRPCError responds to a request with an error. id is nil if the request has none.
func writeRPCError(w http.ResponseWriter, status int, id any, problem *jsonrpc.Error) {
	if problem.Data == nil && status >= http.StatusBadRequest {
		problem.Data = errorData(status, map[int64]errs.Code{
			jsonrpc.CodeParseError: errs.MalformedJSON, jsonrpc.CodeInvalidRequest: errs.InvalidRequest, jsonrpc.CodeInvalidParams: errs.InvalidParameter,
		}[problem.Code])
	}
	if a, ok := w.(*resultFilter); ok {
		a.countFailure(failureCode(problem))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(stdio.ErrorResponse(id, problem))
}

// writeHTTPError rejects a request. code is "" for an error without a code.
func writeHTTPError(w http.ResponseWriter, status int, id any, code errs.Code, sentence string) {
	rpc := int64(codeHTTPError)
	switch status {
	case http.StatusNotFound:
		rpc = codeNoSession
	case http.StatusBadRequest:
		rpc = jsonrpc.CodeInvalidRequest
	}
	writeRPCError(w, status, id, &jsonrpc.Error{Code: rpc, Message: sentence, Data: errorData(status, code)})
}

// errorData returns the status, which client libraries hide, and the code as in MCP errors.
func errorData(status int, code errs.Code) []byte {
	if code == "" {
		return fmt.Appendf(nil, `{"status":%d}`, status)
	}
	return fmt.Appendf(nil, `{"code":%q,"status":%d}`, strings.ToUpper(strings.ReplaceAll(string(code), "-", "_")), status)
}

// recovered returns the error of a request that panicked with p, its own error if p is nil.
func (g *Server) recovered(method string, p any, err error) error {
	if p == nil {
		return err
	}
	g.log.Error("an MCP request panicked", "method", method, "panic", p, "stack", string(debug.Stack()))
	return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "comet failed; see its log"}
}

// outcomeOf returns the outcome of a call for its client: errors but invalid arguments are results.
func (g *Server) outcomeOf(res *upstream.Result, err error) (*upstream.Result, error) {
	switch {
	case err == nil || tools.ErrorName(err) == "":
		if res != nil && res.IsError() {
			g.countFailure("TOOL_ERROR")
		}
		return res, err
	case errors.Is(err, tools.ErrInvalidArguments), clientError(err) != nil:
		return nil, toRPCError(err)
	}
	g.countFailure(tools.ErrorName(err))
	return upstream.NewResult(toolResult(err)), nil
}
