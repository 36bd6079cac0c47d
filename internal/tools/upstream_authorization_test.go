package tools_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"sync"
	"testing"
	"time"

	sdkauth "github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/netguard"
	"comet/internal/testkit"
	"comet/internal/testkit/mcptest"
	"comet/internal/testkit/toolstest"
	"comet/internal/tools"
	"comet/internal/upstream"
	"comet/store"
	"comet/store/seal"
	"comet/store/storetest"
)

// provider is an authorization server and an MCP server that accepts its tokens. Refresh tokens are valid
// once; a repeated one ends all tokens.
type provider struct {
	*httptest.Server
	mcp *httptest.Server

	mu        sync.Mutex
	clients   map[string]bool       // by their secrets
	codes     map[string]url.Values // the parameters of the authorization
	access    map[string]bool       // the valid access tokens
	refreshes map[string]bool       // whether a refresh token was used
	issued    []string              // every secret
	refreshed int
	refusing  bool // every refresh
	resource  string
	issuer    string
	methods   []string
	deny      bool
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	p := &provider{clients: map[string]bool{}, codes: map[string]url.Values{}, access: map[string]bool{}, refreshes: map[string]bool{}, methods: []string{"S256"}}
	routes := http.NewServeMux()
	routes.HandleFunc("GET /.well-known/oauth-authorization-server", func(w http.ResponseWriter, _ *http.Request) {
		p.respond(w, http.StatusOK, map[string]any{
			"issuer": p.issuer, "authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token", "registration_endpoint": p.URL + "/register",
			"code_challenge_methods_supported": p.methods, "scopes_supported": []string{"notes", "offline_access"}, "authorization_response_iss_parameter_supported": true,
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
	p.issuer = p.URL

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
	p.mcp = httptest.NewServer(protected)
	t.Cleanup(func() {
		p.mcp.CloseClientConnections()
		p.mcp.Close()
	})
	p.resource = p.mcp.URL + "/mcp"
	protected.Handle("/mcp", sdkauth.RequireBearerToken(verify, &sdkauth.RequireBearerTokenOptions{ResourceMetadataURL: p.mcp.URL + "/metadata"})(
		mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return paper }, &mcp.StreamableHTTPOptions{Stateless: true})))
	protected.HandleFunc("GET /metadata", func(w http.ResponseWriter, _ *http.Request) {
		p.respond(w, http.StatusOK, map[string]any{"resource": p.resource, "authorization_servers": []string{p.URL}, "scopes_supported": []string{"notes"}})
	})
	return p
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
	p.issued = append(p.issued, rand.Text())
	return p.issued[len(p.issued)-1]
}

func (p *provider) authorize(w http.ResponseWriter, r *http.Request) {
	asked, code := r.URL.Query(), rand.Text()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.codes[code] = asked
	back := url.Values{"state": asked["state"], "iss": {p.issuer}, "code": {code}}
	if p.deny {
		back = url.Values{"state": asked["state"], "iss": {p.issuer}, "error": {"access_denied"}}
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
	valid := asked.Get("code_challenge") == base64.RawURLEncoding.EncodeToString(sum[:]) && asked.Get("resource") == p.resource
	if r.FormValue("grant_type") == "refresh_token" {
		valid = known && !used && !p.refusing
		p.refreshed++
	}
	if !valid || !p.clients[password] || r.FormValue("resource") != p.resource {
		p.access = map[string]bool{}
		p.respond(w, http.StatusBadRequest, map[string]any{"error": "invalid_grant", "error_description": refresh})
		return
	}
	p.refreshes[r.FormValue("refresh_token")] = true
	p.access[access], p.refreshes[refresh] = true, false
	p.respond(w, http.StatusOK, map[string]any{"access_token": access, "token_type": "Bearer", "expires_in": 3600, "refresh_token": refresh})
}

// end ends the access tokens.
func (p *provider) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.access = map[string]bool{}
}

// refuse makes the provider refuse every refresh, or stop doing so.
func (p *provider) refuse(refusing bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusing = refusing
}

func (p *provider) refreshCount() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refreshed
}

// authorized has tools with an upstream that requires an authorization.
type authorized struct {
	*toolstest.Tools
	*provider
}

func authorizedOptions() *toolstest.Options {
	keys, _ := seal.Parse(seal.NewKey())
	return &toolstest.Options{Tools: tools.Options{
		Keys: keys, RedirectURL: func() string { return "http://127.0.0.1:1/oauth/callback" },
		Guard: netguard.New([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}),
	}}
}

func startAuthorized(t *testing.T, db *storetest.DB, p *provider) authorized {
	t.Helper()
	a := authorized{toolstest.Start(t, db, authorizedOptions()), p}
	a.put(t, `{"url":`+fmt.Sprintf("%q", p.mcp.URL+"/mcp")+`}`)
	a.waitFor(t, upstream.AuthorizationRequired)
	return a
}

func (a authorized) put(t *testing.T, config string) {
	t.Helper()
	_, err := a.PutUpstream(t.Context(), testkit.Admin(), "paper", json.RawMessage(config))
	require.NoError(t, err)
}

func (a authorized) waitFor(t *testing.T, state upstream.State) (s upstream.Status) {
	t.Helper()
	toolstest.Eventually(t, func() bool {
		s, _ = a.Upstream("paper")
		return s.State == state
	}, "the upstream is "+string(state))
	return s
}

// browse opens the URL of a new authorization, as a browser does, and returns the parameters with which the
// browser returns.
func (a authorized) browse(t *testing.T) url.Values {
	t.Helper()
	address, until, err := a.AuthorizeUpstream(t.Context(), testkit.Admin(), "paper")
	require.NoError(t, err)
	require.WithinDuration(t, a.DB.Now().Add(10*time.Minute), until, time.Second)
	asked, err := url.Parse(address)
	require.NoError(t, err)
	require.Equal(t, "S256", asked.Query().Get("code_challenge_method"))
	require.Equal(t, "notes offline_access", asked.Query().Get("scope"))
	require.Equal(t, a.mcp.URL+"/mcp", asked.Query().Get("resource"))
	browser := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	require.NoError(t, err)
	resp, err := browser.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	back, err := resp.Location()
	require.NoError(t, err)
	require.Equal(t, "/oauth/callback", back.Path)
	return back.Query()
}

func (a authorized) authorize(t *testing.T) {
	t.Helper()
	id, err := a.FinishAuthorization(t.Context(), a.browse(t))
	require.NoError(t, err)
	require.Equal(t, "paper", id)
	a.waitFor(t, upstream.Ready)
	a.WaitForTools(t, "paper")
}

func (a authorized) call(t *testing.T) {
	t.Helper()
	a.Admin().RequireSays(t, "{}", "paper:echo", nil)
}

func TestAuthorizeUpstream(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		a := startAuthorized(t, db, newProvider(t))
		require.Contains(t, a.waitFor(t, upstream.AuthorizationRequired).Error, "comet upstreams authorize paper")
		a.authorize(t)
		a.call(t)
		status := a.waitFor(t, upstream.Ready)

		_, _, err := a.AuthorizeUpstream(t.Context(), testkit.Admin(), "paper") // another one is in progress
		require.NoError(t, err)
		stored, err := store.Rows[[]byte](db.Reads(t.Context()), "SELECT sealed FROM upstream_credentials UNION ALL SELECT sealed FROM upstream_authorizations")
		require.NoError(t, err)
		require.Len(t, stored, 2)
		text, err := json.Marshal(status)
		require.NoError(t, err)
		require.Len(t, a.issued, 4)
		for _, secret := range a.issued {
			require.NotContains(t, string(bytes.Join(stored, nil)), secret)
			require.NotContains(t, string(text), secret)
		}

		a = authorized{a.Restart(t), a.provider}
		a.WaitForTools(t, "paper")
		a.call(t)

		var sent sync.Map // another address does not get the token
		other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			sent.Store(r.Header.Get("Authorization"), true)
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.WriteHeader(http.StatusUnauthorized)
		}))
		t.Cleanup(other.Close)
		a.put(t, fmt.Sprintf(`{"url":%q}`, other.URL))
		a.waitFor(t, upstream.AuthorizationRequired)
		sent.Range(func(header, _ any) bool {
			require.Empty(t, header)
			return true
		})

		require.NoError(t, a.RemoveUpstream(t.Context(), testkit.Admin(), "paper")) // deletes the tokens
		a.put(t, fmt.Sprintf(`{"url":%q}`, a.mcp.URL+"/mcp"))
		a.waitFor(t, upstream.AuthorizationRequired)
	})
}

