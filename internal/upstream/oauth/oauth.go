// Package oauth is the client side of OAuth 2.1 as MCP servers use it: it discovers the authorization
// server of an address (RFC 9728, RFC 8414, OpenID Connect Discovery), registers a client (RFC 7591), and
// gets tokens for this address (RFC 8707) with authorization codes, PKCE and refresh tokens. Responses are
// untrusted: their sizes and times are limited, and no error repeats one.
package oauth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"

	"comet/internal/input"
	"comet/internal/netguard"
)

const (
	requestTimeout = 20 * time.Second
	maxRedirects   = 3
	maxURL         = 16 << 10 // bytes of an authorization URL
	// renewBefore is the time before its expiry at which an access token is refreshed.
	renewBefore = 10 * time.Second
)

// Target is what a client asks an authorization for.
type Target struct {
	// Address is the address of the MCP server.
	Address string
	// RedirectURL is where the browser returns.
	RedirectURL string
	// ClientID and ClientSecret are those of a registered client; without them one is registered.
	ClientID, ClientSecret string
	// Scopes are requested instead of those that the server names.
	Scopes []string
}

// Grant is a client of an authorization server with its tokens. Its JSON contains secrets.
type Grant struct {
	// Address is the only address that gets the tokens, and Resource its identifier at the authorization
	// server.
	Address, Resource string
	Issuer            string
	// SendsIssuer says that responses of the authorization server contain its issuer (RFC 9207).
	SendsIssuer bool
	Config      oauth2.Config
	Verifier    string // of PKCE
	// Token is nil before the authorization, and after the authorization server has refused to refresh it.
	Token *oauth2.Token
}

// ErrRefused is the error of a refresh that the authorization server refuses for good.
var ErrRefused = errors.New("the authorization has ended")

// Client makes the requests to authorization servers.
type Client struct{ transport http.RoundTripper }

// New returns a client that connects to public addresses and to those that guard allows. An MCP server
// chooses its authorization server, which must not lead requests into comet's network.
func New(guard *netguard.Guard) *Client { return &Client{guard.Transport(requestTimeout)} }

// httpClient returns an HTTP client whose requests to the host of address are not guarded, because comet
// calls this host anyway.
func (c *Client) httpClient(address string) *http.Client {
	return &http.Client{
		Timeout: requestTimeout, Transport: &hostTransport{guarded: c.transport, address: address},
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			switch {
			case via[0].Method != http.MethodGet:
				return http.ErrUseLastResponse // it may have sent a secret
			case len(via) > maxRedirects:
				return errors.New("it redirects too often")
			case via[0].URL.Scheme == "https" && req.URL.Scheme != "https":
				return errors.New("it redirects to an address without TLS")
			}
			return nil
		},
	}
}

type hostTransport struct {
	guarded http.RoundTripper
	address string
}

// RoundTrip implements http.RoundTripper.
func (h *hostTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if own, err := url.Parse(h.address); err == nil && own.Host == req.URL.Host && own.Scheme == req.URL.Scheme {
		return http.DefaultTransport.RoundTrip(req)
	}
	return h.guarded.RoundTrip(req)
}

