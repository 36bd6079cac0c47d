package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"comet/internal/errs"
	"comet/internal/upstream/oauth"
)

// TokenSource returns the access token of an upstream, other than the one that it has rejected if rejected
// is not "", and "" if there is none any more.
type TokenSource func(ctx context.Context, rejected string) (string, error)

// errAuthorizationRequired is the reason why an upstream is AuthorizationRequired.
var errAuthorizationRequired = errors.New("it requires an authorization")

// usesOAuth reports whether the upstream may get an access token: no Authorization is configured.
func (s Server) usesOAuth() bool {
	isToken := func(name string) bool { return http.CanonicalHeaderKey(name) == "Authorization" }
	return s.transport() == HTTP && s.Bearer == "" && !slices.ContainsFunc(slices.Collect(maps.Keys(s.Headers)), isToken)
}

// AuthorizationTarget returns what an authorization of an upstream is requested for, without RedirectURL.
func (m *Manager) AuthorizationTarget(id string) (oauth.Target, error) {
	u, err := m.find(id)
	if err != nil {
		return oauth.Target{}, err
	}
	if !u.server.usesOAuth() {
		return oauth.Target{}, newError(errs.Conflict, id, "is not authorized with OAuth: it is a program, or its definition contains its token")
	}
	s, err := u.server.resolve(m.opts.LookupEnv, m.opts.IsProtected)
	if err != nil {
		return oauth.Target{}, newError(errs.UpstreamFailed, id, "cannot be authorized: %v", err)
	}
	return oauth.Target{Address: s.URL, ClientID: s.OAuth.ClientID, ClientSecret: s.OAuth.ClientSecret, Scopes: s.OAuth.Scopes}, nil
}

// authorizedTransport adds the access token to requests.
type authorizedTransport struct {
	*http.Transport
	server *resolvedServer
	tokens TokenSource // nil for none
	// required says that the upstream has rejected a request because it contained no valid token.
	required atomic.Bool
	onReject func()
}

// RoundTrip implements http.RoundTripper. It repeats a request once if another token may be accepted.
func (a *authorizedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, token, err := a.send(req, "")
	if err != nil || resp.StatusCode != http.StatusUnauthorized || !a.server.usesOAuth() {
		return resp, err
	}
	if token != "" && (req.Body == nil || req.GetBody != nil) {
		next := req.Clone(req.Context())
		if req.GetBody != nil {
			if next.Body, err = req.GetBody(); err != nil {
				return resp, nil //nolint:nilerr // the response says more
			}
		}
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxErrorBody))
		_ = resp.Body.Close()
		if resp, _, err = a.send(next, token); err != nil || resp.StatusCode != http.StatusUnauthorized {
			return resp, err
		}
	}
	challenges, _ := oauthex.ParseWWWAuthenticate(resp.Header.Values("WWW-Authenticate")) // none if they are malformed
	isBearer := func(c oauthex.Challenge) bool { return c.Scheme == "bearer" }
	if a.tokens != nil || a.server.OAuth.ClientID != "" || slices.ContainsFunc(challenges, isBearer) {
		a.required.Store(true)
		a.onReject()
	}
	return resp, nil
}

// send sends a request with an access token other than rejected, and returns the token.
func (a *authorizedTransport) send(req *http.Request, rejected string) (resp *http.Response, token string, err error) {
	if a.tokens != nil {
		if token, err = a.tokens(req.Context(), rejected); err != nil {
			closeBody(req)
			return nil, "", err
		}
	}
	if token != "" {
		a.server.secrets.accessToken.Store(token)
		req = req.Clone(req.Context())
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err = a.Transport.RoundTrip(req)
	return resp, token, err
}

// checkOAuth checks the OAuth client of a definition.
func (s Server) checkOAuth() *violation {
	given := s.OAuth.ClientID != "" || s.OAuth.ClientSecret != "" || len(s.OAuth.Scopes) > 0
	switch {
	case given && !s.usesOAuth():
		return violates("comet.oauth", "is for upstreams with a url and without a token")
	case s.OAuth.ClientSecret != "" && s.OAuth.ClientID == "":
		return violates("comet.oauth", "has a client_secret without a client_id")
	case len(s.OAuth.Scopes) > maxScopes || len(fmt.Sprint(s.OAuth)) > maxValue:
		return violates("comet.oauth", "has more than %d scopes or %d bytes", maxScopes, maxValue)
	}
	return nil
}

// maxScopes limits the scopes of a definition.
const maxScopes = 100
