package app_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/app"
	"comet/internal/bus/bustest"
	"comet/internal/config"
	"comet/store/storetest"
)

// browser is a client with the cookie of a login instead of a token.
type browser struct {
	*client
	cookie []string // the header
}

// browse logs in at a server with the token or the code in a body.
func browse(t *testing.T, url, body string) *browser {
	t.Helper()
	c := newClient(t, url, "")
	r := c.Do(t, http.MethodPost, "/ui/session", body, "Content-Type", "application/json", "User-Agent", "Firefox", "Sec-Fetch-Site", "same-origin", "Origin", url)
	require.Equal(t, http.StatusNoContent, r.Status, "%s", r.Body)
	require.Empty(t, r.Body)
	cookie, flags, _ := strings.Cut(r.Header.Get("Set-Cookie"), ";")
	require.Equal(t, " Path=/; HttpOnly; SameSite=Strict", flags)
	return &browser{c, []string{"Cookie", cookie, "Sec-Fetch-Site", "same-origin"}}
}

func withToken(secret string) string { return `{"token":"` + secret + `"}` }

func (b *browser) must(t *testing.T, status int, method, path string, body any, header ...string) []byte {
	t.Helper()
	return b.client.must(t, status, method, path, body, append(header, b.cookie...)...)
}

func (b *browser) status(t *testing.T) int {
	t.Helper()
	status, _, err := b.do(t.Context(), http.MethodGet, "/api/v1/me", nil, b.cookie...)
	require.NoError(t, err)
	return status
}

// issued issues a token that may do what an administrator may.
func (c *client) issued(t *testing.T) (id, secret string) {
	t.Helper()
	made := into[struct{ ID, Token string }](t, c, http.StatusCreated, http.MethodPost, "/api/v1/tokens", map[string]any{"name": "ada", "scopes": []string{"admin"}})
	return made.ID, made.Token
}

type listedLogin struct {
	ID        string
	TokenID   string `json:"token_id"`
	TokenName string `json:"token_name"`
	UserAgent string `json:"user_agent"`
	Current   bool
}

func TestBrowserLogin(t *testing.T) {
	t.Parallel()
	hubs(t, func(t *testing.T, database string) {
		h := openHub(t, database, nil)
		id, secret := h.issued(t)
		ada := newClient(t, h.URL, secret)

		var code struct {
			Code, Path string
			ExpiresAt  time.Time `json:"expires_at"`
		}
		require.NoError(t, json.Unmarshal(ada.must(t, http.StatusCreated, http.MethodPost, "/api/v1/logins/codes", nil), &code))
		require.Equal(t, "/ui/#login="+code.Code, code.Path)
		first, second := browse(t, h.URL, `{"code":"`+code.Code+`"}`), browse(t, h.URL, withToken(secret))
		require.Equal(t, http.StatusUnauthorized, newClient(t, h.URL, "").Do(t, http.MethodPost, "/ui/session", `{"code":"`+code.Code+`"}`).Status, "it was used")

		var me struct {
			Token struct{ ID string }
			Login *struct {
				ID        string
				ExpiresAt time.Time `json:"expires_at"`
			}
		}
		require.NoError(t, json.Unmarshal(first.must(t, http.StatusOK, http.MethodGet, "/api/v1/me", nil), &me))
		require.Equal(t, id, me.Token.ID)
		require.WithinDuration(t, time.Now().Add(7*24*time.Hour), me.Login.ExpiresAt, time.Hour)
		require.NotContains(t, string(ada.must(t, http.StatusOK, http.MethodGet, "/api/v1/me", nil)), `"login"`)

		list := func() (logins []listedLogin) {
			var page struct{ Logins []listedLogin }
			require.NoError(t, json.Unmarshal(first.must(t, http.StatusOK, http.MethodGet, "/api/v1/logins", nil), &page))
			return page.Logins
		}
		require.Equal(t, listedLogin{me.Login.ID, id, "ada", "Firefox", true}, list()[0])
		require.False(t, list()[1].Current)
		first.must(t, http.StatusForbidden, http.MethodPost, "/api/v1/logins/codes", nil)
		first.must(t, http.StatusCreated, http.MethodPost, "/api/v1/agents", measuredAgent("made"))
		first.must(t, http.StatusForbidden, http.MethodDelete, "/api/v1/agents/made", nil, "Origin", "http://evil.example")
		require.Equal(t, http.StatusUnauthorized, first.Do(t, http.MethodPost, "/mcp", listTools, first.cookie...).Status, "MCP accepts no cookies")

		first.must(t, http.StatusNoContent, http.MethodDelete, "/api/v1/logins/"+list()[1].ID, nil)
		require.Equal(t, http.StatusUnauthorized, second.status(t))
		require.Len(t, list(), 1)
		r := second.Do(t, http.MethodPost, "/ui/session", `{"token":"wrong"}`)
		require.Equal(t, http.StatusUnauthorized, r.Status)
		require.Equal(t, "application/problem+json", r.Header.Get("Content-Type"))
		require.Equal(t, http.StatusForbidden, second.Do(t, http.MethodPost, "/ui/session", withToken(secret), "Sec-Fetch-Site", "cross-site").Status)

		events, err := first.Open(t.Context(), http.MethodGet, "/api/v1/events", "", first.cookie...)
		require.NoError(t, err)
		defer events.Body.Close()
		require.Equal(t, http.StatusOK, events.StatusCode)
		h.must(t, http.StatusNoContent, http.MethodDelete, "/api/v1/tokens/"+id, nil)
		require.Equal(t, http.StatusUnauthorized, first.status(t))
		_, err = io.Copy(io.Discard, events.Body) // the stream ends
		require.NoError(t, err)
	})
}