// Begin returns the URL at which a person authorizes comet in a browser, and the grant for Complete. state
// identifies the authorization when the browser returns.
func (c *Client) Begin(ctx context.Context, t Target, state string) (*Grant, string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	web := c.httpClient(t.Address)
	resource, scopes, err := discoverResource(ctx, web, t.Address)
	if err != nil {
		return nil, "", err
	}
	issuer := resource.AuthorizationServers[0]
	server, err := auth.GetAuthServerMetadata(ctx, issuer, web)
	switch {
	case err != nil:
		return nil, "", fmt.Errorf("the metadata of the authorization server %s cannot be used: %w", input.Quote(issuer), err)
	case server == nil:
		return nil, "", fmt.Errorf("the authorization server %s has no metadata", input.Quote(issuer))
	case !slices.Contains(server.CodeChallengeMethodsSupported, "S256"):
		return nil, "", fmt.Errorf("the authorization server %s does not support PKCE with S256", input.Quote(issuer))
	}
	g := &Grant{
		Address: t.Address, Resource: resource.Resource, Issuer: server.Issuer,
		SendsIssuer: server.AuthorizationResponseIssParameterSupported, Verifier: oauth2.GenerateVerifier(),
	}
	g.Config.Endpoint = oauth2.Endpoint{AuthURL: server.AuthorizationEndpoint, TokenURL: server.TokenEndpoint}
	g.Config.RedirectURL = t.RedirectURL
	g.Config.Scopes = slices.Clone(scopes)
	if len(t.Scopes) > 0 {
		g.Config.Scopes = slices.Clone(t.Scopes)
	}
	options := []oauth2.AuthCodeOption{oauth2.S256ChallengeOption(g.Verifier), oauth2.SetAuthURLParam("resource", g.Resource)}
	if slices.Contains(server.ScopesSupported, "offline_access") { // otherwise OpenID Connect issues no refresh token
		if !slices.Contains(g.Config.Scopes, "offline_access") {
			g.Config.Scopes = append(g.Config.Scopes, "offline_access")
		}
		options = append(options, oauth2.SetAuthURLParam("prompt", "consent"))
	}
	if err := g.setClient(ctx, web, server, t); err != nil {
		return nil, "", err
	}
	address := g.Config.AuthCodeURL(state, options...)
	if len(address) > maxURL {
		return nil, "", fmt.Errorf("the authorization server %s names too many or too long scopes", input.Quote(issuer))
	}
	return g, address, nil
}

// discoverResource returns the metadata of an MCP server and the scopes that it requires. The server itself
// is the authorization server if it has no metadata, as in MCP 2025-03-26.
func discoverResource(ctx context.Context, web *http.Client, address string) (*oauthex.ProtectedResourceMetadata, []string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := web.Do(req)
	if err != nil {
		return nil, nil, err
	}
	_ = resp.Body.Close()
	var named string
	var scopes []string
	challenges, _ := oauthex.ParseWWWAuthenticate(resp.Header.Values("WWW-Authenticate")) // none if they are malformed
	for _, c := range challenges {
		if c.Scheme == "bearer" {
			named, scopes = c.Params["resource_metadata"], strings.Fields(c.Params["scope"])
		}
	}
	at, err := url.Parse(address)
	if err != nil {
		return nil, nil, err
	}
	root := url.URL{Scheme: at.Scheme, Host: at.Host}
	wellKnown := root.String() + "/.well-known/oauth-protected-resource"
	places := [][2]string{{wellKnown + at.EscapedPath(), address}, {wellKnown, root.String()}}
	if named != "" {
		places = [][2]string{{named, address}, {named, root.String()}}
	}
	var first error
	for _, p := range places {
		found, err := oauthex.GetProtectedResourceMetadata(ctx, p[0], p[1], web)
		if err == nil && len(found.AuthorizationServers) == 0 {
			err = fmt.Errorf("%s names no authorization server", input.Quote(p[0]))
		}
		if err == nil {
			if len(scopes) == 0 {
				scopes = found.ScopesSupported
			}
			return found, scopes, nil
		}
		if first == nil {
			first = err
		}
	}
	if named != "" {
		return nil, nil, fmt.Errorf("its metadata cannot be used: %w", first)
	}
	return &oauthex.ProtectedResourceMetadata{Resource: address, AuthorizationServers: []string{root.String()}}, scopes, nil
}

// setClient sets the client of the target, or registers one.
func (g *Grant) setClient(ctx context.Context, web *http.Client, server *oauthex.AuthServerMeta, t Target) error {
	supported := server.TokenEndpointAuthMethodsSupported
	if len(supported) == 0 {
		supported = []string{"client_secret_basic"} // RFC 8414, section 2
	}
	method := "none"
	for _, m := range []string{"client_secret_post", "client_secret_basic"} {
		if slices.Contains(supported, m) {
			method = m
		}
	}
	g.Config.ClientID, g.Config.ClientSecret = t.ClientID, t.ClientSecret
	if t.ClientID == "" {
		if server.RegistrationEndpoint == "" {
			return errors.New("its authorization server registers no clients; register comet there, and set comet.oauth.client_id of the upstream")
		}
		client, err := oauthex.RegisterClient(ctx, server.RegistrationEndpoint, &oauthex.ClientRegistrationMetadata{
			ClientName: "comet", RedirectURIs: []string{t.RedirectURL}, ApplicationType: applicationType(t.RedirectURL),
			GrantTypes: []string{"authorization_code", "refresh_token"}, ResponseTypes: []string{"code"},
			TokenEndpointAuthMethod: method, Scope: strings.Join(g.Config.Scopes, " "),
		}, web)
		var rejected *oauthex.ClientRegistrationError
		switch {
		case errors.As(err, &rejected):
			return fmt.Errorf("its authorization server does not register comet: %s", input.Quote(rejected.ErrorCode))
		case err != nil: // it may repeat the response, with a secret
			return errors.New("its authorization server does not register comet, or its response is invalid")
		}
		g.Config.ClientID, g.Config.ClientSecret = client.ClientID, client.ClientSecret
		if client.TokenEndpointAuthMethod != "" {
			method = client.TokenEndpointAuthMethod
		}
	}
	g.Config.Endpoint.AuthStyle = oauth2.AuthStyleInParams
	if method == "client_secret_basic" && g.Config.ClientSecret != "" {
		g.Config.Endpoint.AuthStyle = oauth2.AuthStyleInHeader
	}
	return nil
}

