package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/api"
	"comet/internal/a2a/remote"
	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/events/live"
	"comet/internal/httpkit"
	"comet/internal/orchestrator"
	"comet/internal/protocol/v5/shortid"
	"comet/internal/pubsub"
	"comet/internal/registry"
	"comet/internal/schedule"
	"comet/internal/stats"
	"comet/internal/toolsearch"
	"comet/internal/usage"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
	"comet/webhooks"
)

// fixture is the complete API over a real database, behind a real listener. Its
// clock shows the document's own time, 2026-01-10T15:30:00Z (CHE·NU §2.2).
type fixture struct {
	db           *storetest.DB
	auth         *auth.Auth
	registry     *registry.Registry
	ledger       *usage.Ledger
	webhooks     *webhooks.Webhooks
	orchestrator *orchestrator.Orchestrator
	server       *api.Server
	index        *toolsearch.Index
	url          string
	admin        string // the secret of a token with the scope admin

	messages messageLog // what GET /api/v1/tasks/{task_id}/messages reads

	loopback bool // webhooks may reach receivers of the test

	client *http.Transport // no redirects, no decompression
}

// fixtureOptions are what a test may choose.
type fixtureOptions struct {
	strictCapabilities bool
	rateLimit          int
	// loopback lets webhooks reach receivers of the test.
	loopback bool
	// startOrchestrator starts the orchestrator and what it needs; without it nothing is done.
	startOrchestrator bool
	// streams is how many streams there may be, 0 for the default.
	streams int
	// heartbeat is the interval of comments on a stream without events, 0 for the default.
	heartbeat time.Duration
	// maxWaiters is how many requests with one token may wait for tasks, 0 for the default.
	maxWaiters int
	// writeTimeout is how long a client may read nothing from a stream, 0 for the default.
	writeTimeout time.Duration
}

// setup returns a fixture with the ten first agents.
func setup(t testing.TB, db *storetest.DB, opts fixtureOptions) *fixture {
	t.Helper()
	h := newReplica(t, db, db.Store, opts)
	h.admin = h.token(t, models.ScopeAdmin)
	return h
}

// newReplica starts a replica over s.
func newReplica(t testing.TB, db *storetest.DB, s *store.Store, opts fixtureOptions) *fixture {
	t.Helper()
	h := &fixture{
		db: db, auth: auth.New(s, &auth.Options{Clock: s.Now}), registry: registry.New(s, &registry.Options{StrictCapabilities: opts.strictCapabilities}),
		webhooks: newHooks(s, opts.loopback),
		client:   &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}, loopback: opts.loopback, messages: messageLog{},
	}
	require.NoError(t, h.registry.Bootstrap(t.Context()))
	unstored := live.New(nil)
	h.ledger = usage.New(s, &usage.Options{OnChange: func(list []usage.Change) {
		for _, c := range list {
			_ = unstored.Mark(live.UsageChanged, c.AgentID, c.Version, c.At, c)
		}
	}})
	feed := events.NewFeed(s, nil)
	h.orchestrator = orchestrator.New(s, h.ledger, &orchestrator.Options{Feed: feed, Poll: 20 * time.Millisecond, MaxWaitersPerToken: opts.maxWaiters})
	if opts.startOrchestrator {
		require.NoError(t, unstored.Start(t.Context()))
		t.Cleanup(func() { require.NoError(t, unstored.Stop(context.Background())) })
		h.startWork(t, s, feed)
	}
	hub, workflows, index := api.NewTestTools(t, s, h.registry, h.ledger, h.orchestrator, feed)
	schedules := schedule.New(schedule.Dependencies{Store: s, Auth: h.auth, Orchestrator: h.orchestrator, Workflows: workflows, Logger: slog.New(slog.DiscardHandler)})
	h.server = api.New(
		api.Services{Schedules: schedules, PubSub: pubsub.New(s, nil), Registry: h.registry, Auth: h.auth, Keys: auth.NewKeys(s, nil), ServiceKeys: auth.NewServiceKeys(s, nil, nil), Usage: h.ledger, Webhooks: h.webhooks, Orchestrator: h.orchestrator, Feed: feed, Messages: h.v5(s),
			Tools: hub, Workflows: workflows, Remotes: remote.New(s, h.orchestrator, nil), Stats: stats.New(s), Live: unstored},
		&api.Options{Limits: httpkit.NewLimits(&httpkit.LimitOptions{RateLimit: opts.rateLimit, RateWindow: time.Hour, MaxFailures: 1000}), Clock: s.Now, MaxStreams: opts.streams, Heartbeat: opts.heartbeat, StreamWriteTimeout: opts.writeTimeout})
	server := httptest.NewServer(h.server)
	t.Cleanup(server.Close)
	t.Cleanup(h.server.Drain)
	t.Cleanup(h.client.CloseIdleConnections)
	h.url, h.index = server.URL, index
	return h
}

