package tools_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"net/http"          //nolint:depguard // the test double is a server
	"net/http/httptest" //nolint:depguard // the same
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdkauth "github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/testkit/mcptest"
	"comet/internal/upstream/oauth"
)

// provider is an authorization server and an MCP server that accepts its tokens. Refresh tokens are valid
// once; a repeated one ends all tokens.
type provider struct {
	*httptest.Server

	mu        sync.Mutex
	clients   map[string]bool       // by their secrets
	codes     map[string]url.Values // the parameters of the authorization
	access    map[string]bool       // the valid access tokens
	refreshes map[string]bool       // whether a refresh token was used
	refreshed int
	refusing  bool // every refresh
	granted   []string
	required  map[string]string // the scopes that requests of a method require
	forbidden int               // requests without these scopes
	withhold  string            // a scope that is not granted

	// Endpoint is the address of the MCP server, and Issued every secret.
	Endpoint string
	Issued   []string
	// Resource, Issuer and Methods are in the metadata. Deny rejects authorizations.
	Resource, Issuer string
	Methods          []string
	Deny             bool
	// Documents says that a client id may be the URL of a document.
	Documents bool
}

// newProvider starts a provider, whose MCP server has the tools of mcptest.NewPaper.
func newProvider(t testing.TB) *provider {
	t.Helper()
	p := &provider{clients: map[string]bool{}, codes: map[string]url.Values{}, access: map[string]bool{}, refreshes: map[string]bool{}, Methods: []string{"S256"}}
	routes := http.NewServeMux()
	routes.HandleFunc("GET /.well-known/oauth-authorization-server", func(w http.ResponseWriter, _ *http.Request) {
		p.respond(w, http.StatusOK, map[string]any{
			"issuer": p.Issuer, "authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token", "registration_endpoint": p.URL + "/register",
			"code_challenge_methods_supported": p.Methods, "scopes_supported": []string{"notes", "offline_access"}, "authorization_response_iss_parameter_supported": true,
			"client_id_metadata_document_supported": p.Documents,
		})
	})
	routes.HandleFunc("POST /register", func(w http.ResponseWriter, _ *http.Request) {
		secret := p.secret()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.clients[secret] = true
		p.respond(w, http.StatusCreated, map[string]any{"client_id": "comet-client", "client_secret": secret})
	})
	routes.HandleFunc("GET /authorize", p.authorize)
	routes.HandleFunc("POST /token", p.token)
	p.Server = httptest.NewServer(routes)
	t.Cleanup(p.Close)
	p.Issuer = p.URL

	paper := mcptest.NewPaper(t, "paper").Server
	verify := func(_ context.Context, token string, _ *http.Request) (*sdkauth.TokenInfo, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !p.access[token] {
			return nil, sdkauth.ErrInvalidToken
		}
		return &sdkauth.TokenInfo{Expiration: time.Now().Add(time.Hour)}, nil
	}
	protected := http.NewServeMux()
	server := httptest.NewServer(protected)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	p.Endpoint = server.URL + "/mcp"
	p.Resource = p.Endpoint
	protected.Handle("/mcp", sdkauth.RequireBearerToken(verify, &sdkauth.RequireBearerTokenOptions{ResourceMetadataURL: server.URL + "/metadata"})(
		p.requireScopes(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return paper }, &mcp.StreamableHTTPOptions{Stateless: true}))))
	protected.HandleFunc("GET /metadata", func(w http.ResponseWriter, _ *http.Request) {
		p.respond(w, http.StatusOK, map[string]any{"resource": p.Resource, "authorization_servers": []string{p.URL}, "scopes_supported": []string{"notes"}})
	})
	return p
}

// Require makes requests of a method require scopes.
func (p *provider) Require(method, scopes string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.required = map[string]string{method: scopes}
}

// Forbidden returns the number of requests without the required scopes.
func (p *provider) Forbidden() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.forbidden
}

