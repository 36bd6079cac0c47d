package app_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"comet/internal/app"
	"comet/internal/config"
	"comet/internal/testkit/issuertest"
)

// issuerHub is a server that accepts tokens of an issuer, and whose clock can be advanced.
type issuerHub struct {
	*hub
	issuer *issuertest.Issuer
	ahead  atomic.Int64
}

func openIssuerHub(t *testing.T, database string, change func(*config.Config)) *issuerHub {
	t.Helper()
	h := &issuerHub{issuer: issuertest.New(t)}
	cfg := configured(t, database)
	cfg.Sandbox.Warm, cfg.Transport.Heartbeat = 0, time.Second
	cfg.OIDC.Issuer, cfg.OIDC.Audience = h.issuer.URL, issuertest.Audience
	if change != nil {
		change(&cfg)
	}
	clock := func() time.Time { return time.Now().Add(time.Duration(h.ahead.Load())) }
	a, err := app.New(t.Context(), cfg, &app.Options{Clock: clock})
	require.NoError(t, err)
	require.NoError(t, a.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, a.Stop(context.WithoutCancel(t.Context()))) })
	h.hub = &hub{client: newClient(t, a.URL(), adminToken(t, cfg.Data)), app: a, cfg: cfg}
	return h
}

// as returns a client with a token of the issuer.
func (h *issuerHub) as(t *testing.T, claims map[string]any) *client {
	t.Helper()
	return newClient(t, h.URL, h.issuer.Token(t, claims))
}

func TestTokensOfAnIssuer(t *testing.T) {
	t.Parallel()
	hubs(t, func(t *testing.T, database string) {
		h := openIssuerHub(t, database, func(cfg *config.Config) {
			cfg.OIDC.AgentClaim = "agent"
			cfg.OIDC.Scopes = []string{"agents:read", "agents:write=staff", "tools:call", "tools:call=staff", "admin=boss"}
		})
		h.agent(t, "ada", 1000)
		h.agent(t, "bob", 1000)
		ada := h.as(t, map[string]any{"agent": "ada", "scope": "staff messages:send", "padding": strings.Repeat("x", 2000)})

		t.Run("acts within the subtree of the agent", func(t *testing.T) {
			ada.must(t, http.StatusOK, http.MethodGet, "/api/v1/agents/ada", nil)
			ada.must(t, http.StatusForbidden, http.MethodPatch, "/api/v1/agents/bob", map[string]any{"name": "mine"}, "Content-Type", "application/merge-patch+json")
			child := map[string]any{"id": "child", "name": "child", "level": 3, "parent_id": "ada"}
			ada.must(t, http.StatusCreated, http.MethodPost, "/api/v1/agents", child)
			child["id"], child["parent_id"] = "other", "bob"
			ada.must(t, http.StatusForbidden, http.MethodPost, "/api/v1/agents", child)
			ada.must(t, http.StatusForbidden, http.MethodPost, "/api/v1/tokens", map[string]any{"name": "x", "scopes": []string{"agents:read"}})
			require.Contains(t, string(h.must(t, http.StatusOK, http.MethodGet, "/api/v1/agents/child/audit", nil)), "oidc:client")
		})
		t.Run("me", func(t *testing.T) {
			me := into[struct {
				Token struct {
					Name   string
					Scopes []string
				}
				Agent struct{ ID string }
			}](t, ada, http.StatusOK, http.MethodGet, "/api/v1/me", nil)
			require.Equal(t, "oidc:client", me.Token.Name)
			require.Equal(t, []string{"agents:write", "tools:call"}, me.Token.Scopes)
			require.Equal(t, "ada", me.Agent.ID)
		})
		t.Run("an administrator", func(t *testing.T) {
			boss := h.as(t, map[string]any{"agent": "nova", "scope": "boss"})
			boss.must(t, http.StatusOK, http.MethodGet, "/api/v1/tokens", nil)
			boss.must(t, http.StatusCreated, http.MethodPost, "/api/v1/tokens", map[string]any{"name": "x", "scopes": []string{"agents:read"}})
		})
		t.Run("MCP", func(t *testing.T) {
			body, header := modern("tools/list", "", "")
			require.Equal(t, http.StatusOK, ada.say(t, body, header...).status)
			require.Equal(t, http.StatusOK, ada.say(t, listTools, ada.initialize(t)...).status)

			expired := h.as(t, map[string]any{"agent": "ada", "exp": 1}).say(t, body, header...)
			require.Equal(t, http.StatusUnauthorized, expired.status)
			require.Contains(t, expired.header.Get("WWW-Authenticate"), `scope="tools:call staff", error="invalid_token", error_description="the token has expired"`)
			poor := h.as(t, map[string]any{"agent": "ada", "scope": "agents:read"}).say(t, body, header...)
			require.Equal(t, http.StatusForbidden, poor.status)
			require.Contains(t, poor.header.Get("WWW-Authenticate"), `/.well-known/oauth-protected-resource/mcp", scope="tools:call staff", error="insufficient_scope", error_description="`)
			require.True(t, strings.HasPrefix(poor.header.Get("WWW-Authenticate"), `Bearer resource_metadata="http`))
			metadata := into[struct {
				Servers []string `json:"authorization_servers"`
				Scopes  []string `json:"scopes_supported"`
			}](t, h.client, http.StatusOK, http.MethodGet, "/.well-known/oauth-protected-resource/mcp", nil)
			require.Equal(t, []string{h.issuer.URL}, metadata.Servers)
			require.Equal(t, []string{"tools:call", "staff"}, metadata.Scopes)
		})
		t.Run("invalid tokens are throttled", func(t *testing.T) {
			wrong := h.as(t, map[string]any{"agent": "ada", "aud": "other"})
			r := wrong.raw(t, http.MethodGet, "/api/v1/me", "")
			require.Equal(t, http.StatusUnauthorized, r.status)
			require.Equal(t, `Bearer realm="comet", error="invalid_token", error_description="the token is for an audience other than https://comet.test"`, r.header.Get("WWW-Authenticate"))
			eventually(t, func() bool {
				return wrong.raw(t, http.MethodGet, "/api/v1/me", "").status == http.StatusTooManyRequests
			}, "the address is throttled")
			ada.must(t, http.StatusOK, http.MethodGet, "/api/v1/me", nil)
		})
	})
}

