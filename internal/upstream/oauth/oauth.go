// Package oauth is the client side of OAuth 2.1 as MCP uses it: it discovers the authorization server of an
// MCP server, registers a client, and gets tokens with authorization codes, PKCE and refresh tokens. All
// responses are untrusted: their sizes and times are limited, and errors contain none of their secrets.
package oauth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
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
	timeout = 20 * time.Second
	maxURL  = 16 << 10 // bytes of an authorization URL
	// maxLifetime limits the lifetime of an access token, in seconds.
	maxLifetime = 1 << 30
	// renewBefore is the time before its expiry at which an access token is refreshed.
	renewBefore = 10 * time.Second
)

// Target is what an authorization is requested for.
type Target struct {
	// Address is that of the MCP server. The browser returns to RedirectURL.
	Address, RedirectURL string
	// ClientID and ClientSecret are those of a registered client; without them one is registered.
	ClientID, ClientSecret string
	// Scopes are requested instead of those that the server names. Required are requested in addition to these.
	Scopes, Required []string
	// Mask replaces the secrets of the definition in a text.
	Mask func(string) string
}

// Grant is a client of an authorization server with its tokens. Its JSON contains secrets.
type Grant struct {
	// Address is the only address that gets the tokens. Resource identifies it at the authorization server.
	Address, Resource string
	// Issuer is the authorization server, whose responses name it if SendsIssuer (RFC 9207).
	Issuer      string
	SendsIssuer bool
	Config      oauth2.Config
	Verifier    string   // of PKCE
	Required    []string // the next authorization requests these scopes too
	// Token is nil until it is issued, and after the authorization server has refused to refresh it.
	Token *oauth2.Token
}

// ErrRefused means that the authorization server will issue no more tokens without another authorization.
var ErrRefused = errors.New("the authorization has ended")

// Client makes the requests to authorization servers.
type Client struct {
	guarded http.RoundTripper
	now     func() time.Time
}

