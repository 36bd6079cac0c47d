package api

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"comet/internal/a2a/remote"
	"comet/internal/auth"
	"comet/internal/dashboard"
	"comet/internal/events"
	"comet/internal/httpkit"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	"comet/internal/protocol/envelope"
	"comet/internal/protocol/genesis"
	"comet/internal/protocol/genesis/intents"
	v5 "comet/internal/protocol/v5"
	"comet/internal/protocol/v5/shortid"
	"comet/internal/pubsub"
	"comet/internal/registry"
	"comet/internal/schedule"
	"comet/internal/stats"
	"comet/internal/transport"
	"comet/internal/usage"
	"comet/models"
	"comet/openapi"
	"comet/store"
	"comet/store/storetest"
	"comet/webhooks"
)

// apiDescription is the part of the API description these tests look at.
type apiDescription struct {
	Paths      map[string]map[string]describedOperation `json:"paths"`
	Components struct {
		Responses map[string]describedResponse `json:"responses"`
		Schemas   map[string]*describedSchema  `json:"schemas"`
	} `json:"components"`
}

type describedOperation struct {
	Security  []map[string][]string        `json:"security"`
	Scopes    []models.Scope               `json:"x-required-scopes"`
	Responses map[string]describedResponse `json:"responses"`
}

type describedResponse struct {
	Ref     string                                       `json:"$ref"`
	Content map[string]struct{ Schema *describedSchema } `json:"content"`
	Headers map[string]any                               `json:"headers"`
}

func readDescription(t *testing.T) apiDescription {
	t.Helper()
	var d apiDescription
	require.NoError(t, json.Unmarshal(openapi.JSON(), &d))
	return d
}

// describedServer is the complete API over a real database, with the endpoints of the
// agents, which is described with it.
type describedServer struct {
	*Server
	core  Services
	store *store.Store
	auth  *auth.Auth
	admin string // a token with the scope admin
}

func newDescribedServer(t *testing.T) *describedServer {
	t.Helper()
	opts := storetest.Migrated(t, "sqlite")
	opts.SkipMigrations = true
	s, err := store.Open(t.Context(), opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	reg, tokens := registry.New(s, nil), auth.New(s, nil)
	require.NoError(t, reg.Bootstrap(t.Context()))
	ledger, feed := usage.New(s, nil), events.NewFeed(s, nil)
	core := Services{PubSub: pubsub.New(s, nil), Messages: testV5(s), Keys: auth.NewKeys(s, nil), ServiceKeys: auth.NewServiceKeys(s, nil, nil),
		Registry: reg, Auth: tokens, Usage: ledger, Webhooks: webhooks.New(s, nil), Feed: feed,
		Orchestrator: orchestrator.New(s, ledger, &orchestrator.Options{
			Classes: map[string]orchestrator.Policy{envelope.Class: envelope.Policy(), v5.Class: v5.Policy(), genesis.Class: genesis.Policy(), "weighted": {Weighted: true}}, Feed: feed, Poll: 10 * time.Millisecond,
		}),
	}
	core.Tools, core.Workflows, _ = NewTestTools(t, s, reg, ledger, core.Orchestrator, feed)
	core.Schedules = schedule.New(schedule.Dependencies{Store: s, Auth: tokens, Orchestrator: core.Orchestrator, Workflows: core.Workflows, Logger: slog.New(slog.DiscardHandler)})
	core.Remotes, core.Stats = remote.New(s, core.Orchestrator, nil), stats.New(s)
	limits := httpkit.NewLimits(&httpkit.LimitOptions{MaxFailures: 1000})
	signed := genesis.New(genesis.Dependencies{Work: core.Orchestrator, Keys: core.Keys, ServiceKeys: core.ServiceKeys, Intents: &intents.Service{}, Events: core.PubSub},
		&genesis.Options{Clock: func() time.Time { return time.Unix(1767225600, 0) }}) // that of the example
	lines := transport.New(transport.Core{
		Work: core.Orchestrator, Auth: tokens, Protocols: []protocol.Protocol{envelope.New(core.Orchestrator, nil), v5.New(core.Orchestrator, s, nil), signed},
	}, &transport.Options{Limits: limits})
	public := func(r chi.Router) {
		lines.Mount(r)
		fails := func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
		dashboard.Logins{Authenticator: httpkit.NewAuthenticator(tokens, nil), WriteError: fails}.Mount(r)
	}
	d := &describedServer{
		Server: New(core, &Options{Limits: limits, Metrics: http.NotFoundHandler(), MountPublic: public, Untimed: lines.IsStreaming}), core: core, store: s, auth: tokens,
	}
	d.admin = d.token(t, models.ScopeAdmin)
	return d
}

func (d *describedServer) token(t *testing.T, scopes ...models.Scope) string {
	t.Helper()
	issued, err := d.auth.Create(t.Context(), models.System(), auth.TokenDraft{Name: new("a test"), Scopes: scopes}, nil)
	require.NoError(t, err)
	return issued.Secret
}

// operations calls fn for every operation of the description, with an address
// that matches its path.
func (d apiDescription) operations(fn func(method, path, address string, op describedOperation)) {
	for path, item := range d.Paths {
		address := strings.NewReplacer("{agent_id}", "orch-scholar", "{token_id}", auth.BootstrapTokenID, "{code}", "not-found").Replace(path)
		for method, op := range item {
			fn(strings.ToUpper(method), path, address, op)
		}
	}
}

func TestEveryRouteIsDescribed(t *testing.T) {
	t.Parallel()
	routes := newDescribedServer(t).handler.(chi.Routes)
	var served, listed []string
	require.NoError(t, chi.Walk(routes, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		if !strings.HasPrefix(route, "/docs/") && !strings.HasPrefix(route, "/ui") && route != "/favicon.ico" && !strings.HasPrefix(route, "/oauth/") { // what browsers and authorization servers open is no part of the API
			served = append(served, method+" "+route)
		}
		return nil
	}))
	readDescription(t).operations(func(method, path, _ string, _ describedOperation) {
		listed = append(listed, method+" "+path)
	})
	require.ElementsMatch(t, served, listed)
}

