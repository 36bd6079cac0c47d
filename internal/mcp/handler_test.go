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
	"os"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/auth"
	"comet/internal/background"
	"comet/internal/errs"
	"comet/models"
	"comet/store/storetest"
)

// soon limits the wait for an event.
const soon = time.Minute

// fixture is a handler with a server that has one tool.
type fixture struct {
	handler *Handler
	url     string
	db      *storetest.DB
	auth    *auth.Auth
}

func setup(t *testing.T, change func(*Handler)) *fixture {
	t.Helper()
	db := storetest.Open(t, "sqlite")
	h := &fixture{db: db, auth: auth.New(db.Store, nil)}
	g := &Server{log: slog.New(slog.DiscardHandler), opts: Options{Clock: time.Now}}
	g.mcp = mcp.NewServer(&mcp.Implementation{Name: "fixture", Version: "1"}, &mcp.ServerOptions{
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	g.mcp.AddReceivingMiddleware(g.countFailures, addSession)
	g.mcp.AddTool(&mcp.Tool{Name: "ping", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "pong"}}}, nil
	})
	var err error
	h.handler, err = NewHandler(g, h.auth, nil)
	require.NoError(t, err)
	if change != nil {
		change(h.handler)
	}
	require.NoError(t, h.handler.Start(t.Context()))
	srv := httptest.NewServer(h.handler)
	h.url = srv.URL
	t.Cleanup(func() {
		h.handler.Drain()
		srv.Close()
		require.NoError(t, h.handler.Stop(context.WithoutCancel(t.Context())))
	})
	return h
}

// token creates a token that may call tools.
func (h *fixture) token(t *testing.T) string {
	t.Helper()
	made, err := h.auth.Create(t.Context(), models.System(), auth.TokenDraft{Name: new("client"), Scopes: []models.Scope{models.ScopeToolsCall}}, nil)
	require.NoError(t, err)
	return made.Secret
}

// httpClient has connections of its own: parallel tests close those of http.DefaultTransport, also while a response without
// a body is on its way to the caller.
var httpClient = &http.Client{Transport: &http.Transport{}}

