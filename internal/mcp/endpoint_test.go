package mcp

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/auth"
	"comet/internal/orchestrator"
	"comet/internal/registry"
	"comet/internal/testkit"
	"comet/internal/tools"
	"comet/internal/toolsearch"
	"comet/internal/upstream"
	"comet/models"
	"comet/store/storetest"
)

// meta is the _meta of requests of the stateless version.
const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"raw","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`

const listTools = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`

// endpoint is a client of a handler whose tools have no upstream.
type endpoint struct{ *testkit.Client }

// serve starts a handler with options and returns a client with a token that may call tools.
func serve(t *testing.T, opts *HandlerOptions) endpoint {
	t.Helper()
	db := storetest.Open(t, "sqlite")
	work, tokens := testkit.NewWork(t, db, orchestrator.Options{}), auth.New(db.Store, nil)
	g := New(tools.New(tools.Dependencies{
		Store: db.Store, Registry: registry.New(db.Store, nil), Usage: work.Ledger, Orchestrator: work.Orchestrator,
		Upstreams: upstream.New(nil), Index: toolsearch.New(db.Store, nil),
	}, nil), nil)
	h, err := NewHandler(g, tokens, opts)
	require.NoError(t, err)
	require.NoError(t, h.Start(t.Context()))
	srv := httptest.NewServer(h)
	t.Cleanup(func() {
		h.Drain()
		srv.Close()
		require.NoError(t, h.Stop(context.WithoutCancel(t.Context())))
	})
	made, err := tokens.Create(t.Context(), models.System(), auth.TokenDraft{Name: new("client"), Scopes: []models.Scope{models.ScopeToolsCall}}, nil)
	require.NoError(t, err)
	return endpoint{testkit.NewClient(t, srv.URL, made.Secret)}
}

// send sends one body to the endpoint. Headers replace those that every client sends.
func (e endpoint) send(t *testing.T, method, body string, header ...string) testkit.Response {
	t.Helper()
	return e.Do(t, method, Path, body, append([]string{"Accept", "application/json, text/event-stream"}, header...)...)
}

// list sends tools/list in the stateless version.
func (e endpoint) list(t *testing.T, header ...string) testkit.Response {
	t.Helper()
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{%s}}`, meta)
	return e.send(t, http.MethodPost, body, append([]string{"Mcp-Protocol-Version", statelessVersion, "Mcp-Method", "tools/list"}, header...)...)
}

// requireRejected requires a rejection that is a JSON-RPC message.
func requireRejected(t *testing.T, r testkit.Response, status int, code string, words ...string) {
	t.Helper()
	var v struct {
		JSONRPC string
		Error   struct {
			Code    int
			Message string
			Data    struct {
				Code   string
				Status int
			}
		}
	}
	r.Decode(t, status, &v)
	require.Equal(t, "application/json", r.Header.Get("Content-Type"))
	require.Equal(t, "2.0", v.JSONRPC)
	require.Contains(t, r.String(), `"id":`)
	require.NotZero(t, v.Error.Code)
	require.NotEmpty(t, v.Error.Message)
	for _, word := range []string{"Go ", "unmarshal", "struct ", "json:", "struct field", "Params"} {
		require.NotContains(t, r.String(), word, "no types of the program")
	}
	require.Equal(t, code, v.Error.Data.Code)
	require.Equal(t, status, v.Error.Data.Status)
	for _, word := range words {
		require.Contains(t, v.Error.Message, word)
	}
}

func TestListenRequiresItsVersion(t *testing.T) {
	t.Parallel()
	h := serve(t, nil)
	began := h.send(t, http.MethodPost, initialize)
	require.Equal(t, http.StatusOK, began.Status, began.String())
	session := []string{"Mcp-Session-Id", began.Header.Get("Mcp-Session-Id"), "Mcp-Protocol-Version", "2025-11-25"}
	require.NotEmpty(t, session[1])
	require.Equal(t, http.StatusAccepted, h.send(t, http.MethodPost, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, session...).Status)
	const listening = `{"jsonrpc":"2.0","id":9,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true}}}`
	for _, body := range []string{listening, "[" + listening + "]"} {
		r := h.send(t, http.MethodPost, body, append(session, "Mcp-Protocol-Version", "2025-03-26")...)
		require.Contains(t, r.String(), "-32601", "%d", r.Status)
	}
}

