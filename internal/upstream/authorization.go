package upstream

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/oauthex"
)

// errAuthorizationRequired is the reason why an upstream is AuthorizationRequired.
var errAuthorizationRequired = errors.New("it requires an authorization")

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
