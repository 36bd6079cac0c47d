package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/auth"
	"comet/internal/upstream"
	"comet/models"
	"comet/store/storetest"
)

// soon is how long what has to come may take on a busy machine.
const soon = time.Minute

// house is a door with nothing behind it but the protocol.
type house struct {
	door *Handler
	url  string
	db   *storetest.DB
	auth *auth.Auth
}

func openHouse(t *testing.T, change func(*Handler)) *house {
	t.Helper()
	db := storetest.Open(t, "sqlite")
	h := &house{db: db, auth: auth.New(db.Store, nil)}
	g := &Server{log: slog.New(slog.DiscardHandler)}
	g.mcp = mcp.NewServer(&mcp.Implementation{Name: "house", Version: "1"}, &mcp.ServerOptions{
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	g.mcp.AddReceivingMiddleware(bindSession)
	g.mcp.AddTool(&mcp.Tool{Name: "ping", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "pong"}}}, nil
	})
	var err error
	h.door, err = NewHandler(g, h.auth, nil)
	require.NoError(t, err)
	if change != nil {
		change(h.door)
	}
	require.NoError(t, h.door.Start(t.Context()))
	srv := httptest.NewServer(h.door)
	h.url = srv.URL
	t.Cleanup(func() {
		h.door.Drain()
		srv.Close()
		require.NoError(t, h.door.Stop(context.WithoutCancel(t.Context())))
	})
	return h
}

// token makes a token that may call tools.
func (h *house) token(t *testing.T) string {
	t.Helper()
	made, err := h.auth.Create(t.Context(), models.System(), models.TokenDraft{Name: new("guest"), Scopes: []models.Scope{models.ScopeToolsCall}}, nil)
	require.NoError(t, err)
	return made.Secret
}

// ask makes a request and returns its answer.
func (h *house) ask(t *testing.T, token, body string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.url+Path, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(text)
}

