package upstream

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"comet/internal/input"
)

// errAuthorizationRequired is the reason why an upstream is AuthorizationRequired.
var errAuthorizationRequired = errors.New("it requires an authorization")

// authorizedTransport adds the access token to requests.
type authorizedTransport struct {
	*http.Transport
	server *resolvedServer
	tokens TokenSource // nil for none
	// required says how to authorize comet for the session, lacking for single calls; nil if not necessary.
	required, lacking atomic.Pointer[string]
	calls             *calls
	onReject          func()
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
		a.required.Store(new("start it with “comet upstreams authorize " + a.server.ID + "”"))
		a.onReject()
	}
	return resp, nil
}

// send sends a request with an access token other than rejected, and returns the token.
func (a *authorizedTransport) send(req *http.Request, rejected string) (resp *http.Response, token string, err error) {
	if a.tokens != nil {
		if token, err = a.tokens.Token(req.Context(), rejected); err != nil {
			closeBody(req)
			return nil, "", err
		}
	}
	if token != "" {
		a.server.secrets.accessToken.Store(token)
		req = req.Clone(req.Context())
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if resp, err = a.Transport.RoundTrip(req); err == nil && resp.StatusCode == http.StatusForbidden && a.tokens != nil {
		a.noteScopes(req, resp)
	}
	return resp, token, err
}

// noteScopes records the scopes that comet lacked for a rejected request (RFC 6750 §3.1). The request is not
// repeated, because only a user can authorize comet for them.
func (a *authorizedTransport) noteScopes(req *http.Request, resp *http.Response) {
	challenges, _ := oauthex.ParseWWWAuthenticate(resp.Header.Values("WWW-Authenticate")) // none if they are malformed
	i := slices.IndexFunc(challenges, func(c oauthex.Challenge) bool {
		return c.Scheme == "bearer" && c.Params["error"] == "insufficient_scope" && strings.TrimSpace(c.Params["scope"]) != ""
	})
	if i < 0 {
		return
	}
	scopes := strings.Fields(challenges[i].Params["scope"])
	missing, all, err := a.tokens.Require(req.Context(), scopes)
	list := func(names []string) string { return strconv.Quote(input.ClipTo(strings.Join(names, " "), maxLine)) }
	hint := "which requests " + list(all)
	switch {
	case err != nil:
		hint = "but the authorization cannot request them: " + err.Error()
	case len(missing) == 0:
		missing, hint = scopes, "after they are permitted at the authorization server, which has not granted them"
	case len(a.server.OAuth.Scopes) > 0:
		hint = "after they are added to comet.oauth.scopes"
	}
	why := fmt.Sprintf("comet's access token lacks the scopes %s; authorize comet again with “comet upstreams authorize %s”, %s", list(missing), a.server.ID, hint)
	c := a.calls.find(callOf(req.Context()))
	if c == nil {
		a.required.Store(&why)
		a.onReject()
		return
	}
	c.lacking.Store(&why)
	a.lacking.Store(&why)
	id, _ := requestID(req) // the SDK would end the session because of the status
	_ = resp.Body.Close()
	resp.StatusCode, resp.Header = http.StatusOK, http.Header{"Content-Type": {"application/json"}}
	data := errorResponse(id, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: why})
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(data)), int64(len(data))
}
