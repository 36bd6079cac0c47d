package bench

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/api"
	"comet/internal/auth"
	"comet/internal/background"
	"comet/internal/bus"
	"comet/internal/events"
	"comet/internal/jobs"
	"comet/internal/mcp"
	"comet/internal/orchestrator"
	"comet/internal/protocol/envelope"
	"comet/internal/sandbox"
	"comet/internal/telemetry"
	"comet/internal/tools"
	"comet/internal/tools/builtin"
	"comet/internal/toolsearch"
	"comet/internal/upstream"
	"comet/models"
	"comet/webhooks"
)

// The measured revisions of MCP: without and with sessions.
const (
	newRevision = "2026-07-28"
	oldRevision = "2025-11-25"
)

// toolServer is a server with the MCP gateway and two upstreams: the same program over stdio and
// over HTTP.
type toolServer struct {
	*testServer
	auth     *auth.Auth
	tools    *tools.Service
	gateway  *mcp.Server
	url      string // of the handler
	upstream string // address of the HTTP upstream
}

// openToolServer starts a server on SQLite. warm is the number of idle sandbox processes; a
// negative number means none.
func openToolServer(b *testing.B, warm int) *toolServer {
	b.Helper()
	w := &toolServer{testServer: newServer(b, newDatabase(b, sqlite)), upstream: startUpstream(b)}
	w.auth = auth.New(w.store, nil)
	_, err := w.auth.EnsureAdmin(b.Context(), adminToken, true)
	require.NoError(b, err)
	feed := events.NewFeed(w.store, nil)
	work := orchestrator.New(w.store, w.ledger, &orchestrator.Options{
		Classes: map[string]orchestrator.Policy{envelope.Class: envelope.Policy()}, Registry: w.registry, Feed: feed,
	})
	runner := jobs.New(w.store, nil)
	work.RegisterJobs(runner)
	messages, err := bus.New(nil)
	require.NoError(b, err)
	upstreams := upstream.New(&upstream.Options{OnChange: func(c upstream.Change) { w.tools.OnUpstreamChange(c) }})
	index := toolsearch.New(w.store, &toolsearch.Options{OnChange: func(c toolsearch.Change) { w.tools.OnGraphChange(c) }})
	box, err := sandbox.New(&sandbox.Options{Warm: warm})
	require.NoError(b, err)
	metrics := telemetry.NewMetrics(telemetry.Build{})
	w.tools = tools.New(tools.Dependencies{
		Store: w.store, Registry: w.registry, Usage: w.ledger, Orchestrator: work, Feed: feed, Upstreams: upstreams, Index: index,
	}, &tools.Options{Registerer: metrics.Registerer(), Logger: accessLog(b), Clock: w.clock, OnChange: func(c upstream.Change) { w.gateway.OnChange(c) }})
	builtin.Register(builtin.Dependencies{Tools: w.tools, Orchestrator: work, Auth: w.auth, Index: index, Sandbox: box})
	w.gateway = mcp.New(w.tools, &mcp.Options{Logger: accessLog(b)})
	var all background.Group
	all.Add("bus", messages)
	all.Add("relay", events.NewRelay(w.store, feed, nil))
	all.Add("work", work)
	all.Add("jobs", runner)
	all.Add("index", index)
	all.Add("sandbox", box)
	all.Add("upstreams", upstreams)
	all.Add("tools", w.tools)
	all.Add("gateway", w.gateway)
	require.NoError(b, all.Start(b.Context()))
	b.Cleanup(func() { require.NoError(b, all.Stop(detached())) })
	_, err = upstreams.Apply(b.Context(), "file", []upstream.Server{
		{ID: overStdio, Command: os.Args[0], Env: map[string]string{upstreamMode: overStdio}},
		{ID: overHTTP, URL: w.upstream},
	})
	require.NoError(b, err)
	handler, err := mcp.NewHandler(w.gateway, w.auth, nil)
	require.NoError(b, err)
	core := api.Services{Registry: w.registry, Auth: w.auth, Usage: w.ledger, Webhooks: webhooks.New(w.store, nil), Orchestrator: work, Feed: feed, Tools: w.tools}
	w.chain = serve(b, api.New(core, &api.Options{
		Logger: accessLog(b), Measure: metrics.Measure(routePattern), Untimed: mcp.IsStreaming,
		MountPublic: func(r chi.Router) { r.Handle(mcp.Path, handler) },
	}))
	b.Cleanup(handler.Drain)
	w.url = "http://" + w.chain + mcp.Path
	w.settled(b)
	return w
}

