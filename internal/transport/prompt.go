package transport

import (
	"cmp"
	"net/http"

	"github.com/go-chi/chi/v5"

	"comet/internal/httpkit"
	"comet/internal/protocol"
	"comet/models"
)

// getPrompt returns a system prompt of a protocol.
func getPrompt(proto *describedProtocol) handler {
	return func(w http.ResponseWriter, r *http.Request, from httpkit.Identity) error {
		if err := maySend(from.Principal); err != nil && !from.Has(models.ScopeAgentsRead) {
			return err
		}
		language := r.URL.Query().Get("lang")
		language = cmp.Or(language, "fr")
		peer := protocol.Peer{Principal: from.Principal}
		text, err := proto.info.Prompt(r.Context(), chi.URLParam(r, "name"), language, peer.AgentID())
		if err != nil {
			return err
		}
		writeReply(w, protocol.Reply{Status: http.StatusOK, Body: []byte(text), ContentType: "text/plain; charset=utf-8"})
		return nil
	}
}
