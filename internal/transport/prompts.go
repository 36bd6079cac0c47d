package transport

import (
	"context"
	"net/http"

	"github.com/go-chi/chi/v5"

	"comet/internal/errs"
	"comet/internal/protocol"
	"comet/models"
)

// prompter is a dialect that tells agents which are language models how it is spoken.
type prompter interface {
	Prompt(ctx context.Context, name, language, agentID string) (string, error)
}

// getPrompt serves the system prompts of PROTOCOL_V5.
//
//	@Summary		A system prompt
//	@Description	One of the three system prompts of PROTOCOL_V5 §13, filled in with the agents that are there. For a token that is bound to an agent the prompt of a worker is that agent's.
//	@ID				getPrompt
//	@Tags			agent door
//	@Produce		plain
//	@Security		BearerAuth
//	@Param			name	path	string	true	"Whose prompt"	enums(orchestrator,worker,research)	example(worker)
//	@Param			lang	query	string	false	"The language"	enums(fr,en)	default(fr)	example(en)
//	@Success		200	{string}	string	"The prompt"
//	@Failure		404	{string}	string	"E40: there is no such prompt"
//	@x-comet-failures	"line"
//	@Router			/api/v5/prompts/{name} [get]
func getPrompt(speech protocol.Protocol) handler {
	return func(w http.ResponseWriter, r *http.Request, who caller) error {
		if err := maySend(who.Principal); err != nil && !who.Has(models.ScopeAgentsRead) {
			return err
		}
		p, ok := speech.(prompter)
		if !ok {
			return errs.New(errs.NotFound, "there are no prompts here")
		}
		language := r.URL.Query().Get("lang")
		if language == "" {
			language = "fr"
		}
		agentID := ""
		if who.AgentID != nil {
			agentID = *who.AgentID
		}
		text, err := p.Prompt(r.Context(), chi.URLParam(r, "name"), language, agentID)
		if err != nil {
			return err
		}
		writeReply(w, protocol.Reply{Status: http.StatusOK, Body: []byte(text), ContentType: contentTypeText + "; charset=utf-8"})
		return nil
	}
}