// TestBatchLimit checks the maximum number of messages in a batch: a batch counts as one request,
// but each of its messages may get a response.
func TestBatchLimit(t *testing.T) {
	t.Parallel()
	h := serve(t, nil)
	batch := func(n int) string {
		return h.send(t, http.MethodPost, "["+strings.TrimSuffix(strings.Repeat("1,", n), ",")+"]", "Mcp-Protocol-Version", "2025-03-26").String()
	}
	require.Equal(t, 100, strings.Count(batch(100), "-32600"))
	over := batch(101)
	require.Equal(t, 1, strings.Count(over, "-32600"), over)
	require.Contains(t, over, "a batch may have at most 100 messages")
	require.Less(t, len(batch(1_000_000)), 1000)
}

// TestHostCheck checks DNS rebinding: a request with the host name of another machine gets no
// information, with or without a token, and no response repeats the name.
func TestHostCheck(t *testing.T) {
	t.Parallel()
	h := serve(t, nil)
	for _, c := range [][]string{{http.MethodPost, Path}, {http.MethodGet, metadataPath + Path}} {
		for _, token := range []string{"", "Bearer wrong", "Bearer " + h.Token} {
			r := h.Do(t, c[0], c[1], listTools, "Host", "evil.example.com", "Authorization", token)
			requireRejected(t, r, http.StatusForbidden, "INVALID_HEADER", "mcp.hosts")
			require.NotContains(t, r.Header.Get("WWW-Authenticate"), "evil")
		}
	}
	r := h.Do(t, http.MethodOptions, metadataPath+Path, "", "Authorization", "", "Origin", "https://app.example.com")
	require.Equal(t, http.StatusNoContent, r.Status)
	require.Equal(t, "*", r.Header.Get("Access-Control-Allow-Headers"))
}

// TestHosts checks that a server with Hosts accepts requests with these names, even from a proxy on
// the same machine, and rejects all other names.
func TestHosts(t *testing.T) {
	t.Parallel()
	h := serve(t, &HandlerOptions{Hosts: []string{"comet.example.com"}, PublicURL: "https://comet.example.com"})
	require.Equal(t, http.StatusOK, h.list(t, "Host", "comet.example.com").Status)
	requireRejected(t, h.list(t, "Host", "evil.example.com"), http.StatusForbidden, "INVALID_HEADER", "mcp.hosts")
	require.Equal(t, http.StatusForbidden, h.list(t).Status, "127.0.0.1 is not in Hosts")
	r := h.list(t, "Host", "comet.example.com", "Authorization", "")
	require.Equal(t, http.StatusUnauthorized, r.Status)
	require.Contains(t, r.Header.Get("WWW-Authenticate"), `resource_metadata="https://comet.example.com/.well-known/oauth-protected-resource/mcp"`)
}

// TestOrigins checks CORS: a page whose origin is in Origins may call the endpoint and read the
// response, other pages may not.
func TestOrigins(t *testing.T) {
	t.Parallel()
	const page, evil = "https://app.example.com", "https://evil.example.com"
	h := serve(t, &HandlerOptions{Origins: []string{page}})
	ask := func(origin string) testkit.Response {
		return h.send(t, http.MethodOptions, "", "Authorization", "", "Origin", origin,
			"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization,content-type,mcp-protocol-version")
	}
	r := ask(page)
	require.Equal(t, http.StatusOK, r.Status, r.String())
	require.Equal(t, page, r.Header.Get("Access-Control-Allow-Origin"))
	require.Contains(t, strings.ToLower(r.Header.Get("Access-Control-Allow-Headers")), "authorization")
	require.Empty(t, ask(evil).Header.Get("Access-Control-Allow-Origin"))

	r = h.list(t, "Origin", page, "Sec-Fetch-Site", "cross-site")
	require.Equal(t, http.StatusOK, r.Status, r.String())
	require.Equal(t, page, r.Header.Get("Access-Control-Allow-Origin"))
	require.Contains(t, r.Header.Get("Access-Control-Expose-Headers"), "Mcp-Session-Id")
	r = h.list(t, "Origin", page, "Authorization", "Bearer wrong")
	require.Equal(t, http.StatusUnauthorized, r.Status)
	require.Equal(t, page, r.Header.Get("Access-Control-Allow-Origin"), "also where it is rejected")
	r = h.list(t, "Origin", evil, "Sec-Fetch-Site", "cross-site")
	requireRejected(t, r, http.StatusForbidden, "", "mcp.origins")
	require.Empty(t, r.Header.Get("Access-Control-Allow-Origin"))
}