func TestSecurityMatchesTheDescription(t *testing.T) {
	t.Parallel()
	d := newDescribedServer(t)
	caller, reporter := d.token(t, models.ScopeToolsCall), d.token(t, models.ScopeUsageWrite)
	tokens := map[models.Scope]string{}
	for _, scope := range models.Scopes() {
		tokens[scope] = d.token(t, scope)
	}
	ask := func(t *testing.T, method, address, token string) (int, Problem) {
		t.Helper()
		var p Problem
		status, header, body := d.send(t, method, address, token, "", nil)
		if strings.HasPrefix(header.Get("Content-Type"), contentTypeProblem) {
			require.NoError(t, json.Unmarshal(body, &p))
			var members map[string]any
			require.NoError(t, json.Unmarshal(body, &members))
			p.Meta = members
		}
		return status, p
	}

	readDescription(t).operations(func(method, path, address string, op describedOperation) {
		t.Run(method+" "+path, func(t *testing.T) {
			t.Parallel()
			status, _ := ask(t, method, address, "")
			if len(op.Security) == 0 {
				require.NotEqual(t, http.StatusUnauthorized, status, "described as public")
				return
			}
			require.Equal(t, http.StatusUnauthorized, status, "described as secured")

			useless := reporter
			if slices.Contains(op.Scopes, models.ScopeUsageWrite) {
				useless = caller
			}
			status, problem := ask(t, method, address, useless)
			if strings.HasPrefix(path, "/api/agent/") { // 5004, which says nothing more
				require.Equal(t, http.StatusUnauthorized, status, "described as open to agents, and to who may send messages")
				return
			}
			if strings.HasPrefix(path, "/api/genesis/") { // an ERROR of the protocol, in which a signature may replace the token
				require.Equal(t, http.StatusForbidden, status, "described as open to agents, and to who may send messages")
				return
			}
			if strings.HasPrefix(path, "/api/v1/tokens") && !strings.HasSuffix(path, "/tool-policy") { // for admins and tokens that are bound to an agent
				return
			}
			if len(op.Scopes) == 0 {
				require.NotEqual(t, http.StatusForbidden, status, "described as open to any token")
				return
			}
			require.Equal(t, http.StatusForbidden, status)
			require.Equal(t, string(op.Scopes[0]), problem.Meta["scope"])
			for scope, token := range tokens {
				allowed := scope == models.ScopeAdmin || slices.Contains(op.Scopes, scope)
				status, _ := ask(t, method, address+"?unknown=1", token)
				require.Equal(t, allowed, status != http.StatusForbidden, "with %s", scope)
			}
		})
	})
}