// TestLoginsReachOtherReplicas: two servers share a database. The second one, whose clock the test moves, has
// just verified the login; within its cache time it sees a logout and a revocation on the first one.
func TestLoginsReachOtherReplicas(t *testing.T) {
	t.Parallel()
	for _, name := range storetest.Databases() {
		if name == "postgres" {
			testLoginsReachOtherReplicas(t)
		}
	}
}

func testLoginsReachOtherReplicas(t *testing.T) {
	t.Helper()
	nats, clock := bustest.Start(t, bustest.Settings{}), storetest.NewClock()
	cfg := configured(t, "postgres")
	cfg.NATSURL, cfg.Sandbox.Warm = nats.URL(), 0
	start := func(cfg config.Config) string {
		a, err := app.New(t.Context(), cfg, &app.Options{Clock: clock.Now})
		require.NoError(t, err)
		require.NoError(t, a.Start(t.Context()))
		t.Cleanup(func() { require.NoError(t, a.Stop(context.WithoutCancel(t.Context()))) })
		return a.URL()
	}
	here := start(cfg)
	admin := newClient(t, here, adminToken(t, cfg.Data))
	cfg.SecretKeyFile, cfg.Data = cfg.Data+"/secret.key", t.TempDir()
	there := newClient(t, start(cfg), "")
	id, secret := admin.issued(t)
	for _, end := range []func(b *browser){
		func(b *browser) { b.must(t, http.StatusNoContent, http.MethodDelete, "/ui/session", nil) },
		func(*browser) {
			admin.must(t, http.StatusNoContent, http.MethodDelete, "/api/v1/tokens/"+id, nil)
		},
	} {
		b := browse(t, here, withToken(secret))
		elsewhere := &browser{there, b.cookie}
		require.Equal(t, http.StatusOK, elsewhere.status(t))
		end(b)
		require.Equal(t, http.StatusUnauthorized, b.status(t))
		require.Equal(t, http.StatusOK, elsewhere.status(t), "it is cached")
		clock.Advance(750 * time.Millisecond)
		require.Equal(t, http.StatusUnauthorized, elsewhere.status(t))
	}
}

// TestBrowserLoginOfAnIssuer: a JWT logs in, and its login ends when it expires.
func TestBrowserLoginOfAnIssuer(t *testing.T) {
	t.Parallel()
	hubs(t, func(t *testing.T, database string) {
		h := openIssuerHub(t, database, func(cfg *config.Config) { cfg.OIDC.AgentClaim = "agent" })
		h.agent(t, "ada", 1000)
		token := h.as(t, map[string]any{"agent": "ada", "scope": "agents:read"}).Token
		b := browse(t, h.URL, withToken(token))
		require.Contains(t, string(b.must(t, http.StatusOK, http.MethodGet, "/api/v1/me", nil)), `"oidc:client"`)
		b.must(t, http.StatusOK, http.MethodGet, "/api/v1/agents/ada", nil)
		b.must(t, http.StatusForbidden, http.MethodPatch, "/api/v1/agents/ada", map[string]any{"name": "x"})
		h.ahead.Store(int64(time.Hour))
		require.Equal(t, http.StatusUnauthorized, b.status(t))
	})
}

// TestCostOfLogins: within the cache time, a request with a cookie has the statements of one with a token.
func TestCostOfLogins(t *testing.T) {
	t.Parallel()
	measure(t, nil, func(t *testing.T, m *measured) {
		b := browse(t, m.URL, withToken(m.Token))
		cost := func(do func(id string)) int {
			o := m.operation("read")
			o.step(t, "read", do)
			return len(o.steps[0].entries)
		}
		byToken := func(id string) { m.must(t, http.StatusOK, http.MethodGet, "/api/v1/agents", nil, "X-Request-Id", id) }
		byCookie := func(id string) { b.must(t, http.StatusOK, http.MethodGet, "/api/v1/agents", nil, "X-Request-Id", id) }
		byToken("warm-up")
		plain := cost(byToken)
		require.Positive(t, plain)
		require.Equal(t, plain, cost(byCookie))
		m.clock.Advance(time.Second)
		require.Equal(t, plain+2, cost(byCookie), "the login and its token are read again")
		require.Equal(t, plain, cost(byCookie))
	})
}

// TestLinkOfFirstStart: the first start prints a link that logs in once, later starts the plain address.
func TestLinkOfFirstStart(t *testing.T) {
	t.Parallel()
	onEveryDatabase(t, func(t *testing.T, database setting) {
		data := t.TempDir()
		p := serve(t, data, database)
		code := p.says(t, `(?m)^  Dashboard        `+regexp.QuoteMeta(p.url(t))+`/ui/#login=([0-9a-f]{32})\n +logs you in once, within a minute; comet dashboard opens another link\n`)
		body := `{"code":"` + code + `"}`
		require.Equal(t, http.StatusOK, browse(t, p.url(t), body).status(t))
		require.Equal(t, http.StatusUnauthorized, newClient(t, p.url(t), "").Do(t, http.MethodPost, "/ui/session", body).Status)
		p.stop(t)
		require.NotContains(t, p.log.String(), code)

		p = serve(t, data, database)
		p.says(t, `(?m)^  Dashboard        (`+regexp.QuoteMeta(p.url(t))+`/ui/)\n`)
		p.stop(t)
	})
}