// post sends a request and returns its response.
func (h *fixture) post(t *testing.T, token, body string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.url+Path, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/*, text/*") // the SDK serves the tool of the fixture
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := httpClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(text)
}

const initialize = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`

// begin starts a session and returns its id.
func (h *fixture) begin(t *testing.T, token string) string {
	t.Helper()
	resp, body := h.post(t, token, initialize)
	require.Equal(t, http.StatusOK, resp.StatusCode, body)
	id := resp.Header.Get("Mcp-Session-Id")
	require.NotEmpty(t, id)
	return id
}

func TestHandler(t *testing.T) {
	t.Parallel()

	t.Run("responds 503 when tokens cannot be verified", func(t *testing.T) {
		t.Parallel()
		h := setup(t, nil)
		token := h.token(t)
		require.NoError(t, h.db.Close())
		resp, body := h.post(t, token, initialize)
		require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
		require.Equal(t, "application/json", resp.Header.Get("Content-Type"))
		require.NotEmpty(t, resp.Header.Get("Retry-After"))
		require.Contains(t, body, `"code":"UNAVAILABLE"`)
	})

	t.Run("limits sessions until one ends", func(t *testing.T) {
		t.Parallel()
		h := setup(t, func(d *Handler) { d.limit = background.NewLimiter[tokenHash](3, 2) })
		one, two := h.token(t), h.token(t)
		first := h.begin(t, one)
		h.begin(t, one)
		resp, body := h.post(t, one, initialize)
		require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
		require.Contains(t, body, `"code":"LIMIT_REACHED"`)
		require.Contains(t, body, `"id":0`)
		h.begin(t, two)
		resp, body = h.post(t, two, initialize)
		require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
		require.Contains(t, body, `"code":"BUSY"`)

		for s := range h.handler.server.mcp.Sessions() { // as an idle one
			if s.ID() == first {
				require.NoError(t, s.Close())
			}
		}
		require.Eventually(t, func() bool {
			resp, _ := h.post(t, two, initialize)
			return resp.StatusCode == http.StatusOK
		}, soon, time.Millisecond)
	})

	t.Run("reports the codes of failed requests", func(t *testing.T) {
		t.Parallel()
		var codes []string
		h := setup(t, func(d *Handler) {
			d.server.opts.OnFailure = func(code string) { codes = append(codes, code) }
		})
		token := h.token(t)
		session := h.begin(t, token)
		for _, c := range []struct{ token, body, code string }{
			{"wrong", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "-32000"},
			{token, `{`, "-32700"},
			{token, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":5}}`, "-32602"},
			{token, `{"jsonrpc":"2.0","id":1,"method":"none"}`, "-32601"},
			{token, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"none"}}`, "-32602"}, // by the SDK
			{token, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ping"}}`, ""},
		} {
			codes = nil
			h.post(t, c.token, c.body, "Mcp-Session-Id", session)
			require.Equal(t, c.code, strings.Join(codes, " "), c.body)
		}
		require.Equal(t, "other", failureCode(&jsonrpc.Error{Code: -1}), "upstreams cannot add codes")
	})

	t.Run("does not count requests that start no session", func(t *testing.T) {
		t.Parallel()
		h := setup(t, func(d *Handler) { d.limit = background.NewLimiter[tokenHash](1, 1) })
		token := h.token(t)
		for range 5 {
			h.post(t, token, `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		}
		h.begin(t, token)
	})

	t.Run("disconnects a client that does not read and serves others meanwhile", func(t *testing.T) {
		t.Parallel()
		h := setup(t, func(d *Handler) { d.writeTimeout = 2 * time.Second })
		token := h.token(t)
		stalled, reading := h.begin(t, token), h.begin(t, token)
		uri := "file:///" + strings.Repeat("x", 1<<20)
		resp, body := h.post(t, token, `{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"`+uri+`"}}`, "Mcp-Session-Id", stalled)
		require.Equal(t, http.StatusOK, resp.StatusCode, body)
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(h.url, "http://"))
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		_, err = io.WriteString(conn, "GET /mcp HTTP/1.1\r\nHost: "+strings.TrimPrefix(h.url, "http://")+"\r\nAuthorization: Bearer "+token+
			"\r\nAccept: text/event-stream\r\nMcp-Session-Id: "+stalled+"\r\n\r\n")
		require.NoError(t, err)
		status, err := bufio.NewReaderSize(conn, 16).ReadString('\n')
		require.NoError(t, err)
		require.Contains(t, status, "200")
		require.Equal(t, 1, h.handler.streams())

		flooded := make(chan struct{})
		go func() {
			defer close(flooded)
			for h.handler.streams() > 0 { // until it is disconnected
				_ = h.handler.server.mcp.ResourceUpdated(context.Background(), &mcp.ResourceUpdatedNotificationParams{URI: uri})
			}
		}()
		for ended := false; !ended; {
			resp, body := h.post(t, token, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"ping"}}`, "Mcp-Session-Id", reading)
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

// streams returns the number of open streams.
func (t *sessionTable) streams() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.open) - len(t.sessions)
}

// failingBody is a body that cannot be read.
type failingBody struct{ err error }

func (b failingBody) Read([]byte) (int, error) { return 0, b.err }

func (failingBody) Close() error { return nil }

func TestBodiesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	for name, want := range map[string]struct {
		err    error
		status int
		code   string
	}{
		"arrives too slowly": {os.ErrDeadlineExceeded, http.StatusRequestTimeout, "TIMEOUT"},
		"does not fit":       {errs.New(errs.Unavailable, "the server processes too many long requests"), http.StatusServiceUnavailable, "UNAVAILABLE"},
		"ends early":         {io.ErrUnexpectedEOF, http.StatusBadRequest, "INVALID_REQUEST"},
		"is cancelled":       {context.Canceled, http.StatusBadRequest, "INVALID_REQUEST"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := httptest.NewRecorder()
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			h.handler.validateMessages(nil).ServeHTTP(out, httptest.NewRequestWithContext(ended, http.MethodPost, Path, failingBody{want.err}))
			require.Equal(t, want.status, out.Code)
			require.Contains(t, out.Body.String(), `"code":"`+want.code+`"`)
			require.NotContains(t, out.Body.String(), "internal error")
			require.Equal(t, want.status == http.StatusServiceUnavailable, out.Header().Get("Retry-After") != "")
		})
	}
}