// settled waits until the tools of both upstreams are listed.
func (w *toolServer) settled(b *testing.B) {
	b.Helper()
	token := w.token(b, "settles", nil)
	client := dial(b, w.url, token, newRevision)
	require.Eventually(b, func() bool {
		return call(client, toolOver(overStdio)) == nil && call(client, toolOver(overHTTP)) == nil
	}, time.Minute, 10*time.Millisecond)
}

// token creates a token that may call tools, optionally with a policy.
func (w *toolServer) token(b *testing.B, name string, p *models.ToolPolicy) string {
	b.Helper()
	issued, err := w.auth.Create(b.Context(), models.System(), auth.TokenDraft{Name: &name, Scopes: []models.Scope{models.ScopeToolsCall}}, nil)
	require.NoError(b, err)
	if p != nil {
		_, err = w.tools.SetPolicy(b.Context(), models.System(), issued.Token.ID, *p, nil)
		require.NoError(b, err)
	}
	return issued.Secret
}

// bearerTransport adds a token to every request.
type bearerTransport struct {
	token string
	next  http.RoundTripper
}

func (t bearerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+t.token)
	return t.next.RoundTrip(r)
}

// dial connects an SDK client over Streamable HTTP with separate connections.
func dial(b *testing.B, url, token, revision string) *sdk.ClientSession {
	b.Helper()
	base := &http.Transport{MaxIdleConnsPerHost: 4}
	b.Cleanup(base.CloseIdleConnections)
	return connect(b, &sdk.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: bearerTransport{token, base}}}, revision)
}

// dialAll connects one client per caller.
func dialAll(b *testing.B, callers int, url, token, revision string) []*sdk.ClientSession {
	b.Helper()
	all := make([]*sdk.ClientSession, callers)
	for i := range all {
		all[i] = dial(b, url, token, revision)
	}
	return all
}

// spawn starts an upstream for one client, over stdio.
func spawn(b *testing.B) *sdk.ClientSession {
	b.Helper()
	cmd := exec.CommandContext(detached(), os.Args[0])
	cmd.Env = []string{upstreamMode + "=" + overStdio}
	return connect(b, &sdk.CommandTransport{Command: cmd}, newRevision)
}

// stream connects a client to the gateway as over stdio.
func (w *toolServer) stream(b *testing.B) *sdk.ClientSession {
	b.Helper()
	toServer, fromClient := io.Pipe()
	toClient, fromServer := io.Pipe()
	by := models.Principal{TokenID: auth.BootstrapTokenID, Name: "stdio", Scopes: []models.Scope{models.ScopeAdmin}}
	var serving sync.WaitGroup
	serving.Go(func() {
		_ = w.gateway.ServeStream(detached(), by, toServer, fromServer)
	})
	b.Cleanup(serving.Wait) // after the client has disconnected
	return connect(b, &sdk.IOTransport{Reader: toClient, Writer: fromClient}, newRevision)
}

func connect(b *testing.B, t sdk.Transport, revision string) *sdk.ClientSession {
	b.Helper()
	client := sdk.NewClient(&sdk.Implementation{Name: "bench", Version: "1"}, nil)
	s, err := client.Connect(detached(), t, &sdk.ClientSessionOptions{ProtocolVersion: revision})
	require.NoError(b, err)
	b.Cleanup(func() { _ = s.Close() })
	return s
}

// toolOver returns the name under which comet lists the tool of an upstream.
func toolOver(transport string) string { return transport + "__read_file" }

// call calls a tool and checks the result.
func call(s *sdk.ClientSession, tool string) error {
	res, err := s.CallTool(detached(), &sdk.CallToolParams{Name: tool, Arguments: map[string]any{"path": "/srv/data/reports/2026/november.txt"}})
	if err != nil {
		return err
	}
	text, ok := res.Content[0].(*sdk.TextContent)
	if res.IsError || !ok || len(text.Text) != len(page()) {
		return fmt.Errorf("%s returns %+v", tool, res.Content[0])
	}
	return nil
}