// TestCookiesMatchTheDescription sends the cookie of a login to every operation that requires a token.
func TestCookiesMatchTheDescription(t *testing.T) {
	t.Parallel()
	d := newDescribedServer(t)
	secret, _, err := d.auth.Login(t.Context(), auth.LoginDraft{Token: d.admin})
	require.NoError(t, err)
	accepting := 0
	readDescription(t).operations(func(method, path, address string, op describedOperation) {
		if len(op.Security) == 0 {
			return
		}
		r := httptest.NewRequestWithContext(t.Context(), method, "http://localhost"+address+"?unknown=1", nil)
		r.AddCookie(&http.Cookie{Name: "comet_session", Value: secret})
		w := httptest.NewRecorder()
		d.handler.ServeHTTP(w, r)
		if slices.ContainsFunc(op.Security, func(s map[string][]string) bool { return s["LoginCookie"] != nil }) {
			accepting++
			require.NotContains(t, []int{http.StatusUnauthorized, http.StatusForbidden}, w.Code, "%s %s: %s", method, path, w.Body)
		} else if path != "/api/v1/logins/codes" { // which checks its parameters first
			require.Equal(t, http.StatusUnauthorized, w.Code, "%s %s", method, path)
		}
	})
	require.Greater(t, accepting, 100)
}

// TestPublicRoutesAreDocumented checks that SECURITY.md lists the routes that accept requests without a token.
func TestPublicRoutesAreDocumented(t *testing.T) {
	t.Parallel()
	d := newDescribedServer(t)
	page, err := os.ReadFile("../SECURITY.md")
	require.NoError(t, err)
	require.NoError(t, chi.Walk(d.handler.(chi.Routes), func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		address := strings.Replace(strings.TrimSuffix(route, "*"), "{code}", "not-found", 1)
		if status, _, _ := d.send(t, method, address, "", "", nil); status != http.StatusUnauthorized {
			listed := strings.Replace(route, "{code}", "…", 1)
			switch { // the files of pages
			case strings.HasPrefix(route, "/docs/"):
				listed = "/docs"
			case strings.HasPrefix(route, "/ui/") && route != "/ui/session":
				listed = "/ui"
			}
			require.Contains(t, string(page), "`"+listed+"`")
		}
		return nil
	}))
}

// TestRequestsWithoutBodyAcceptAnEmptyObject sends an empty object with requests that have no body.
func TestRequestsWithoutBodyAcceptAnEmptyObject(t *testing.T) {
	t.Parallel()
	d := newDescribedServer(t)
	issued, err := d.auth.Create(t.Context(), models.System(), auth.TokenDraft{Name: new("a test"), Scopes: []models.Scope{models.ScopeAgentsRead}}, nil)
	require.NoError(t, err)
	at := "/api/v1/tokens/" + issued.Token.ID
	for body, want := range map[string]int{`{"force":true}`: 400, `[]`: 400, `null`: 400, `{`: 400} {
		status, _, text := d.send(t, http.MethodDelete, at, d.admin, body, nil)
		require.Equal(t, want, status, "%s: %s", body, text)
	}
	status, _, text := d.send(t, http.MethodPost, at+"/rotate", d.admin, `{}`, nil)
	require.Equal(t, http.StatusOK, status, "%s", text)
	status, _, text = d.send(t, http.MethodDelete, at, d.admin, ` {} `, nil)
	require.Equal(t, http.StatusNoContent, status, "%s", text)
}

// testV5 returns the short ids of PROTOCOL_V5, without messages.
func testV5(s *store.Store) MessageProtocol {
	return MessageProtocol{
		AgentNumber: func(ctx context.Context, id string) (int64, error) { return shortid.AgentNumber(ctx, s, id) },
		AgentNumbers: func(ctx context.Context, ids []string) (map[string]int64, error) {
			return shortid.AgentNumbers(ctx, s, ids)
		},
		AgentID:      func(ctx context.Context, number int64) (string, error) { return shortid.AgentID(ctx, s, number) },
		TaskMessages: func(context.Context, models.Task, string, int) ([]TaskMessage, error) { return nil, nil },
	}
}
