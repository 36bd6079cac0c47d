package api

import (
	"net/http"
	"time"

	"comet/internal/auth"
	"comet/models"
)

const tokensPath = "/api/v1/tokens"

// tokenView is a token without its secret.
type tokenView struct {
	ID        string         `json:"id" example:"01890a5d-ac96-774b-bcce-b302099a8057"`
	Name      string         `json:"name" example:"ci-importer"`
	Scopes    []models.Scope `json:"scopes" example:"agents:read,agents:write"`
	AgentID   *string        `json:"agent_id" example:"finance-personal"` // The agent that holds it.
	CreatedBy string         `json:"created_by" example:"bootstrap-admin"`
	CreatedAt time.Time      `json:"created_at" example:"2026-01-10T15:30:00Z"`
	RotatedAt *time.Time     `json:"rotated_at" example:"2026-01-11T15:30:00Z"`
	ExpiresAt *time.Time     `json:"expires_at" example:"2027-01-10T00:00:00Z"`
	RevokedAt *time.Time     `json:"revoked_at" example:"2026-01-12T15:30:00Z"`
}

// tokenIssued is a token with its secret, which is shown this once.
type tokenIssued struct {
	tokenView
	// The secret, 32 hexadecimal characters. It is shown this once; the answer to
	// a repeated Idempotency-Key leaves it out.
	Token string `json:"token,omitempty" example:"3f2b8c1de4a5968778695a4e1dcb2f30"`
}

// tokenList is one page of tokens.
type tokenList struct {
	Tokens     []tokenView `json:"tokens"`
	NextCursor string      `json:"next_cursor,omitempty" example:"MDE4OTBhNWQ"` // Absent on the last page.
}

func newTokenView(t models.Token) tokenView {
	return tokenView{
		ID: t.ID, Name: t.Name, Scopes: t.Scopes, AgentID: t.AgentID, CreatedBy: t.CreatedBy, CreatedAt: t.CreatedAt,
		RotatedAt: t.RotatedAt, ExpiresAt: t.ExpiresAt, RevokedAt: t.RevokedAt,
	}
}

// createToken issues a token.
//
//	@Summary		Create a token
//	@Description	`token` is the secret; only its SHA-256 is kept, so it is shown this once.
//	@ID				createToken
//	@Tags			tokens
//	@Accept			json
//	@Produce		json
//	@Security		BearerAuth[admin]
//	@Param			Idempotency-Key	header	string				false	"Makes a repeated request answer as the first one did, without the secret"	maxlength(255)
//	@Param			body			body	models.TokenDraft	true	"The token"
//	@Success		201	{object}	tokenIssued	"Created"
//	@Header			201	{string}	Location
//	@Header			201	{string}	Idempotency-Replayed
//	@Failure		400	"A field is missing or malformed, the expiry has passed, or the agent does not exist"
//	@Failure		409	"The key was used with another request"
//	@Router			/api/v1/tokens [post]
func (s *Server) createToken(w http.ResponseWriter, r *http.Request) error {
	if err := newQuery(r).Err(); err != nil {
		return err
	}
	var d models.TokenDraft
	body, err := s.decode(w, r, &d)
	if err != nil {
		return err
	}
	once, err := s.readIdempotencyKey(r, body, s.renderIssued(http.StatusCreated))
	if err != nil {
		return err
	}
	issued, err := s.auth.Create(r.Context(), caller(r), d, once)
	if err != nil || s.writeReplay(w, once) {
		return err
	}
	return s.writeIssued(w, r, http.StatusCreated, issued)
}

// rotateToken gives a token a new secret.
//
//	@Summary		Rotate a token
//	@Description	Gives the token a new secret; the old one ends at once.
//	@ID				rotateToken
//	@Tags			tokens
//	@Produce		json
//	@Security		BearerAuth[admin]
//	@Param			token_id		path	string	true	"The token's id"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a8057)
//	@Param			Idempotency-Key	header	string	false	"Makes a repeated request answer as the first one did, without the secret"	maxlength(255)
//	@Success		200	{object}	tokenIssued	"Rotated"
//	@Header			200	{string}	Idempotency-Replayed
//	@Failure		400	"A malformed header"
//	@Failure		404	"No such token"
//	@Failure		409	"The token is revoked, or the key was used with another request"
//	@Router			/api/v1/tokens/{token_id}/rotate [post]
func (s *Server) rotateToken(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "token_id")
	if err != nil {
		return err
	}
	if err := rejectBody(r); err != nil {
		return err
	}
	once, err := s.readIdempotencyKey(r, nil, s.renderIssued(http.StatusOK))
	if err != nil {
		return err
	}
	issued, err := s.auth.Rotate(r.Context(), caller(r), id, once)
	if err != nil || s.writeReplay(w, once) {
		return err
	}
	return s.writeIssued(w, r, http.StatusOK, issued)
}

