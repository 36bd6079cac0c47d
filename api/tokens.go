package api

import (
	"encoding/base64"
	"net/http"
	"time"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/httpkit"
	"comet/internal/input"
	"comet/internal/wire/genesis"
	"comet/models"
	"comet/store/logins"
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
	Login          *callerLogin   `json:"login,omitempty"` // The login of the browser that sent the request; absent for a bearer token.
}

// callerLogin is the login of a browser.
type callerLogin struct {
	ID        string    `json:"id" example:"01890a5d-ac96-774b-bcce-b302099a8057"` // The login's id.
	ExpiresAt time.Time `json:"expires_at" example:"2026-01-17T15:30:00Z"`         // When it ends at the latest.
}

// getMe returns the caller's token and agent.
//
//	@Summary		Get the caller
//	@Description	Returns the caller's token, the agent it is bound to, the agents above that one, and the login of a browser.
//	@Success		200	{object}	callerIdentity	"The caller"
func (s *Server) getMe(r request) (any, error) {
	t, err := s.core.Auth.Get(r.Context(), r.caller, r.caller.TokenID)
	if err != nil {
		return nil, err
	}
	out := callerIdentity{Token: t, ChainOfCommand: []ancestorView{}}
	if r.caller.LoginID != "" {
		out.Login = &callerLogin{r.caller.LoginID, r.caller.LoginEnds}
	}
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

// loginCode is a code that starts a login.
type loginCode struct {
	Code      string    `json:"code" example:"3f2b8c1de4a5968778695a4e1dcb2f30"`            // The code. It is valid once.
	ExpiresAt time.Time `json:"expires_at" example:"2026-01-10T15:31:00Z"`                  // When it expires, after a minute.
	Path      string    `json:"path" example:"/ui/#login=3f2b8c1de4a5968778695a4e1dcb2f30"` // The address of the dashboard with the code, relative to the server.
}

// createLoginCode creates a code that starts a login.
//
//	@Summary		Create a login code
//	@Description	Creates a code with which a browser logs in to the dashboard with the authority of the caller's token, once and within a minute: open `path`, or send the code to `POST /ui/session`. It requires a bearer token; a browser that is logged in cannot create codes. A token has at most 100 codes; the oldest are deleted first.
//	@Success		201	{object}	loginCode	"The code"
//	@Failure		403	"The request has the cookie of a login instead of a token, or the token's agent is inactive"
func (s *Server) createLoginCode(r request, _ struct{}) (any, error) {
	token, err := httpkit.BearerToken(r.Header["Authorization"])
	if err != nil {
		return nil, errs.New(errs.MissingScope, "a login cannot create codes for other logins; send the token itself as \"Authorization: Bearer <token>\"")
	}
	code, expires, err := s.core.Auth.LoginCode(r.Context(), token)
	path := "/ui/#login=" + code
	return reply{status: http.StatusCreated, location: path, noStore: true, body: loginCode{code, expires, path}}, err
}

// loginItem is a login in a list.
type loginItem struct {
	logins.View
	Current bool `json:"current"` // Whether it is the login that sent the request.
}

// loginList is one page of logins.
type loginList struct {
	Logins     []loginItem `json:"logins"`                                      // The logins on the page.
	NextCursor string      `json:"next_cursor,omitempty" example:"MDE4OTBhNWQ"` // Absent on the last page.
}

// listLogins lists the logins of browsers.
//
//	@Summary		List logins
//	@Description	Returns the valid logins of browsers with the caller's token in the order of creation; for an administrator those with all tokens.
//	@Success		200	{object}	loginList	"A page of results"
func (s *Server) listLogins(r request) (any, error) {
	q := newQuery(r.Request, "limit", "cursor")
	limit, after := q.pageLimit(), q.idCursor()
	if err := q.Err(); err != nil {
		return nil, err
	}
	found, err := s.core.Auth.Logins(r.Context(), r.caller, after, limit+1)
	found, next := cutPage(found, limit, func(l logins.View) string { return l.ID })
	list := loginList{views(found, func(l logins.View) loginItem { return loginItem{l, l.ID == r.caller.LoginID} }), next}
	return reply{next: next, body: list}, err
}

// endLogin ends the login of a browser.
//
//	@Summary		End a login
//	@Description	Ends a login with the caller's token, at once on this replica and within a second on the others. An administrator can end every login.
//	@Success		204	"Ended"
func (s *Server) endLogin(r request) error {
	return s.core.Auth.EndLogin(r.Context(), r.caller, r.id)
}

// publicKeyView is a public key of an agent.
type publicKeyView struct {
	KeyID         string     `json:"key_id" example:"e744c0791320c328"` // The first 16 hexadecimal digits of the SHA-256 of the public key.
	AgentID       string     `json:"agent_id" example:"finance-personal"`
	PublicKey     string     `json:"public_key" example:"Gb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE="` // The Ed25519 public key: 32 bytes in base64.
	State         string     `json:"state" example:"valid" enums:"valid,expired,revoked"`               // Whether messages can be signed with the key now.
	Profile       string     `json:"profile" example:"jcs" enums:"v1,jcs"`                              // What a signature must cover: `v1` the members of the message that its protocol selects, `jcs` the whole message (RFC 8785).
	Required      bool       `json:"required" example:"true"`                                           // Whether every message of the agent must be signed.
	SignatureOnly bool       `json:"signature_only" example:"false"`                                    // Whether a signature replaces a token.
	CreatedBy     string     `json:"created_by" example:"ci-importer"`
	CreatedAt     time.Time  `json:"created_at" example:"2026-01-10T15:30:00Z"`
	NotAfter      *time.Time `json:"not_after" example:"2027-01-10T00:00:00Z"`  // When the key expires; null if it does not.
	RevokedAt     *time.Time `json:"revoked_at" example:"2026-01-12T15:30:00Z"` // When it was revoked; null if it was not.
}

// publicKeyList is the public keys of an agent.
type publicKeyList struct {
	Keys []publicKeyView `json:"keys"` // The keys that are not revoked, then the others, the newest first; at most 100.
}

func (s *Server) newPublicKeyView(k models.AgentKey) publicKeyView {
	state := "valid"
	switch {
	case k.RevokedAt != nil:
		state = "revoked"
	case !k.Live(s.opts.Clock()):
		state = "expired"
	}
	return publicKeyView{
		KeyID: k.KeyID, AgentID: k.AgentID, PublicKey: k.PublicKey, State: state, Profile: k.Profile, Required: k.Required, SignatureOnly: k.SignatureOnly,
		CreatedBy: k.CreatedBy, CreatedAt: k.CreatedAt, NotAfter: k.NotAfter, RevokedAt: k.RevokedAt,
	}
}

// listPublicKeys lists the public keys of an agent.
//
//	@Summary		List an agent's public keys
//	@Description	Returns the Ed25519 keys that verify the agent's Genesis messages, including expired and revoked ones. They are not the key of PROTOCOL_V5, which is a shared secret (`/api/v1/agents/{agent_id}/key`).
//	@Success		200	{object}	publicKeyList	"The keys"
func (s *Server) listPublicKeys(r request) (any, error) {
	keys, err := s.core.Keys.List(r.Context(), r.id)
	return publicKeyList{views(keys, s.newPublicKeyView)}, err
}

// getPublicKey returns one public key of an agent.
//
//	@Summary		Get a public key of an agent
//	@Description	Returns an Ed25519 key that verifies the agent's Genesis messages.
//	@Success		200	{object}	publicKeyView	"The key"
func (s *Server) getPublicKey(r request) (any, error) {
	key, err := s.core.Keys.Public(r.Context(), r.id, r.subID)
	return s.newPublicKeyView(key), err
}

// pinPublicKey adds a public key to an agent.
//
//	@Summary		Pin a public key to an agent
//	@Description	Adds an Ed25519 key that verifies the agent's Genesis messages. An agent has at most four valid keys: to rotate, pin the new key, change the agent, then revoke the old key. A public key belongs to one agent, and a revoked one cannot be pinned again. If a valid key is `required`, messages without a valid signature are rejected. With `signature_only`, a signature replaces a token: the agent then has the scope `messages:send` and no other.
//	@Param			body			body	auth.PublicKeyDraft	true	"The key"
//	@Success		201	{object}	publicKeyView	"The key was added"
//	@Failure		400	"A field is missing or malformed, the key is not a public key of Ed25519, or its expiry is in the past"
//	@Failure		409	"This or another agent has or had the key, or the Idempotency-Key was used with a different request"
//	@Failure		422	"The agent has four valid keys"
func (s *Server) pinPublicKey(r request, d auth.PublicKeyDraft, once *models.Idempotency) (out models.AgentKey, err error) {
	if d.PublicKey, err = genesis.ParsePublicKey(d.Text); err != nil {
		return out, input.Violated("/public_key", "public_key", "public_key must be an Ed25519 public key (32 bytes in base64 or 64 hexadecimal digits, or its SubjectPublicKeyInfo in base64 or PEM): %s", err)
	}
	return s.core.Keys.Pin(r.Context(), r.caller, r.id, d, once)
}

func (s *Server) pinnedKey(k models.AgentKey) reply {
	return reply{status: http.StatusCreated, location: "/api/v1/agents/" + k.AgentID + "/keys/" + k.KeyID, body: s.newPublicKeyView(k)}
}

// changePublicKey changes the settings of a public key.
//
//	@Summary		Change the settings of a public key
//	@Description	Changes the given settings, at once on this replica and within a second on the others. The key itself does not change.
//	@Param			body		body	auth.PublicKeyChange	true	"The new settings"
//	@Success		200	{object}	publicKeyView	"The changed key"
//	@Failure		409	"The key is revoked"
//	@Failure		422	"The key was expired, and the agent has four other valid keys"
func (s *Server) changePublicKey(r request, d auth.PublicKeyChange) (any, error) {
	key, err := s.core.Keys.Change(r.Context(), r.caller, r.id, r.subID, d)
	return s.newPublicKeyView(key), err
}

// revokePublicKey revokes a public key.
//
//	@Summary		Revoke a public key of an agent
//	@Description	The key becomes invalid at once on this replica and within a second on the others, for good. Revoking it again changes nothing.
//	@Success		204	"Revoked"
func (s *Server) revokePublicKey(r request) error {
	return s.core.Keys.RevokePublic(r.Context(), r.caller, r.id, r.subID)
}

// serviceKeyView is a key of comet without the private key.
type serviceKeyView struct {
	KeyID     string     `json:"key_id" example:"e744c0791320c328"`                                 // The id in signatures (`kid`).
	PublicKey string     `json:"public_key" example:"Gb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE="` // The Ed25519 public key: 32 bytes in base64.
	CreatedAt time.Time  `json:"created_at" example:"2026-01-10T15:30:00Z"`
	RetiredAt *time.Time `json:"retired_at" example:"2026-02-10T15:30:00Z"` // When another key replaced it; null for the current key.
}

// serviceKeyList is the keys of comet.
type serviceKeyList struct {
	Keys []serviceKeyView `json:"keys"` // The current key, then those that were retired in the last 30 days, the newest first.
}

func newServiceKeyView(k auth.ServiceKey) serviceKeyView {
	return serviceKeyView{KeyID: k.ID, PublicKey: base64.StdEncoding.EncodeToString(k.Public), CreatedAt: k.CreatedAt, RetiredAt: k.RetiredAt}
}

// listServiceKeys lists the keys of comet.
//
//	@Summary		List the keys of the service
//	@Description	Returns the Ed25519 keys with which comet signs agent cards and Genesis messages, without the private keys. `/.well-known/jwks.json` contains the same keys for clients.
//	@Success		200	{object}	serviceKeyList	"The keys"
func (s *Server) listServiceKeys(r request) (any, error) {
	keys, err := s.core.ServiceKeys.Public(r.Context())
	return serviceKeyList{views(keys, newServiceKeyView)}, err
}

// rotateServiceKey replaces the key of comet.
//
//	@Summary		Rotate the key of the service
//	@Description	Creates a new key, with which all replicas sign within a second. The private key of the previous key is erased; its public key stays in `/.well-known/jwks.json` for 30 days.
//	@Success		200	{object}	serviceKeyView	"The new key"
func (s *Server) rotateServiceKey(r request, _ struct{}) (any, error) {
	key, err := s.core.ServiceKeys.Rotate(r.Context(), r.caller)
	return newServiceKeyView(key), err
}

// jwk is a public key of comet as a JSON Web Key (RFC 8037).
type jwk struct {
	KeyType   string `json:"kty" example:"OKP"`                                       // The type of the key.
	Curve     string `json:"crv" example:"Ed25519"`                                   // The curve.
	X         string `json:"x" example:"Gb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE"` // The public key: 32 bytes in base64url.
	KeyID     string `json:"kid" example:"e744c0791320c328"`                          // The id of the key, which signatures name.
	Use       string `json:"use" example:"sig"`                                       // What it is for: signatures.
	Algorithm string `json:"alg" example:"EdDSA"`                                     // The algorithm of its signatures.
}

// jwkSet is a JSON Web Key Set (RFC 7517).
type jwkSet struct {
	Keys []jwk `json:"keys"` // The current key, then those that were retired in the last 30 days.
}

// getJWKS returns the public keys of comet.
//
//	@Summary		Get the public keys of the service
//	@Description	Returns the keys that verify the signatures of agent cards and of Genesis messages from comet, as a JSON Web Key Set. If a signature names a key that is not in a cached copy, fetch the set again.
//	@Success		200	{object}	jwkSet	"The keys"
//	@Header			200	{string}	ETag
//	@Header			200	{string}	Cache-Control
func (s *Server) getJWKS(w http.ResponseWriter, r *http.Request) error {
	keys, err := s.core.ServiceKeys.Public(r.Context())
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "public, max-age=300")
	w.Header().Set("Access-Control-Allow-Origin", "*")
	return s.writeJSON(w, r, jwkSet{views(keys, func(k auth.ServiceKey) jwk {
		return jwk{KeyType: "OKP", Curve: "Ed25519", X: base64.RawURLEncoding.EncodeToString(k.Public), KeyID: k.ID, Use: "sig", Algorithm: "EdDSA"}
	})})
}
