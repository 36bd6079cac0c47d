package api

import (
	"net/http"

	"comet/models"
)

// callerIdentity is who makes the request.
type callerIdentity struct {
	Token tokenView  `json:"token"`
	Agent *agentItem `json:"agent"` // The agent that the token is bound to.
	// The agents above that agent, its parent first; empty without an agent.
	ChainOfCommand []ancestorView `json:"chain_of_command"`
}

// me tells callers who they are.
//
//	@Summary		Who am I
//	@Description	The caller's token, the agent it is bound to and that agent's chain of command.
//	@ID				getMe
//	@Tags			tokens
//	@Produce		json
//	@Security		BearerAuth
//	@Param			If-None-Match	header	string	false	"The ETag you have"
//	@Success		200	{object}	callerIdentity	"You"
//	@Header			200	{string}	ETag
//	@Success		304	"Nothing changed"
//	@Router			/api/v1/me [get]
func (s *Server) me(w http.ResponseWriter, r *http.Request) error {
	if err := newQuery(r).Err(); err != nil {
		return err
	}
	ctx, p := r.Context(), caller(r)
	t, err := s.auth.Get(ctx, p.TokenID)
	if err != nil {
		return err
	}
	out := callerIdentity{Token: newTokenView(t), ChainOfCommand: []ancestorView{}}
	if t.AgentID != nil {
		d, err := s.registry.Get(ctx, *t.AgentID)
		if err != nil {
			return err
		}
		var above []models.Agent
		if above, err = s.registry.Ancestors(ctx, *t.AgentID); err != nil {
			return err
		}
		out.Agent, out.ChainOfCommand = new(newAgentItem(d.Agent)), newChain(above)
	}
	return s.writeJSON(w, r, http.StatusOK, out)
}
