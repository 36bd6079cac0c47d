package mcp

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

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