// v5 returns the short ids of PROTOCOL_V5 and the messages of the fixture.
func (h *fixture) v5(s *store.Store) api.MessageProtocol {
	return api.MessageProtocol{
		AgentNumber: func(ctx context.Context, id string) (int64, error) { return shortid.AgentNumber(ctx, s, id) },
		AgentNumbers: func(ctx context.Context, ids []string) (map[string]int64, error) {
			return shortid.AgentNumbers(ctx, s, ids)
		},
		AgentID:      func(ctx context.Context, number int64) (string, error) { return shortid.AgentID(ctx, s, number) },
		FormatEvent:  func(_ context.Context, e models.Event) (string, error) { return e.ID, nil },
		TaskMessages: h.messages.byTask,
	}
}

// token issues a token and returns its secret.
func (h *fixture) token(t testing.TB, scopes ...models.Scope) string {
	t.Helper()
	issued, err := h.auth.Create(t.Context(), models.System(), auth.TokenDraft{Name: new("test"), Scopes: scopes}, nil)
	require.NoError(t, err)
	return issued.Secret
}

// response is an answer that has been read.
type response struct {
	status int
	header http.Header
	body   []byte
}

// do makes a request as the admin. Headers are name, value, name, value; they
// replace those of the harness, and an empty value leaves the header out.
func (h *fixture) do(t testing.TB, method, target, body string, headers ...string) response {
	t.Helper()
	got, err := h.doContext(t.Context(), method, target, body, headers...)
	require.NoError(t, err)
	return got
}

// doContext is do for a goroutine, which may not end the test.
func (h *fixture) doContext(ctx context.Context, method, target, body string, headers ...string) (response, error) {
	req, err := http.NewRequestWithContext(ctx, method, h.url+target, strings.NewReader(body))
	if err != nil {
		return response{}, err
	}
	req.Header.Set("Authorization", "Bearer "+h.admin)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Del(headers[i])
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i+1] != "" {
			req.Header[http.CanonicalHeaderKey(headers[i])] = append(req.Header[http.CanonicalHeaderKey(headers[i])], headers[i+1])
		}
	}
	return h.send(req)
}

// send makes a request exactly as it is and reads the answer.
func (h *fixture) send(req *http.Request) (response, error) {
	res, err := h.client.RoundTrip(req)
	if err != nil {
		return response{}, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	return response{res.StatusCode, res.Header, body}, err
}

// decode decodes a JSON answer with the given status.
func (r response) decode(t testing.TB, status int, v any) {
	t.Helper()
	require.Equal(t, status, r.status, "%s", r.body)
	require.NoError(t, json.Unmarshal(r.body, v), "%s", r.body)
}

// problem checks that the answer is a problem document, whole and consistent,
// and returns it.
func (r response) problem(t testing.TB, status int, code errs.Code) api.Problem {
	t.Helper()
	p := r.anyProblem(t)
	require.Equal(t, code, p.Code, "%s", r.body)
	require.Equal(t, status, r.status, "%s", r.body)
	return p
}

// anyProblem is problem for an answer whose code the test cannot know.
func (r response) anyProblem(t testing.TB) api.Problem {
	t.Helper()
	require.GreaterOrEqual(t, r.status, 400, "%s", r.body)
	require.Less(t, r.status, 500, "%s", r.body)
	require.Equal(t, "application/problem+json", r.header.Get("Content-Type"))
	var p api.Problem
	dec := json.NewDecoder(bytes.NewReader(r.body))
	require.NoError(t, dec.Decode(&p), "%s", r.body)
	require.NotEqual(t, errs.Internal, p.Code, "an error without a code: %s", r.body)
	require.Equal(t, r.status, p.Status)
	require.Equal(t, p.Code.Title(), p.Title)
	require.Equal(t, "/problems/"+string(p.Code), p.Type)
	require.NotEmpty(t, p.Detail)
	require.Equal(t, r.header.Get("X-Request-Id"), p.RequestID)
	for _, f := range p.Errors {
		require.NotEmpty(t, f.Rule, "%s", r.body)
		require.NotEmpty(t, f.Detail, "%s", r.body)
	}
	return p
}

// metaOf returns the further members of a problem.
func metaOf(t testing.TB, r response) map[string]any {
	t.Helper()
	var members map[string]any
	require.NoError(t, json.Unmarshal(r.body, &members))
	for _, name := range []string{"type", "title", "status", "detail", "instance", "code", "request_id", "errors"} {
		delete(members, name)
	}
	return members
}