func TestInvalidAuthorizations(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		a := startAuthorized(t, db, newProvider(t))
		finish := func(params url.Values) error {
			_, err := a.FinishAuthorization(t.Context(), params)
			return err
		}
		back := a.browse(t)
		toolstest.RequireError(t, finish(url.Values{"state": {"another"}, "code": back["code"]}), errs.InvalidRequest, "unknown")
		toolstest.RequireError(t, finish(url.Values{"code": back["code"]}), errs.InvalidRequest, "unknown")

		wrong := url.Values{"state": back["state"], "code": back["code"], "iss": {"https://evil.example"}}
		toolstest.RequireError(t, finish(wrong), errs.InvalidRequest, "evil.example")
		toolstest.RequireError(t, finish(back), errs.InvalidRequest, "has ended") // the state was used

		back = a.browse(t)
		back.Del("iss")
		toolstest.RequireError(t, finish(back), errs.InvalidRequest, "authorization server")

		first := a.browse(t)
		a.browse(t)
		toolstest.RequireError(t, finish(first), errs.InvalidRequest, "has ended") // by the second

		back = a.browse(t)
		db.Clock.Advance(11 * time.Minute)
		toolstest.RequireError(t, finish(back), errs.InvalidRequest, "ten minutes")

		a.provider.deny = true
		toolstest.RequireError(t, finish(a.browse(t)), errs.InvalidRequest, "access_denied")
		a.provider.deny = false

		back = a.browse(t)
		back.Set("code", "another")
		err := finish(back)
		toolstest.RequireError(t, err, errs.InvalidRequest, "invalid_grant")
		require.NotContains(t, err.Error(), a.issued[len(a.issued)-1], "the description of the error is not repeated")

		back = a.browse(t)
		require.NoError(t, finish(back))
		toolstest.RequireError(t, finish(back), errs.InvalidRequest, "has ended")
		a.waitFor(t, upstream.Ready)
	})
}

