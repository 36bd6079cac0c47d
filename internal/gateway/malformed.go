package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// defaultMaxBody is the longest request in bytes where nothing else is said: what the SDK has.
const defaultMaxBody = 4 << 20

// wellFormed answers what is no JSON, or no message of JSON-RPC, with the errors that the
// document names (AgentCards, “Codes d'erreur”: PARSE_ERROR, INVALID_REQUEST). The SDK says it
// in plain text, which a client cannot tell from the answer of something in between.
func wellFormed(next http.Handler, most int64) http.Handler {
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
			http.Error(w, "the request is too long", http.StatusRequestEntityTooLarge)
			return
		case err != nil:
			http.Error(w, "the request cannot be read", http.StatusBadRequest)
			return
		}
		msg, bad := malformed(body)
		if bad != nil {
			answerError(w, http.StatusBadRequest, nil, bad)
			return
		}
		if req, ok := msg.(*jsonrpc.Request); ok && r.Header.Get("Mcp-Protocol-Version") < stateless && outOfPlace(w, r, req) {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

// outOfPlace answers what a client says that no revision with sessions knows, or that comes
// before the session it needs: the SDK takes that for a broken request of HTTP.
func outOfPlace(w http.ResponseWriter, r *http.Request, req *jsonrpc.Request) bool {
	switch {
	case !slices.Contains(methods(), req.Method) && req.IsCall():
		answerError(w, http.StatusOK, &req.ID, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: fmt.Sprintf("there is no method %q", clip(req.Method))})
	case !slices.Contains(methods(), req.Method): // nobody waits for an answer
		w.WriteHeader(http.StatusAccepted)
	case req.IsCall() && r.Header.Get("Mcp-Session-Id") == "" && !slices.Contains([]string{"initialize", "ping", "server/discover", "subscriptions/listen"}, req.Method):
		answerError(w, http.StatusBadRequest, &req.ID, &jsonrpc.Error{
			Code:    jsonrpc.CodeInvalidRequest,
			Message: "the request is of no session: begin one with initialize, or ask in " + stateless + " with its header Mcp-Protocol-Version and its _meta",
		})
	default:
		return false
	}
	return true
}

// methods are those of the revisions with sessions, and of the newest, which a client may try.
func methods() []string {
	return []string{
		"initialize", "ping", "tools/list", "tools/call", "prompts/list", "prompts/get", "completion/complete", "logging/setLevel",
		"resources/list", "resources/read", "resources/templates/list", "resources/subscribe", "resources/unsubscribe",
		"notifications/initialized", "notifications/cancelled", "notifications/progress", "notifications/roots/list_changed",
		"server/discover", "subscriptions/listen",
	}
}

// answerError answers a request with an error; id is nil where it has none.
func answerError(w http.ResponseWriter, status int, id *jsonrpc.ID, problem *jsonrpc.Error) {
	answer := map[string]any{"jsonrpc": "2.0", "id": nil, "error": problem}
	if id != nil {
		answer["id"] = id.Raw()
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer)
}

// malformed is what is wrong with a body, nil for nothing. What is in a batch, which only the
// oldest revision of the path has, the SDK looks at.
func malformed(body []byte) (jsonrpc.Message, *jsonrpc.Error) {
	trimmed := bytes.TrimLeft(body, " \t\r\n")
	if len(trimmed) > 0 && trimmed[0] == '[' && json.Valid(trimmed) {
		return nil, nil
	}
	msg, err := jsonrpc.DecodeMessage(body)
	switch {
	case err == nil:
		return msg, nil
	case !json.Valid(body):
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeParseError, Message: "the request is no JSON"}
	}
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "the request is no message of JSON-RPC 2.0: " + clip(err.Error())}
}