// renderIssued makes the stored answer, which has no secret.
func (s *Server) renderIssued(status int) func(any) (models.StoredResponse, error) {
	return func(result any) (models.StoredResponse, error) {
		issued := result.(auth.Issued)
		body, err := s.encode(tokenIssued{tokenView: newTokenView(issued.Token)})
		return models.StoredResponse{
			Status: status, Body: body,
			Header: map[string]string{"Location": tokenURL(issued.Token.ID), "Cache-Control": "no-store"},
		}, err
	}
}

func (s *Server) writeIssued(w http.ResponseWriter, r *http.Request, status int, issued auth.Issued) error {
	w.Header().Set("Location", tokenURL(issued.Token.ID))
	w.Header().Set("Cache-Control", "no-store")
	return s.writeJSON(w, r, status, tokenIssued{newTokenView(issued.Token), issued.Secret})
}

// listTokens lists tokens.
//
//	@Summary		List tokens
//	@Description	Every token in the order of creation, revoked and expired ones too, without their secrets.
//	@ID				listTokens
//	@Tags			tokens
//	@Produce		json
//	@Security		BearerAuth[admin]
//	@Param			limit			query	int		false	"Size of a page"	minimum(1)	maximum(1000)	default(100)
//	@Param			cursor			query	string	false	"Where the page begins, as given by the page before"	maxlength(100)
//	@Param			If-None-Match	header	string	false	"The ETag you have"
//	@Success		200	{object}	tokenList	"One page"
//	@Header			200	{string}	ETag
//	@Header			200	{string}	Link
//	@Success		304	"Nothing changed"
//	@Failure		400	"A parameter is unknown or out of range"
//	@Router			/api/v1/tokens [get]
func (s *Server) listTokens(w http.ResponseWriter, r *http.Request) error {
	q := newQuery(r, "limit", "cursor")
	limit, after := q.Int("limit", 1, maxLimit, defaultLimit), q.idCursor()
	if err := q.Err(); err != nil {
		return err
	}
	tokens, err := s.auth.List(r.Context(), after, limit+1)
	if err != nil {
		return err
	}
	var page tokenList
	if len(tokens) > limit {
		tokens = tokens[:limit]
		page.NextCursor = encodeCursor(tokens[limit-1].ID)
		w.Header().Set("Link", links(r, page.NextCursor))
	}
	page.Tokens = make([]tokenView, len(tokens))
	for i, t := range tokens {
		page.Tokens[i] = newTokenView(t)
	}
	return s.writeJSON(w, r, http.StatusOK, page)
}

// getToken returns one token.
//
//	@Summary		Get a token
//	@Description	The token without its secret.
//	@ID				getToken
//	@Tags			tokens
//	@Produce		json
//	@Security		BearerAuth[admin]
//	@Param			token_id		path	string	true	"The token's id"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a8057)
//	@Param			If-None-Match	header	string	false	"The ETag you have"
//	@Success		200	{object}	tokenView	"The token"
//	@Header			200	{string}	ETag
//	@Success		304	"Nothing changed"
//	@Failure		404	"No such token"
//	@Router			/api/v1/tokens/{token_id} [get]
func (s *Server) getToken(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "token_id")
	if err != nil {
		return err
	}
	t, err := s.auth.Get(r.Context(), id)
	if err != nil {
		return err
	}
	return s.writeJSON(w, r, http.StatusOK, newTokenView(t))
}

// revokeToken ends a token.
//
//	@Summary		Revoke a token
//	@Description	The token ends at once on this replica and within a second on the others. The last token with the scope `admin` cannot be revoked.
//	@ID				revokeToken
//	@Tags			tokens
//	@Security		BearerAuth[admin]
//	@Param			token_id	path	string	true	"The token's id"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a8057)
//	@Success		204	"Revoked"
//	@Failure		404	"No such token"
//	@Failure		409	"The last admin token"
//	@Router			/api/v1/tokens/{token_id} [delete]
func (s *Server) revokeToken(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "token_id")
	if err != nil {
		return err
	}
	if err := rejectBody(r); err != nil {
		return err
	}
	if err := s.auth.Revoke(r.Context(), caller(r), id); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func tokenURL(id string) string { return tokensPath + "/" + id }

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
