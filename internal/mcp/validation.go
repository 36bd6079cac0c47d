package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"comet/internal/errs"
)

// defaultMaxBody is the default size limit of a request in bytes, as in the SDK.
const defaultMaxBody = 4 << 20

// validateMessages rejects invalid JSON, invalid JSON-RPC messages and invalid requests of MCP with
// the errors of the document (AgentCards, “Codes d'erreur”: PARSE_ERROR, INVALID_REQUEST,
// INVALID_PARAMS). The SDK's own errors are plain text or name Go types.
func (d *Handler) validateMessages(next http.Handler) http.Handler {
	most := d.opts.MaxBody
	if most <= 0 {
		most = defaultMaxBody
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			next.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
		var long *http.MaxBytesError
		switch {
		case errors.As(err, &long):
			writeHTTPError(w, http.StatusRequestEntityTooLarge, nil, errs.BodyTooLarge, fmt.Sprintf("the request is larger than %d bytes, the limit", most))
			return
		case err != nil:
			writeHTTPError(w, http.StatusBadRequest, nil, errs.InvalidRequest, "the request is incomplete")
			return
		}
		if d.rejectInvalid(w, r, body) {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

// rejectInvalid responds to an invalid body and reports whether it did.
func (d *Handler) rejectInvalid(w http.ResponseWriter, r *http.Request, body []byte) bool {
	if trimmed := bytes.TrimSpace(body); len(trimmed) > 0 && trimmed[0] == '[' && json.Valid(trimmed) {
		return d.rejectInvalidBatch(w, r, trimmed)
	}
	msg, err := jsonrpc.DecodeMessage(body)
	if err != nil {
		id, problem := decodeError(body)
		writeRPCError(w, http.StatusBadRequest, rawID(id), problem)
		return true
	}
	if said, ok := msg.(*jsonrpc.Response); ok && said.Result == nil && said.Error == nil {
		writeRPCError(w, http.StatusBadRequest, said.ID.Raw(), invalidRequest("the message has neither a method nor a result or an error"))
		return true
	}
	req, ok := msg.(*jsonrpc.Request)
	if !ok {
		return false
	}
	if a, ok := w.(*resultFilter); ok && req.IsCall() {
		a.id = req.ID.Raw()
	}
	revision := r.Header.Get("Mcp-Protocol-Version")
	newest := revision >= statelessVersion
	if !newest && revision != "" && !slices.Contains(protocolVersions(), revision) {
		return false // the SDK rejects it
	}
	if !newest && rejectMisplaced(w, r, req) {
		return true
	}
	if problem := d.schemas.check(req); problem != nil {
		status := http.StatusOK // an error response of the protocol
		if newest || !req.IsCall() || problem.Code == jsonrpc.CodeInvalidRequest {
			status = http.StatusBadRequest
		}
		writeRPCError(w, status, req.ID.Raw(), problem)
		return true
	}
	return false
}

// rejectInvalidBatch responds to a batch with a mistake, of which no message is processed. Only the
// oldest version of Streamable HTTP has batches.
func (d *Handler) rejectInvalidBatch(w http.ResponseWriter, r *http.Request, body []byte) bool {
	if v := r.Header.Get("Mcp-Protocol-Version"); v > lastWithBatches { // the SDK refuses it
		return false
	}
	answers := d.schemas.checkBatch(body)
	if answers == nil {
		return false
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answers)
	return true
}

// rejectMisplaced responds to unknown methods and to requests without the session that they need.
// The SDK would reject them as invalid HTTP requests.
func rejectMisplaced(w http.ResponseWriter, r *http.Request, req *jsonrpc.Request) bool {
	switch {
	case !slices.Contains(knownMethods(), req.Method) && req.IsCall():
		writeRPCError(w, http.StatusOK, req.ID.Raw(), &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: fmt.Sprintf("unknown method %q", clip(req.Method))})
	case !slices.Contains(knownMethods(), req.Method): // an unknown notification
		w.WriteHeader(http.StatusAccepted)
	case req.IsCall() && r.Header.Get("Mcp-Session-Id") == "" && !slices.Contains([]string{"initialize", "ping", "server/discover", "subscriptions/listen"}, req.Method):
		writeRPCError(w, http.StatusBadRequest, req.ID.Raw(), &jsonrpc.Error{
			Code:    jsonrpc.CodeInvalidRequest,
			Message: "the request has no session: start one with initialize, or use " + statelessVersion + " with its header Mcp-Protocol-Version and its _meta",
		})
	default:
		return false
	}
	return true
}

// knownMethods returns the methods of the versions with sessions, and those of the newest one that
// a client may try.
func knownMethods() []string {
	return []string{
		"initialize", "ping", "tools/list", "tools/call", "prompts/list", "prompts/get", "completion/complete", "logging/setLevel",
		"resources/list", "resources/read", "resources/templates/list", "resources/subscribe", "resources/unsubscribe",
		"notifications/initialized", "notifications/cancelled", "notifications/progress", "notifications/roots/list_changed",
		"server/discover", "subscriptions/listen",
	}
}