func TestUnusableAuthorizationServers(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		p := newProvider(t)
		a := startAuthorized(t, db, p)
		requireError := func(code errs.Code, text string) {
			t.Helper()
			_, _, err := a.AuthorizeUpstream(t.Context(), testkit.Admin(), "paper")
			toolstest.RequireError(t, err, code, text)
		}
		p.resource = "https://other.example/mcp"
		requireError(errs.UpstreamFailed, "other.example")
		p.resource, p.issuer = p.mcp.URL+"/mcp", "https://other.example"
		requireError(errs.UpstreamFailed, "does not match")
		p.issuer, p.methods = p.URL, []string{"plain"}
		requireError(errs.UpstreamFailed, "S256")
		p.methods = []string{"S256"}

		a.put(t, `{"command":"true"}`)
		requireError(errs.Conflict, "program")
		a.put(t, fmt.Sprintf(`{"url":%q,"headers":{"authorization":"Bearer ${T:-abc}"}}`, p.mcp.URL+"/mcp"))
		requireError(errs.Conflict, "contains its token")
		a.put(t, fmt.Sprintf(`{"url":%q}`, p.mcp.URL+"/mcp"))

		opts := authorizedOptions()
		opts.Tools.Guard = nil // the authorization server has a loopback address
		guarded := authorized{toolstest.Start(t, db, opts), p}
		guarded.waitFor(t, upstream.AuthorizationRequired)
		_, _, err := guarded.AuthorizeUpstream(t.Context(), testkit.Admin(), "paper")
		toolstest.RequireError(t, err, errs.UpstreamFailed, "loopback")
	})
}

func TestRefreshOfTokens(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		a := startAuthorized(t, db, newProvider(t))
		a.authorize(t)

		db.Clock.Advance(time.Hour)
		a.call(t)
		require.Equal(t, 1, a.refreshCount(), "the token has expired")
		a.call(t)
		require.Equal(t, 1, a.refreshCount(), "the new token is used")

		a.end()
		a.call(t)
		require.Equal(t, 2, a.refreshCount(), "the token was rejected")

		db.Clock.Advance(time.Hour)
		var calls sync.WaitGroup
		for range 20 {
			calls.Go(func() { a.call(t) })
		}
		calls.Wait()
		require.Equal(t, 3, a.refreshCount(), "concurrent calls refresh once")

		next := authorized{a.Restart(t), a.provider}
		next.WaitForTools(t, "paper")
		db.Clock.Advance(time.Hour)
		next.call(t)
		require.Equal(t, 4, a.refreshCount(), "a restart keeps the refresh token")
	})
}

// TestReplicasRefreshOnce uses the tokens of two sessions, as two replicas do.
func TestReplicasRefreshOnce(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		a := startAuthorized(t, db, newProvider(t))
		a.authorize(t)
		var sources []upstream.TokenSource
		for range 4 {
			source, err := a.UpstreamTokens(t.Context(), "paper", a.mcp.URL+"/mcp")
			require.NoError(t, err)
			sources = append(sources, source)
		}
		for round := 1; round <= 3; round++ {
			db.Clock.Advance(time.Hour)
			tokens := make([]string, len(sources))
			var replicas sync.WaitGroup
			for i, source := range sources {
				replicas.Go(func() {
					var err error
					tokens[i], err = source(t.Context(), "")
					require.NoError(t, err)
				})
			}
			replicas.Wait()
			for _, token := range tokens {
				require.NotEmpty(t, token)
				require.Equal(t, tokens[0], token)
			}
			require.Equal(t, round, a.refreshCount())
		}
	})
}

func TestRefusedRefresh(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		a := startAuthorized(t, db, newProvider(t))
		a.authorize(t)
		sub, err := a.Feed.SubscribeNew(t.Context())
		require.NoError(t, err)
		sub.Only(events.UpstreamDown, events.UpstreamAuthorized)

		a.refuse(true)
		db.Clock.Advance(time.Hour)
		_, err = a.Admin().TryCall(t, "paper:echo", nil)
		require.ErrorContains(t, err, "it requires an authorization")
		a.waitFor(t, upstream.AuthorizationRequired)
		batch, err := sub.Next(t.Context(), 1)
		require.NoError(t, err)
		require.Contains(t, string(batch[0].Data), "authorize paper")

		a.refuse(false)
		a.authorize(t)
		a.call(t)
		batch, err = sub.Next(t.Context(), 1)
		require.NoError(t, err)
		require.Equal(t, events.UpstreamAuthorized, batch[0].Type)
		require.Contains(t, string(batch[0].Data), testkit.Admin().Name)
	})
}
