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

// defaultMaxBody is the longest request in bytes where nothing else is said: what the SDK has.
const defaultMaxBody = 4 << 20

// validateMessages answers what is no JSON, no message of JSON-RPC, or no request of MCP, with the
// errors that the document names (AgentCards, “Codes d'erreur”: PARSE_ERROR, INVALID_REQUEST,
// INVALID_PARAMS). The SDK says some of it in plain text, and some in the words of its library.
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
			writeHTTPError(w, http.StatusRequestEntityTooLarge, nil, errs.BodyTooLarge, fmt.Sprintf("the request has more than %d bytes, which is as many as it may", most))
			return
		case err != nil:
			writeHTTPError(w, http.StatusBadRequest, nil, errs.InvalidRequest, "the request ended before all of it had come")
			return
		}
		if d.rejectInvalid(w, r, body) {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

// rejectInvalid answers a body that is not what it should be.
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
		writeRPCError(w, http.StatusBadRequest, said.ID.Raw(), invalidRequest("the message has no method, and no result or error of a request that it answers"))
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
		return false // which is the SDK's to say
	}
	if !newest && rejectMisplaced(w, r, req) {
		return true
	}
	if problem := d.schemas.check(req); problem != nil {
		status := http.StatusOK // an answer of the protocol
		if newest || !req.IsCall() || problem.Code == jsonrpc.CodeInvalidRequest {
			status = http.StatusBadRequest
		}
		writeRPCError(w, status, req.ID.Raw(), problem)
		return true
	}
	return false
}

// rejectInvalidBatch answers a batch in which something is not what it should be: none of it is done.
// Only the oldest revision of the path has batches.
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

// rejectMisplaced answers what a client says that no revision with sessions knows, or that comes
// before the session it needs: the SDK takes that for a broken request of HTTP.
func rejectMisplaced(w http.ResponseWriter, r *http.Request, req *jsonrpc.Request) bool {
	switch {
	case !slices.Contains(knownMethods(), req.Method) && req.IsCall():
		writeRPCError(w, http.StatusOK, req.ID.Raw(), &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: fmt.Sprintf("there is no method %q", clip(req.Method))})
	case !slices.Contains(knownMethods(), req.Method): // nobody waits for an answer
		w.WriteHeader(http.StatusAccepted)
	case req.IsCall() && r.Header.Get("Mcp-Session-Id") == "" && !slices.Contains([]string{"initialize", "ping", "server/discover", "subscriptions/listen"}, req.Method):
		writeRPCError(w, http.StatusBadRequest, req.ID.Raw(), &jsonrpc.Error{
			Code:    jsonrpc.CodeInvalidRequest,
			Message: "the request is of no session: begin one with initialize, or ask in " + statelessVersion + " with its header Mcp-Protocol-Version and its _meta",
		})
	default:
		return false
	}
	return true
}

// knownMethods are those of the revisions with sessions, and of the newest, which a client may try.
func knownMethods() []string {
	return []string{
		"initialize", "ping", "tools/list", "tools/call", "prompts/list", "prompts/get", "completion/complete", "logging/setLevel",
		"resources/list", "resources/read", "resources/templates/list", "resources/subscribe", "resources/unsubscribe",
		"notifications/initialized", "notifications/cancelled", "notifications/progress", "notifications/roots/list_changed",
		"server/discover", "subscriptions/listen",
	}
}
