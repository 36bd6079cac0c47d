package mcp

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/errs"
	"comet/internal/httpkit"
	"comet/internal/mcp/stdio"
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
		body, _, err := httpkit.ReadBody(w, r, httpkit.BodyRules{Limit: most})
		if err != nil {
			e := errs.From(err)
			if e.Code == errs.Internal { // the client is gone
				e = errs.New(errs.InvalidRequest, "the request is incomplete")
			}
			status := map[errs.Code]int{
				errs.BodyTooLarge: http.StatusRequestEntityTooLarge, errs.Timeout: http.StatusRequestTimeout, errs.Unavailable: http.StatusServiceUnavailable,
			}[e.Code]
			if status == http.StatusServiceUnavailable {
				w.Header().Set("Retry-After", "5")
			}
			writeHTTPError(w, cmp.Or(status, http.StatusBadRequest), nil, e.Code, e.Detail)
			return
		}
		if d.serveDirect(w, r, body) || d.rejectInvalid(w, r, body) {
			return
		}
		httpkit.FreeSlot(r) // a call can take minutes
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

// rejectInvalid responds to an invalid body and reports whether it did.
func (d *Handler) rejectInvalid(w http.ResponseWriter, r *http.Request, body []byte) bool {
	revision := r.Header.Get("Mcp-Protocol-Version")
	var batch []json.RawMessage
	if trimmed := bytes.TrimSpace(body); len(trimmed) > 0 && trimmed[0] == '[' && json.Unmarshal(trimmed, &batch) == nil {
		if revision > lastWithBatches { // the SDK refuses it
			return false
		}
		replies := d.requests.checkBatch(batch)
		if replies != nil {
			for _, reply := range replies {
				d.server.countFailure(failureCode(reply["error"].(*jsonrpc.Error)))
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(replies)
		}
		return replies != nil
	}
	msg, err := jsonrpc.DecodeMessage(body)
	if err != nil {
		id, mistake := stdio.DecodeError(body)
		writeRPCError(w, http.StatusBadRequest, id, mistake)
		return true
	}
	if m, ok := msg.(*jsonrpc.Response); ok && m.Result == nil && m.Error == nil {
		writeRPCError(w, http.StatusBadRequest, m.ID.Raw(), stdio.InvalidRequest("the message has neither a method nor a result or an error"))
		return true
	}
	req, ok := msg.(*jsonrpc.Request)
	if !ok {
		return false
	}
	if a, ok := w.(*resultFilter); ok && req.IsCall() {
		a.id = req.ID.Raw()
	}
	newest := revision >= statelessVersion
	if !newest && revision != "" && !slices.Contains(mcp.SupportedProtocolVersions(), revision) {
		return false // the SDK rejects it
	}
	if !newest && d.rejectMisplaced(w, r, req) {
		return true
	}
	mistake := d.requests.check(req)
	if newest && slices.Contains([]string{"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}, req.Method) {
		mistake = unknownMethod(req.Method, " in "+statelessVersion)
	}
	if mistake == nil && newest && req.Method == "tools/call" {
		var p mcp.CallToolParamsRaw
		if json.Unmarshal(req.Params, &p) == nil {
			mistake = d.checkParamHeaders(r, p.Name, p.Arguments)
		}
	}
	if task := (taskParams{}); mistake == nil && newest && strings.HasPrefix(req.Method, "tasks/") && json.Unmarshal(req.Params, &task) == nil &&
		r.Header.Get("Mcp-Name") != task.TaskID {
		mistake = &jsonrpc.Error{Code: mcp.CodeHeaderMismatch, Message: "the header Mcp-Name must be params.taskId"}
	}
	if mistake == nil {
		if req.Method == "notifications/cancelled" {
			who, _ := r.Context().Value(identityKey{}).(identity)
			d.cancelCall(r.Header.Get("Mcp-Session-Id"), who.principal.TokenID, req.Params)
		}
		return false
	}
	status := http.StatusOK // an error response of the protocol
	switch {
	case newest && mistake.Code == jsonrpc.CodeMethodNotFound:
		status = http.StatusNotFound
	case newest, !req.IsCall(), mistake.Code == jsonrpc.CodeInvalidRequest:
		status = http.StatusBadRequest
	}
	writeRPCError(w, status, req.ID.Raw(), mistake)
	return true
}

// rejectMisplaced responds to unknown notifications and to requests without the session that they need.
// The SDK would reject them as invalid HTTP requests.
func (d *Handler) rejectMisplaced(w http.ResponseWriter, r *http.Request, req *jsonrpc.Request) bool {
	known := d.requests[req.Method] != nil || slices.Contains([]string{
		"notifications/initialized", "notifications/cancelled", "notifications/progress", "notifications/roots/list_changed",
	}, req.Method)
	switch {
	case !known && !req.IsCall():
		w.WriteHeader(http.StatusAccepted)
	case known && req.IsCall() && r.Header.Get("Mcp-Session-Id") == "" && !slices.Contains([]string{"initialize", "ping", "server/discover", "subscriptions/listen"}, req.Method):
		writeRPCError(w, http.StatusBadRequest, req.ID.Raw(), &jsonrpc.Error{
			Code:    jsonrpc.CodeInvalidRequest,
			Message: "the request has no session: start one with initialize, or use " + statelessVersion + " with its header Mcp-Protocol-Version and its _meta",
		})
	default:
		return false
	}
	return true
}