// New returns a client that connects to public addresses and to those that guard allows: an MCP server
// chooses its authorization server, which must not lead requests into comet's network.
func New(guard *netguard.Guard, now func() time.Time) *Client {
	return &Client{guard.Transport(timeout), now}
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// web returns an HTTP client. Its requests to the host of address, which comet calls anyway, are not
// guarded. It follows no redirects.
func (c *Client) web(address string) *http.Client {
	transport := func(req *http.Request) (*http.Response, error) {
		if u, err := url.Parse(address); err == nil && u.Host == req.URL.Host && u.Scheme == req.URL.Scheme {
			return http.DefaultTransport.RoundTrip(req)
		}
		return c.guarded.RoundTrip(req)
	}
	return &http.Client{Timeout: timeout, Transport: roundTripper(transport), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// Begin returns the URL at which a person authorizes comet in a browser, and the grant for Complete. state
// identifies the authorization when the browser returns.
func (c *Client) Begin(ctx context.Context, t Target, state string) (*Grant, string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	web := c.web(t.Address)
	resource, scopes, err := discover(ctx, web, t.Address)
	if err != nil {
		return nil, "", err
	}
	issuer := resource.AuthorizationServers[0]
	server, err := auth.GetAuthServerMetadata(ctx, issuer, web)
	switch {
	case err != nil:
		return nil, "", fmt.Errorf("the metadata of the authorization server %s cannot be used: %w", input.Quote(issuer), err)
	case server == nil || !slices.Contains(server.CodeChallengeMethodsSupported, "S256"):
		return nil, "", fmt.Errorf("the authorization server %s does not have metadata or does not support PKCE with S256", input.Quote(issuer))
	}
	if len(t.Scopes) > 0 {
		scopes = t.Scopes
	}
	g := &Grant{
		Address: t.Address, Resource: resource.Resource, Issuer: server.Issuer, Required: t.Required,
		SendsIssuer: server.AuthorizationResponseIssParameterSupported, Verifier: oauth2.GenerateVerifier(),
	}
	options := []oauth2.AuthCodeOption{oauth2.S256ChallengeOption(g.Verifier), oauth2.SetAuthURLParam("resource", g.Resource)}
	if offline := "offline_access"; slices.Contains(server.ScopesSupported, offline) && !slices.Contains(scopes, offline) {
		scopes = append(slices.Clone(scopes), offline) // OpenID Connect issues refresh tokens on these conditions
		options = append(options, oauth2.SetAuthURLParam("prompt", "consent"))
	}
	g.Config = oauth2.Config{
		ClientID: t.ClientID, ClientSecret: t.ClientSecret, RedirectURL: t.RedirectURL, Scopes: Union(scopes, t.Required),
		Endpoint: oauth2.Endpoint{AuthURL: server.AuthorizationEndpoint, TokenURL: server.TokenEndpoint, AuthStyle: oauth2.AuthStyleInParams},
	}
	if err := g.setClient(ctx, web, server); err != nil {
		return nil, "", err
	}
	address := g.Config.AuthCodeURL(state, options...)
	if len(address) > maxURL {
		return nil, "", fmt.Errorf("the authorization URL of %s is longer than %d bytes", input.Quote(issuer), maxURL)
	}
	return g, address, nil
}

// Union returns the scopes of all lists, each once.
func Union(lists ...[]string) (all []string) {
	for _, scope := range slices.Concat(lists...) {
		if !slices.Contains(all, scope) {
			all = append(all, scope)
		}
	}
	return all
}

// discover returns the metadata of an MCP server and the scopes that it requires. Without metadata the
// server is its authorization server, as in MCP 2025-03-26.
func discover(ctx context.Context, web *http.Client, address string) (*oauthex.ProtectedResourceMetadata, []string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
	if err != nil {
		return nil, nil, err
	}
	req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	resp, err := web.Do(req)
	if err != nil {
		return nil, nil, err
	}
	_ = resp.Body.Close()
	root := (&url.URL{Scheme: req.URL.Scheme, Host: req.URL.Host}).String()
	wellKnown := root + "/.well-known/oauth-protected-resource"
	places := [][2]string{{wellKnown + req.URL.EscapedPath(), address}, {wellKnown, root}}
	var scopes []string
	challenges, _ := oauthex.ParseWWWAuthenticate(resp.Header.Values("WWW-Authenticate")) // none if they are malformed
	for _, c := range challenges {
		if named := c.Params["resource_metadata"]; named != "" && c.Scheme == "bearer" {
			places, scopes = [][2]string{{named, address}, {named, root}}, strings.Fields(c.Params["scope"])
		}
	}
	for _, p := range places {
		var found *oauthex.ProtectedResourceMetadata
		if found, err = oauthex.GetProtectedResourceMetadata(ctx, p[0], p[1], web); err == nil && len(found.AuthorizationServers) > 0 {
			if len(scopes) == 0 {
				scopes = found.ScopesSupported
			}
			return found, scopes, nil
		}
		err = cmp.Or(err, errors.New("it names none"))
	}
	if places[0][0] == places[1][0] {
		return nil, nil, fmt.Errorf("the metadata at %s does not name a usable authorization server: %w", input.Quote(places[0][0]), err)
	}
	return &oauthex.ProtectedResourceMetadata{Resource: address, AuthorizationServers: []string{root}}, scopes, nil
}

// Document is a client ID metadata document. It describes comet, and its URL is the client id.
type Document struct {
	ClientID string `json:"client_id"`
	oauthex.ClientRegistrationMetadata
}

// NewDocument returns the document of comet. Its URL differs from redirectURL in the last segment. Authorization
// servers accept only an https URL.
func NewDocument(redirectURL string) Document {
	kind := "web"
	if strings.HasPrefix(redirectURL, "http:") {
		kind = "native"
	}
	return Document{strings.TrimSuffix(redirectURL, "callback") + "client-metadata.json", oauthex.ClientRegistrationMetadata{
		ClientName: "comet", RedirectURIs: []string{redirectURL}, ApplicationType: kind, TokenEndpointAuthMethod: "none",
		GrantTypes: []string{"authorization_code", "refresh_token"}, ResponseTypes: []string{"code"},
	}}
}

// setClient completes the client of a grant. Without a configured id, the client is comet's document if the server
// supports documents, otherwise one that comet registers.
func (g *Grant) setClient(ctx context.Context, web *http.Client, server *oauthex.AuthServerMeta) error {
	method := "none"
	for _, m := range []string{"client_secret_post", "client_secret_basic"} { // the last is the default of RFC 8414
		if slices.Contains(server.TokenEndpointAuthMethodsSupported, m) || len(server.TokenEndpointAuthMethodsSupported) == 0 {
			method = m
		}
	}
	doc := NewDocument(g.Config.RedirectURL)
	if g.Config.ClientID == "" && server.ClientIDMetadataDocumentSupported && strings.HasPrefix(doc.ClientID, "https:") {
		g.Config.ClientID = doc.ClientID
	}
	if g.Config.ClientID == "" {
		if server.RegistrationEndpoint == "" {
			return fmt.Errorf("the authorization server %s does not register clients; register comet there and set comet.oauth.client_id of the upstream", input.Quote(g.Issuer))
		}
		doc.TokenEndpointAuthMethod, doc.Scope = method, strings.Join(g.Config.Scopes, " ")
		client, err := oauthex.RegisterClient(ctx, server.RegistrationEndpoint, &doc.ClientRegistrationMetadata, web)
		if err != nil { // its text contains the response
			rejected := &oauthex.ClientRegistrationError{ErrorCode: "an invalid response"}
			errors.As(err, &rejected)
			return fmt.Errorf("the authorization server %s does not register comet: %s", input.Quote(g.Issuer), input.Quote(rejected.ErrorCode))
		}
		g.Config.ClientID, g.Config.ClientSecret = client.ClientID, client.ClientSecret
		if client.TokenEndpointAuthMethod != "" {
			method = client.TokenEndpointAuthMethod
		}
	}
	if method == "client_secret_basic" && g.Config.ClientSecret != "" {
		g.Config.Endpoint.AuthStyle = oauth2.AuthStyleInHeader
	}
	return nil
}

// Expires reports whether the access token of a grant is no longer valid, or soon.
func (c *Client) Expires(g *Grant) bool {
	return !g.Token.Expiry.IsZero() && !c.now().Add(renewBefore).Before(g.Token.Expiry)
}

// Complete gets the token of a grant of Begin with the parameters with which the browser returned.
func (c *Client) Complete(ctx context.Context, g *Grant, params url.Values) (err error) {
	code, issuer, problem := params.Get("code"), params.Get("iss"), params.Get("error")
	switch {
	case issuer != g.Issuer && (issuer != "" || g.SendsIssuer):
		return fmt.Errorf("the response comes from the authorization server %s, not from %s", input.Quote(issuer), input.Quote(g.Issuer))
	case problem != "" || code == "":
		return fmt.Errorf("the authorization server responded without a code: %s", input.Quote(problem+" "+params.Get("error_description")))
	}
	g.Token, err = c.exchange(ctx, g, code, oauth2.VerifierOption(g.Verifier))
	return err
}

// Refresh returns new tokens for a grant.
func (c *Client) Refresh(ctx context.Context, g *Grant) (*oauth2.Token, error) {
	// The refresh of package oauth2 omits resource.
	token, err := c.exchange(ctx, g, "", oauth2.SetAuthURLParam("grant_type", "refresh_token"), oauth2.SetAuthURLParam("refresh_token", g.Token.RefreshToken))
	if err == nil && token.RefreshToken == "" {
		token.RefreshToken = g.Token.RefreshToken
	}
	return token, err
}

func (c *Client) exchange(ctx context.Context, g *Grant, code string, options ...oauth2.AuthCodeOption) (*oauth2.Token, error) {
	ctx = context.WithValue(ctx, oauth2.HTTPClient, c.web(g.Address))
	token, err := g.Config.Exchange(ctx, code, append(options, oauth2.SetAuthURLParam("resource", g.Resource))...)
	var rejected *oauth2.RetrieveError
	switch {
	case errors.As(err, &rejected) && slices.Contains([]string{"invalid_grant", "invalid_client", "unauthorized_client"}, rejected.ErrorCode):
		return nil, fmt.Errorf("%w: the authorization server responded %s", ErrRefused, rejected.ErrorCode)
	case errors.As(err, &rejected): // its text contains the response
		return nil, fmt.Errorf("the authorization server did not issue a token: it responded %s %s", rejected.Response.Status, input.Quote(rejected.ErrorCode))
	case err != nil:
		return nil, fmt.Errorf("the authorization server did not issue a token: %w", err)
	case token.Type() != "Bearer":
		return nil, errors.New("the authorization server did not issue a token: its token is not a bearer token")
	}
	if granted, _ := token.Extra("scope").(string); granted != "" {
		g.Config.Scopes = Union(g.Config.Scopes, strings.Fields(granted))
	}
	if token.Expiry = (time.Time{}); token.ExpiresIn > 0 {
		token.Expiry = c.now().Add(time.Duration(min(token.ExpiresIn, maxLifetime)) * time.Second)
	}
	return token, nil
}