func (p *provider) requireScopes(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		var message struct{ Method string }
		_ = json.Unmarshal(body, &message)
		p.mu.Lock()
		scopes := p.required[message.Method]
		lacks := len(oauth.Union(p.granted, strings.Fields(scopes))) > len(p.granted)
		if lacks {
			p.forbidden++
		}
		p.mu.Unlock()
		if lacks {
			w.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="`+scopes+`"`)
			w.WriteHeader(http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (p *provider) respond(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

// secret returns a new secret, which must appear nowhere in plain text.
func (p *provider) secret() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Issued = append(p.Issued, rand.Text())
	return p.Issued[len(p.Issued)-1]
}

func (p *provider) authorize(w http.ResponseWriter, r *http.Request) {
	asked, code := r.URL.Query(), rand.Text()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.codes[code] = asked
	back := url.Values{"state": asked["state"], "iss": {p.Issuer}, "code": {code}}
	if p.Deny {
		back = url.Values{"state": asked["state"], "iss": {p.Issuer}, "error": {"access_denied"}}
	}
	http.Redirect(w, r, asked.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
}

func (p *provider) token(w http.ResponseWriter, r *http.Request) {
	access, refresh := p.secret(), p.secret()
	p.mu.Lock()
	defer p.mu.Unlock()
	_, password, _ := r.BasicAuth()
	asked := p.codes[r.FormValue("code")]
	delete(p.codes, r.FormValue("code"))
	sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	used, known := p.refreshes[r.FormValue("refresh_token")]
	valid := asked.Get("code_challenge") == base64.RawURLEncoding.EncodeToString(sum[:]) && asked.Get("resource") == p.Resource
	if r.FormValue("grant_type") == "refresh_token" {
		valid = known && !used && !p.refusing
		p.refreshed++
	}
	document := p.Documents && strings.HasPrefix(r.FormValue("client_id"), "https:") && (asked == nil || r.FormValue("client_id") == asked.Get("client_id"))
	if !valid || !p.clients[password] && !document || r.FormValue("resource") != p.Resource {
		p.access = map[string]bool{}
		p.respond(w, http.StatusBadRequest, map[string]any{"error": "invalid_grant", "error_description": refresh})
		return
	}
	if asked != nil {
		p.granted = slices.DeleteFunc(strings.Fields(asked.Get("scope")), func(scope string) bool { return scope == p.withhold })
	}
	p.refreshes[r.FormValue("refresh_token")] = true
	p.access[access], p.refreshes[refresh] = true, false
	p.respond(w, http.StatusOK, map[string]any{"access_token": access, "token_type": "Bearer", "expires_in": 3600, "refresh_token": refresh, "scope": strings.Join(p.granted, " ")})
}

// End ends the access tokens.
func (p *provider) End() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.access = map[string]bool{}
}

// Refuse makes the provider refuse every refresh, or stop doing so.
func (p *provider) Refuse(refusing bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusing = refusing
}

// Refreshes returns the number of requests to refresh tokens.
func (p *provider) Refreshes() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refreshed
}

// Browse opens an address as a browser does, and returns the one to which the browser is led.
func (p *provider) Browse(t testing.TB, address string) *url.URL {
	t.Helper()
	browser := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	require.NoError(t, err)
	resp, err := browser.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	back, err := resp.Location()
	require.NoError(t, err)
	return back
}

// newRejecting starts a server that rejects every request, and returns its address and the distinct
// Authorization headers that it received.
func newRejecting(t testing.TB) (address string, headers func() []string) {
	t.Helper()
	var mu sync.Mutex
	sent := map[string]bool{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		sent[r.Header.Get("Authorization")] = true
		w.Header().Set("WWW-Authenticate", "Bearer")
		w.WriteHeader(http.StatusUnauthorized)
	}))
	t.Cleanup(server.Close)
	return server.URL, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Sorted(maps.Keys(sent))
	}
}