const beginning = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`

// begin begins a session and returns its id.
func (h *house) begin(t *testing.T, token string) string {
	t.Helper()
	resp, body := h.ask(t, token, beginning)
	require.Equal(t, http.StatusOK, resp.StatusCode, body)
	id := resp.Header.Get("Mcp-Session-Id")
	require.NotEmpty(t, id)
	return id
}

func TestTheDoor(t *testing.T) {
	t.Parallel()

	t.Run("says when it cannot look up a token", func(t *testing.T) {
		t.Parallel()
		h := openHouse(t, nil)
		token := h.token(t)
		require.NoError(t, h.db.Close())
		resp, body := h.ask(t, token, beginning)
		require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
		require.Equal(t, "application/json", resp.Header.Get("Content-Type"))
		require.NotEmpty(t, resp.Header.Get("Retry-After"))
		require.Contains(t, body, `"code":"UNAVAILABLE"`)
	})

	t.Run("has no more sessions than it may, and takes the places back", func(t *testing.T) {
		t.Parallel()
		h := openHouse(t, func(d *Handler) { d.maxTotal, d.maxPerToken = 3, 2 })
		one, two := h.token(t), h.token(t)
		first := h.begin(t, one)
		h.begin(t, one)
		resp, body := h.ask(t, one, beginning)
		require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
		require.Contains(t, body, `"code":"LIMIT_REACHED"`)
		require.Contains(t, body, `"id":0`)
		h.begin(t, two)
		resp, body = h.ask(t, two, beginning)
		require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
		require.Contains(t, body, `"code":"BUSY"`)

		for s := range h.door.server.mcp.Sessions() { // as its idling ends it
			if s.ID() == first {
				require.NoError(t, s.Close())
			}
		}
		require.Eventually(t, func() bool {
			resp, _ := h.ask(t, two, beginning)
			return resp.StatusCode == http.StatusOK
		}, soon, time.Millisecond)
	})

	t.Run("gives no place to what begins no session", func(t *testing.T) {
		t.Parallel()
		h := openHouse(t, func(d *Handler) { d.maxTotal, d.maxPerToken = 1, 1 })
		token := h.token(t)
		for range 5 {
			h.ask(t, token, `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		}
		h.begin(t, token)
	})

	t.Run("drops a client that does not read, while others are answered", func(t *testing.T) {
		t.Parallel()
		h := openHouse(t, func(d *Handler) { d.writeTimeout = 2 * time.Second })
		token := h.token(t)
		deaf, well := h.begin(t, token), h.begin(t, token)
		uri := "file:///" + strings.Repeat("x", 1<<20)
		resp, body := h.ask(t, token, `{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"`+uri+`"}}`, "Mcp-Session-Id", deaf)
		require.Equal(t, http.StatusOK, resp.StatusCode, body)
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(h.url, "http://"))
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		_, err = io.WriteString(conn, "GET /mcp HTTP/1.1\r\nHost: "+strings.TrimPrefix(h.url, "http://")+"\r\nAuthorization: Bearer "+token+
			"\r\nAccept: text/event-stream\r\nMcp-Session-Id: "+deaf+"\r\n\r\n")
		require.NoError(t, err)
		status, err := bufio.NewReaderSize(conn, 16).ReadString('\n')
		require.NoError(t, err)
		require.Contains(t, status, "200")
		require.Equal(t, 1, h.door.streams())

		flooded := make(chan struct{})
		go func() {
			defer close(flooded)
			for h.door.streams() > 0 { // until it is dropped
				_ = h.door.server.mcp.ResourceUpdated(context.Background(), &mcp.ResourceUpdatedNotificationParams{URI: uri})
			}
		}()
		for ended := false; !ended; {
			resp, body := h.ask(t, token, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"ping"}}`, "Mcp-Session-Id", well)
			require.Equal(t, http.StatusOK, resp.StatusCode)
			require.Contains(t, body, "pong")
			select {
			case <-flooded:
				ended = true
			default:
			}
		}
	})
}

// streams is how many streams are open.
func (g *sessions) streams() (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, who := range g.holders {
		n += len(who.streams)
	}
	return n
}

// TestASubscriptionOfAClientThatVanished is taken back from the upstream, and that of one that
// is there is not.
func TestASubscriptionOfAClientThatVanished(t *testing.T) {
	t.Parallel()
	unsubscribed := make(chan string, 10)
	library := mcp.NewServer(&mcp.Implementation{Name: "library", Version: "1"}, &mcp.ServerOptions{
		SubscribeHandler: func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(_ context.Context, r *mcp.UnsubscribeRequest) error {
			unsubscribed <- r.Params.URI
			return nil
		},
	})
	library.AddResource(&mcp.Resource{URI: "lib://a", Name: "a"}, nil)
	srv := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return library }, nil))
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	ups := upstream.New(&upstream.Options{Version: "1"})
	require.NoError(t, ups.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, ups.Stop(context.WithoutCancel(t.Context()))) })
	require.NoError(t, ups.Put(t.Context(), "test", upstream.Server{ID: "library", URL: srv.URL}))

	g := &Server{log: slog.New(slog.DiscardHandler)}
	g.subs = newSubscriptions(g)
	own := mcp.NewServer(&mcp.Implementation{Name: "comet", Version: "1"}, nil)
	g.servers = []*mcp.Server{own}
	subscribed := func(uri string) *mcp.ServerSession {
		ours, theirs := mcp.NewInMemoryTransports()
		s, err := own.Connect(t.Context(), ours, nil)
		require.NoError(t, err)
		c, err := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, nil).Connect(t.Context(), theirs, nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		require.NoError(t, ups.Subscribe(t.Context(), "library", uri))
		require.True(t, g.subs.reserve(s))
		require.True(t, g.subs.add(uri, s, func(ctx context.Context) { _ = ups.Unsubscribe(ctx, "library", uri) }))
		return s
	}
	library.AddResource(&mcp.Resource{URI: "lib://b", Name: "b"}, nil)
	gone := subscribed("lib://a")
	subscribed("lib://b")
	g.subs.sweep(t.Context())
	require.Len(t, g.subs.byURI, 2, "who is there stays")

	require.NoError(t, gone.Close())
	g.subs.sweep(t.Context())
	require.Equal(t, "lib://a", <-unsubscribed)
	require.Contains(t, g.subs.byURI, "lib://b")
	require.NotContains(t, g.subs.byURI, "lib://a")
	require.Empty(t, unsubscribed)
}

// TestAGuestWhoIsForgotten: what ends after everything else of its guest has ended hurts nobody.
func TestAGuestWhoIsForgotten(t *testing.T) {
	t.Parallel()
	g := newSessions(func(context.Context, []tokenHash) ([]tokenHash, error) { return nil, nil }, slog.New(slog.DiscardHandler))
	var who tokenHash
	ended := 0
	stream := g.addStream(who, func() { ended++ })
	other, err := g.reserve(who)
	require.NoError(t, err)
	g.endToken(who)
	require.Equal(t, 1, ended)
	other.release()
	require.Empty(t, g.holders)
	stream.release()
	stream.release()
	require.Empty(t, g.holders)
	require.Zero(t, g.used)
}