// applicationType returns the type of a client whose browser returns to an address.
func applicationType(redirect string) string {
	if u, err := url.Parse(redirect); err == nil {
		ip, err := netip.ParseAddr(u.Hostname())
		if u.Hostname() == "localhost" || err == nil && ip.IsLoopback() {
			return "native"
		}
	}
	return "web"
}

// Complete sets the token of a grant that Begin has made, with the parameters with which the browser
// returned.
func (c *Client) Complete(ctx context.Context, g *Grant, params url.Values) error {
	issuer := params.Get("iss")
	switch {
	case issuer != "" && issuer != g.Issuer, issuer == "" && g.SendsIssuer:
		return fmt.Errorf("the response comes from the authorization server %s, not from %s", input.Quote(issuer), input.Quote(g.Issuer))
	case params.Get("error") != "":
		return fmt.Errorf("the authorization server responded %s", input.Quote(strings.TrimSpace(params.Get("error")+" "+params.Get("error_description"))))
	case params.Get("code") == "":
		return errors.New("the response contains no code")
	}
	token, err := c.exchange(ctx, g, params.Get("code"), oauth2.VerifierOption(g.Verifier))
	if err == nil {
		g.Token, g.Verifier = token, ""
	}
	return err
}

// Refresh returns a grant with new tokens. The error is ErrRefused if only a new authorization helps.
func (c *Client) Refresh(ctx context.Context, g *Grant) (*oauth2.Token, error) {
	// Exchange sends other parameters than a refresh of package oauth2, which omits resource.
	token, err := c.exchange(ctx, g, "", oauth2.SetAuthURLParam("grant_type", "refresh_token"), oauth2.SetAuthURLParam("refresh_token", g.Token.RefreshToken))
	if err == nil && token.RefreshToken == "" {
		token.RefreshToken = g.Token.RefreshToken
	}
	return token, err
}

// exchange requests a token.
func (c *Client) exchange(ctx context.Context, g *Grant, code string, options ...oauth2.AuthCodeOption) (*oauth2.Token, error) {
	ctx = context.WithValue(ctx, oauth2.HTTPClient, c.httpClient(g.Address))
	token, err := g.Config.Exchange(ctx, code, append(options, oauth2.SetAuthURLParam("resource", g.Resource))...)
	var rejected *oauth2.RetrieveError
	switch {
	case errors.As(err, &rejected) && slices.Contains([]string{"invalid_grant", "invalid_client", "unauthorized_client"}, rejected.ErrorCode):
		return nil, fmt.Errorf("%w: the authorization server responded %s", ErrRefused, rejected.ErrorCode)
	case errors.As(err, &rejected): // its text has the response
		return nil, fmt.Errorf("the authorization server issues no token: it responded %s %s", rejected.Response.Status, input.Quote(rejected.ErrorCode))
	case err != nil:
		return nil, fmt.Errorf("the authorization server issues no token: %w", err)
	case token.Type() != "Bearer":
		return nil, errors.New("the authorization server issued a token that is no bearer token")
	}
	return token, nil
}

// Expires reports whether the access token of a grant is no longer valid at a time, or soon.
func (g *Grant) Expires(at time.Time) bool {
	return !g.Token.Expiry.IsZero() && !at.Add(renewBefore).Before(g.Token.Expiry)
}
