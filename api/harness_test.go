package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/api"
	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/orchestrator"
	"comet/internal/protocol/v5/messagelog"
	"comet/internal/registry"
	"comet/internal/usage"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
	"comet/webhooks"
)

// house is the whole REST door over a real database, behind a real socket. Its
// clock shows the document's own time, 2026-01-10T15:30:00Z (CHE·NU §2.2).
type house struct {
	db     *storetest.DB
	auth   *auth.Auth
	reg    *registry.Registry
	ledger *usage.Ledger
	hooks  *webhooks.Webhooks
	work   *orchestrator.Orchestrator
	door   *api.Server
	url    string
	admin  string // the secret of a token with the scope admin

	loopback bool // webhooks may reach receivers of the test

	client *http.Transport // does what it is told: no redirects, no decompression
}

// houseOptions are what a test may choose.
type houseOptions struct {
	strictCapabilities bool
	rateLimit          int
	// loopback lets webhooks reach receivers of the test.
	loopback bool
	// work starts the orchestrator and what it needs; without it nothing is done.
	work bool
	// streams is how many streams there may be, 0 for the default.
	streams int
	// heartbeat is how often a stream without news shows that it lives, 0 for the
	// default.
	heartbeat time.Duration
	// waits is how many requests with one token may wait for tasks, 0 for the default.
	waits int
	// patience is for how long a client may take nothing of a stream, 0 for the default.
	patience time.Duration
}

// setup opens a house with its ten founding agents.
func setup(t testing.TB, db *storetest.DB, opts houseOptions) *house {
	t.Helper()
	h := openHouse(t, db, db.Store, opts)
	h.admin = h.token(t, models.ScopeAdmin)
	return h
}

// openHouse puts a replica over s together and lets it listen.
func openHouse(t testing.TB, db *storetest.DB, s *store.Store, opts houseOptions) *house {
	t.Helper()
	h := &house{
		db: db, auth: auth.New(s, &auth.Options{Clock: s.Now}), reg: registry.New(s, &registry.Options{StrictCapabilities: opts.strictCapabilities}),
		ledger: usage.New(s, nil), hooks: newHooks(s, opts.loopback),
		client: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}, loopback: opts.loopback,
	}
	require.NoError(t, h.reg.Bootstrap(t.Context()))
	feed := events.NewFeed(s, nil)
	h.work = orchestrator.New(s, h.ledger, &orchestrator.Options{Feed: feed, Poll: 20 * time.Millisecond, MaxWaitersPerToken: opts.waits})
	if opts.work {
		h.startWork(t, s, feed)
	}
	h.door = api.New(
		api.Services{Registry: h.reg, Auth: h.auth, Keys: auth.NewKeys(s, nil), Usage: h.ledger, Webhooks: h.hooks, Orchestrator: h.work, Feed: feed, MessageLog: messagelog.New(s, nil),
			Tools: api.NewTestTools(t, s, h.reg, h.ledger, h.work, feed)},
		&api.Options{RateLimit: opts.rateLimit, RateWindow: time.Hour, Clock: s.Now, MaxStreams: opts.streams, Heartbeat: opts.heartbeat, StreamWriteTimeout: opts.patience})
	server := httptest.NewServer(h.door)
	t.Cleanup(server.Close)
	t.Cleanup(h.door.Drain)
	t.Cleanup(h.client.CloseIdleConnections)
	h.url = server.URL
	return h
}

// token issues a token and returns its secret.
func (h *house) token(t testing.TB, scopes ...models.Scope) string {
	t.Helper()
	issued, err := h.auth.Create(t.Context(), models.System(), models.TokenDraft{Name: new("test"), Scopes: scopes}, nil)
	require.NoError(t, err)
	return issued.Secret
}

// reply is an answer that has been read.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// do makes a request as the admin. Headers are name, value, name, value; they
// replace those of the harness, and an empty value leaves the header out.
func (h *house) do(t testing.TB, method, target, body string, headers ...string) reply {
	t.Helper()
	got, err := h.ask(t.Context(), method, target, body, headers...)
	require.NoError(t, err)
	return got
}

// ask is do for a goroutine, which may not end the test.
func (h *house) ask(ctx context.Context, method, target, body string, headers ...string) (reply, error) {
	req, err := http.NewRequestWithContext(ctx, method, h.url+target, strings.NewReader(body))
	if err != nil {
		return reply{}, err
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
func (h *house) send(req *http.Request) (reply, error) {
	res, err := h.client.RoundTrip(req)
	if err != nil {
		return reply{}, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	return reply{res.StatusCode, res.Header, body}, err
}

// into decodes a JSON answer with the given status.
func (r reply) into(t testing.TB, status int, v any) {
	t.Helper()
	require.Equal(t, status, r.status, "%s", r.body)
	require.NoError(t, json.Unmarshal(r.body, v), "%s", r.body)
}

// problem checks that the answer is a problem document, whole and consistent,
// and returns it.
func (r reply) problem(t testing.TB, status int, code errs.Code) api.Problem {
	t.Helper()
	p := r.anyProblem(t)
	require.Equal(t, code, p.Code, "%s", r.body)
	require.Equal(t, status, r.status, "%s", r.body)
	return p
}

// anyProblem is problem for an answer whose code the test cannot know.
func (r reply) anyProblem(t testing.TB) api.Problem {
	t.Helper()
	require.GreaterOrEqual(t, r.status, 400, "%s", r.body)
	require.Less(t, r.status, 500, "%s", r.body)
	require.Equal(t, "application/problem+json", r.header.Get("Content-Type"))
	var p api.Problem
	dec := json.NewDecoder(bytes.NewReader(r.body))
	require.NoError(t, dec.Decode(&p), "%s", r.body)
	require.NotEqual(t, errs.ClassInternal, p.Code.Class(), "a code nobody knows: %s", r.body)
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
func metaOf(t testing.TB, r reply) map[string]any {
	t.Helper()
	var members map[string]any
	require.NoError(t, json.Unmarshal(r.body, &members))
	for _, name := range []string{"type", "title", "status", "detail", "instance", "code", "request_id", "errors"} {
		delete(members, name)
	}
	return members
}