// TestAnExpiredTokenOfAnIssuerEndsStreams: an expired token ends its MCP streams and its WebSocket.
func TestAnExpiredTokenOfAnIssuerEndsStreams(t *testing.T) {
	t.Parallel()
	hubs(t, func(t *testing.T, database string) {
		h := openIssuerHub(t, database, func(cfg *config.Config) { cfg.OIDC.AgentClaim = "agent" })
		h.agent(t, "ada", 1000)
		ada := h.as(t, map[string]any{"agent": "ada", "scope": "tools:call messages:send"})
		open := ada.opens(t)
		worker, err := dialV5WebSocket(t.Context(), h.URL, ada.Token)
		require.NoError(t, err)
		defer worker.close()
		require.NoError(t, worker.send("M1|W1>O1|J|T0|-|-|-|0|S0|-|caps=custom:x;concurrency=1"))
		line, err := worker.next()
		require.NoError(t, err)
		require.Contains(t, line, "|A|T0|")

		h.ahead.Store(int64(time.Hour))
		open.requireEnds(t)
		for err == nil {
			_, err = worker.next()
		}
		require.Equal(t, websocket.StatusPolicyViolation, websocket.CloseStatus(err), err)
		require.Equal(t, http.StatusUnauthorized, ada.say(t, listTools, open.session...).status)
	})
}

// TestAnIssuerThatIsAway: the server starts without its issuer, and its own tokens work.
func TestAnIssuerThatIsAway(t *testing.T) {
	t.Parallel()
	h := openIssuerHub(t, "sqlite", func(cfg *config.Config) { cfg.OIDC.Issuer = "http://127.0.0.1:1" })
	h.issuer.URL = "http://127.0.0.1:1"
	r := h.as(t, nil).raw(t, http.MethodGet, "/api/v1/me", "")
	require.Equal(t, http.StatusServiceUnavailable, r.status)
	require.NotEmpty(t, r.header.Get("Retry-After"))
	body, header := modern("tools/list", "", "")
	require.Equal(t, http.StatusServiceUnavailable, h.as(t, nil).say(t, body, header...).status)
	h.must(t, http.StatusOK, http.MethodGet, "/api/v1/me", nil)
}
