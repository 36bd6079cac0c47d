package api

import (
	"comet/internal/auth"
	"comet/models"
)

const tokensPath = "/api/v1/tokens"

// tokenIssued is a token with its secret.
type tokenIssued struct {
	models.Token
	// The secret, 32 hexadecimal characters. It is returned only once; the response to a repeated
	// Idempotency-Key omits it.
	Secret string `json:"token,omitempty" example:"3f2b8c1de4a5968778695a4e1dcb2f30"`
}

// tokenList is one page of tokens.
type tokenList struct {
	Tokens     []models.Token `json:"tokens"`                                      // The tokens on the page.
	NextCursor string         `json:"next_cursor,omitempty" example:"MDE4OTBhNWQ"` // Absent on the last page.
}

// createToken creates a token.
//
//	@Summary		Create a token
//	@Description	Creates a token. `token` is its secret; comet stores only the SHA-256, so the secret is returned only once. It requires the scope `admin` or a token that is bound to an agent. Such a token creates tokens for its agent (the default) and the agents below it, with at most its own scopes and expiry; the tool policies of both apply to them, and they are revoked with it. A token with the scope `admin` can be bound to agents of level 0 and 1 only.
//	@Param			body			body	auth.TokenDraft	true	"The token to create"
//	@Success		201	{object}	tokenIssued	"The token with its secret"
//	@Failure		400	"A field is missing or malformed, the expiry has passed, or the agent does not exist"
//	@Failure		403	"The token lacks the scope, is bound to another agent, or its agent is inactive"
//	@Failure		422	"The token, or one that it descends from, has as many descendants as its quota allows, or it descends from five other tokens"
func (s *Server) createToken(r request, d auth.TokenDraft, once *models.Idempotency) (auth.Issued, error) {
	return s.core.Auth.Create(r.Context(), r.caller, d, once)
}

// rotateToken replaces the secret of a token.
//
//	@Summary		Rotate a token
//	@Description	Replaces the secret of the token. The previous secret becomes invalid at once; the tokens that descend from the token stay valid and are revoked with it later. If the secret has leaked, revoke the token instead, which also ends the tokens that were created with it. A token that is bound to an agent can rotate itself and the tokens that descend from it.
//	@Param			If-Match	header	string	false	"Rotate the token only if this entity tag has its current version"
//	@Success		200	{object}	tokenIssued	"The token with its new secret"
//	@Failure		400	"A header is malformed"
//	@Failure		409	"The token is revoked, or the Idempotency-Key was used with a different request"
func (s *Server) rotateToken(r request, _ struct{}, once *models.Idempotency) (auth.Issued, error) {
	return s.core.Auth.Rotate(r.Context(), r.caller, r.id, r.pre, once)
}

// withoutSecret returns the body for a repeated Idempotency-Key.
func (t tokenIssued) withoutSecret() any { return tokenIssued{Token: t.Token} }

// tokenReply returns the function that makes the response with a token and its secret.
func tokenReply(status int) func(auth.Issued) reply {
	return func(issued auth.Issued) reply {
		return reply{
			status: status, location: tokensPath + "/" + issued.Token.ID, noStore: true,
			body: tokenIssued{issued.Token, issued.Secret},
		}
	}
}

// listTokens lists tokens.
//
//	@Summary		List tokens
//	@Description	Returns all tokens in the order of creation, without their secrets, including revoked and expired ones. For a token that is bound to an agent these are the token itself and those that descend from it.
//	@Success		200	{object}	tokenList	"A page of results"
func (s *Server) listTokens(r request) (any, error) {
	q := newQuery(r.Request, "limit", "cursor")
	limit, after := q.pageLimit(), q.idCursor()
	if err := q.Err(); err != nil {
		return nil, err
	}
	tokens, err := s.core.Auth.List(r.Context(), r.caller, after, limit+1)
	tokens, next := cutPage(tokens, limit, func(t models.Token) string { return t.ID })
	return reply{next: next, body: tokenList{tokens, next}}, err
}

// getToken returns one token.
//
//	@Summary		Get a token
//	@Description	Returns a token without its secret.
//	@Success		200	{object}	models.Token	"The token"
func (s *Server) getToken(r request) (any, error) {
	t, err := s.core.Auth.Get(r.Context(), r.caller, r.id)
	return reply{version: t.Version(), body: t}, err
}

// revokeToken revokes a token.
//
//	@Summary		Revoke a token
//	@Description	Revokes the token and the tokens that descend from it, at once on this replica and within a second on the others. A token with the scope `admin` for the whole system can be revoked only if another such token remains that is valid for at least 30 days or does not expire. A token that is bound to an agent can revoke itself and the tokens that descend from it.
//	@Param			If-Match	header	string	false	"Revoke the token only if this entity tag has its current version"
//	@Success		204	"Revoked"
//	@Failure		409	"No other token with the scope admin is valid for at least 30 days"
func (s *Server) revokeToken(r request) error {
	return s.core.Auth.Revoke(r.Context(), r.caller, r.id, r.pre)
}

// callerIdentity describes the caller.
type callerIdentity struct {
	Token models.Token `json:"token"`
	Agent *agentItem   `json:"agent"` // The agent that the token is bound to.
	// The agents above that agent, from its parent to nova; empty without an agent.
	ChainOfCommand []ancestorView `json:"chain_of_command"`
}

// getMe returns the caller's token and agent.
//
//	@Summary		Get the caller
//	@Description	Returns the caller's token, the agent it is bound to, and the agents above that one.
//	@Success		200	{object}	callerIdentity	"The caller"
func (s *Server) getMe(r request) (any, error) {
	t, err := s.core.Auth.Get(r.Context(), r.caller, r.caller.TokenID)
	if err != nil {
		return nil, err
	}
	out := callerIdentity{Token: t, ChainOfCommand: []ancestorView{}}
	if t.AgentID == nil {
		return out, nil
	}
	d, err := s.core.Registry.Get(r.Context(), *t.AgentID)
	if err != nil {
		return nil, err
	}
	above, err := s.core.Registry.Ancestors(r.Context(), *t.AgentID)
	out.Agent, out.ChainOfCommand = new(newAgentItem(d.Agent)), views(above, newAncestorView)
	return out, err
}
