package app_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/config"
)

// refused has the parts of a rejection at /mcp that a client can read.
type refused struct {
	JSONRPC string `json:"jsonrpc"`
	ID      json.RawMessage
	Error   struct {
		Code    int
		Message string
		Data    struct {
			Code   string
			Status int
		}
	}
}

// requireRefused requires a rejection that is a JSON-RPC message, and returns it.
func requireRefused(t *testing.T, w wire, status int, code string, words ...string) (r refused) {
	t.Helper()
	require.Equal(t, status, w.status, w.body)
	require.Equal(t, "application/json", w.header.Get("Content-Type"), w.body)
	require.NoError(t, json.Unmarshal([]byte(w.body), &r), w.body)
	require.Equal(t, "2.0", r.JSONRPC)
	require.Contains(t, w.body, `"id":`)
	require.NotZero(t, r.Error.Code, w.body)
	require.NotEmpty(t, r.Error.Message, w.body)
	requireNoGo(t, w.body)
	require.Equal(t, code, r.Error.Data.Code, w.body)
	require.Equal(t, status, r.Error.Data.Status, w.body)
	for _, word := range words {
		require.Contains(t, r.Error.Message, word)
	}
	return r
}

// requireNoGo requires that a response does not mention Go types or functions of the program.
func requireNoGo(t *testing.T, said string) {
	t.Helper()
	for _, word := range []string{"Go ", "unmarshal", "struct ", "json:", "struct field", "Params"} {
		require.NotContains(t, said, word)
	}
}

// TestMCPRefusals checks that errors at /mcp are JSON-RPC errors, with the status and the headers
// that clients depend on.
func TestMCPRefusals(t *testing.T) {
	t.Parallel()
	h := openHub(t, "sqlite", func(cfg *config.Config) { cfg.MCP.MaxBodyBytes = 4096 }, newFake(t, "paper").echo())
	long := `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"x":"` + strings.Repeat("x", 4096) + `"}}}`

	for revision, inRevision := range map[string]func(t *testing.T, who *client) []string{
		newest: func(*testing.T, *client) []string {
			return []string{"Mcp-Protocol-Version", newest, "Mcp-Method", "tools/list"}
		},
		sessions: func(t *testing.T, who *client) []string { t.Helper(); return who.initialize(t) },
	} {
		body, id := listTools, "1"
		if revision == newest {
			body, _ = modern("tools/list", "", "")
		}
		for name, c := range map[string]struct {
			method, body string
			header       []string
			status       int
			code, id     string
			words        string
			also         map[string]string
		}{
			"WithoutAToken":              {header: []string{"Authorization", ""}, status: 401, code: "UNAUTHENTICATED", words: "Authorization: Bearer", also: map[string]string{"WWW-Authenticate": "resource_metadata="}},
			"WithATokenThatIsNone":       {header: []string{"Authorization", "Bearer unknown"}, status: 401, code: "UNAUTHENTICATED", words: "unknown, expired or revoked", also: map[string]string{"WWW-Authenticate": "resource_metadata="}},
			"WithAPassword":              {header: []string{"Authorization", "Basic bWU6bWU="}, status: 401, code: "UNAUTHENTICATED", also: map[string]string{"WWW-Authenticate": "resource_metadata="}},
			"APreflight":                 {method: http.MethodOptions, header: []string{"Authorization", "", "Origin", "https://evil.example.com", "Access-Control-Request-Method", "POST"}, status: 401, code: "UNAUTHENTICATED"},
			"FromAPageOfAnotherOrigin":   {header: []string{"Origin", "https://evil.example.com"}, status: 403, words: "mcp.origins"},
			"UnderANameOfAnotherMachine": {header: []string{"Host", "evil.example.com"}, status: 403, code: "INVALID_HEADER", words: "evil.example.com"},
			"WithAMethodThatThereIsNot":  {method: http.MethodPut, status: 405, code: "METHOD_NOT_ALLOWED", words: "POST", also: map[string]string{"Allow": "POST"}},
			"WithMoreBytesThanItMay":     {body: long, status: 413, code: "BODY_TOO_LARGE", words: "4096"},
			"WithABodyOfAnotherType":     {header: []string{"Content-Type", "text/plain"}, status: 415, code: "UNSUPPORTED_MEDIA_TYPE", id: id, words: "application/json"},
			"ThatAcceptsNoStream":        {header: []string{"Accept", "application/json"}, status: 400, code: "NOT_ACCEPTABLE", id: id, words: "text/event-stream"},
			"InARevisionThatThereIsNot":  {header: []string{"Mcp-Protocol-Version", "2001-01-01"}, status: 400, code: "INVALID_HEADER", id: id, words: sessions},
			"ThatWantsAStreamRepeated":   {header: []string{"Last-Event-ID", "1_1"}, status: 400, code: "INVALID_HEADER", id: id, words: "Last-Event-ID"},
			"FromATokenThatMayNotDoThis": {header: []string{"Authorization", "Bearer " + h.holder(t, "", "agents:read").Token}, status: 403, code: "MISSING_SCOPE", words: "tools:call", also: map[string]string{"WWW-Authenticate": `scope="tools:call"`}},
			"WithATokenOfASleepingAgent": {header: []string{"Authorization", "Bearer " + sleeper(t, h)}, status: 401, code: "AGENT_INACTIVE", words: "inactive"},
		} {
			t.Run(name+"In"+revision, func(t *testing.T) {
				t.Parallel()
				who := h.holder(t, "").client
				send, method := body, http.MethodPost
				if c.body != "" {
					send = c.body
				}
				if c.method != "" {
					send, method = "", c.method
				}
				w := who.raw(t, method, "/mcp", send, append(inRevision(t, who), c.header...)...)
				r := requireRefused(t, w, c.status, c.code, c.words)
				want := c.id
				if want == "" {
					want = "null"
				}
				require.Equal(t, want, string(r.ID))
				for header, part := range c.also {
					require.Contains(t, w.header.Get(header), part)
				}
			})
		}
	}

	t.Run("WithoutItsSession", func(t *testing.T) {
		t.Parallel()
		other := []string{"Mcp-Session-Id", "unknown", "Mcp-Protocol-Version", sessions}
		for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
			r := requireRefused(t, h.raw(t, method, "/mcp", listTools, other...), http.StatusNotFound, "NOT_FOUND", "initialize")
			require.Equal(t, "null", string(r.ID), "of the session, not of the request: the client starts a new session")
			require.Equal(t, -32001, r.Error.Code)
		}
		for _, method := range []string{http.MethodGet, http.MethodDelete} {
			requireRefused(t, h.raw(t, method, "/mcp", "", "Mcp-Protocol-Version", sessions), http.StatusBadRequest, "INVALID_HEADER", "Mcp-Session-Id")
		}
		requireRefused(t, h.raw(t, http.MethodGet, "/mcp", "", "Mcp-Protocol-Version", sessions, "Accept", "text/html"), http.StatusBadRequest, "NOT_ACCEPTABLE")
		requireRefused(t, h.raw(t, http.MethodGet, "/mcp", "", "Mcp-Protocol-Version", newest), http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED", "POST")
	})

	t.Run("NeitherARequestNorAResponse", func(t *testing.T) {
		t.Parallel()
		requireRefused(t, h.say(t, `{"jsonrpc":"2.0","id":1}`, h.initialize(t)...), http.StatusBadRequest, "INVALID_REQUEST", "neither a method nor a result")
	})

	t.Run("AClientWithAnUnknownSessionGets404", func(t *testing.T) {
		t.Parallel()
		who := h.holder(t, "")
		s := who.speak(t, sessions, nil)
		require.Equal(t, http.StatusNoContent, who.raw(t, http.MethodDelete, "/mcp", "", "Mcp-Session-Id", s.ID()).status)
		_, err := s.ListTools(t.Context(), nil)
		require.ErrorIs(t, err, mcp.ErrSessionMissing)
	})

	t.Run("InTheSessionOfAnotherToken", func(t *testing.T) {
		t.Parallel()
		owner, thief := h.holder(t, ""), h.holder(t, "")
		header := owner.initialize(t)
		for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
			requireRefused(t, thief.raw(t, method, "/mcp", listTools, header...), http.StatusForbidden, "FOREIGN_AGENT", "belongs to another token")
		}
		require.Equal(t, http.StatusOK, owner.say(t, listTools, header...).status, "it is as it was")
	})

	t.Run("WithASecondStreamOfASession", func(t *testing.T) {
		t.Parallel()
		who := h.holder(t, "")
		header := who.initialize(t)
		who.stream(t, http.MethodGet, "", header...)
		requireRefused(t, who.raw(t, http.MethodGet, "/mcp", "", header...), http.StatusConflict, "CONFLICT")
	})
}

// TestMCPListenRequiresItsVersion checks that subscriptions/listen is rejected in a session: only
// the newest revision defines how it ends, and a client of a session may disconnect silently.
func TestMCPListenRequiresItsVersion(t *testing.T) {
	t.Parallel()
	h := openHub(t, "sqlite", nil)
	header := h.initialize(t)
	const listening = `{"jsonrpc":"2.0","id":9,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true}}}`
	for _, body := range []string{listening, "[" + listening + "]"} {
		w := h.say(t, body, append(header, "Mcp-Protocol-Version", "2025-03-26")...)
		require.Contains(t, w.body, "-32601", "%d", w.status)
	}
}

// TestMCPBatchLimit checks the maximum number of messages in a batch: a batch counts as one
// request, but each of its messages may get a response.
func TestMCPBatchLimit(t *testing.T) {
	t.Parallel()
	h := openHub(t, "sqlite", nil)
	batch := func(n int) wire {
		return h.say(t, "["+strings.TrimSuffix(strings.Repeat("1,", n), ",")+"]", "Mcp-Protocol-Version", "2025-03-26")
	}
	require.Equal(t, 100, strings.Count(batch(100).body, "-32600"))
	w := batch(101)
	require.Equal(t, 1, strings.Count(w.body, "-32600"), w.body)
	require.Contains(t, w.body, "a batch may have at most 100 messages")
	require.Less(t, len(batch(1_000_000).body), 1000)
}

// TestMCPHostCheck checks DNS rebinding: a request with the host name of another machine gets no
// information, with or without a token, and no response repeats the name.
func TestMCPHostCheck(t *testing.T) {
	t.Parallel()
	h := openHub(t, "sqlite", nil)
	for _, c := range [][]string{{http.MethodPost, "/mcp"}, {http.MethodGet, "/.well-known/oauth-protected-resource/mcp"}} {
		for _, token := range []string{"", "Bearer wrong", "Bearer " + h.Token} {
			w := h.raw(t, c[0], c[1], listTools, "Host", "evil.example.com", "Authorization", token)
			requireRefused(t, w, http.StatusForbidden, "INVALID_HEADER", "mcp.hosts")
			require.NotContains(t, w.header.Get("WWW-Authenticate"), "evil")
		}
	}
	w := h.raw(t, http.MethodOptions, "/.well-known/oauth-protected-resource/mcp", "", "Authorization", "", "Origin", "https://app.example.com")
	require.Equal(t, http.StatusNoContent, w.status)
	require.Equal(t, "*", w.header.Get("Access-Control-Allow-Headers"))
}

// sleeper returns a token of a deactivated agent.
func sleeper(t *testing.T, h *hub) string {
	t.Helper()
	id := "sleeper-" + strconv.Itoa(len(h.tree(t)))
	h.agent(t, id, 1000)
	token := h.holder(t, id).Token
	h.must(t, http.StatusNoContent, http.MethodDelete, "/api/v1/agents/"+id, nil)
	return token
}

// stream opens a stream at /mcp and returns it after its first line has arrived. It is closed at
// the end of the test.
func (c *client) stream(t *testing.T, method, body string, header ...string) *bufio.Reader {
	t.Helper()
	resp, err := c.Open(t.Context(), method, "/mcp", body, acceptStreams(header)...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	require.Equal(t, http.StatusOK, resp.StatusCode)
	lines := bufio.NewReader(resp.Body)
	_, err = lines.ReadString('\n')
	require.NoError(t, err)
	return lines
}

// TestMCPRateLimit checks the headers of the rate limit that clients depend on.
func TestMCPRateLimit(t *testing.T) {
	t.Parallel()
	h := openHub(t, "sqlite", func(cfg *config.Config) { cfg.HTTP.RateLimit.Requests = 100 })
	who := h.holder(t, "")
	var w wire
	for range 101 {
		if w = who.modern(t, "tools/list", "", ""); w.status != http.StatusOK {
			break
		}
	}
	requireRefused(t, w, http.StatusTooManyRequests, "RATE_LIMITED", "try again")
	seconds, err := strconv.Atoi(w.header.Get("Retry-After"))
	require.NoError(t, err)
	require.Positive(t, seconds)
	require.NotEmpty(t, w.header.Get("RateLimit-Limit"))
}

// TestMCPBehindAProxy checks that a server with mcp.hosts accepts requests with these names, even
// from a proxy on the same machine, and rejects all other names.
func TestMCPBehindAProxy(t *testing.T) {
	t.Parallel()
	h := openHub(t, "sqlite", func(cfg *config.Config) { cfg.MCP.Hosts = []string{"comet.example.com"} })
	require.Equal(t, http.StatusOK, h.modern(t, "tools/list", "", "", "Host", "comet.example.com").status)
	requireRefused(t, h.modern(t, "tools/list", "", "", "Host", "evil.example.com"), http.StatusForbidden, "INVALID_HEADER", "mcp.hosts")
}

// TestMCPWebPageOrigins checks CORS: a page whose origin is in mcp.origins may call /mcp and read
// the response, other pages may not.
func TestMCPWebPageOrigins(t *testing.T) {
	t.Parallel()
	const page, evil = "https://app.example.com", "https://evil.example.com"
	h := openHub(t, "sqlite", func(cfg *config.Config) { cfg.MCP.Origins = []string{page} })
	ask := func(origin string) wire {
		return h.raw(t, http.MethodOptions, "/mcp", "", "Authorization", "", "Origin", origin,
			"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization,content-type,mcp-protocol-version")
	}
	w := ask(page)
	require.Equal(t, http.StatusOK, w.status, w.body)
	require.Equal(t, page, w.header.Get("Access-Control-Allow-Origin"))
	require.Contains(t, strings.ToLower(w.header.Get("Access-Control-Allow-Headers")), "authorization")
	require.Empty(t, ask(evil).header.Get("Access-Control-Allow-Origin"))

	w = h.modern(t, "tools/list", "", "", "Origin", page, "Sec-Fetch-Site", "cross-site")
	require.Equal(t, http.StatusOK, w.status, w.body)
	require.Equal(t, page, w.header.Get("Access-Control-Allow-Origin"))
	require.Contains(t, w.header.Get("Access-Control-Expose-Headers"), "Mcp-Session-Id")
	w = h.modern(t, "tools/list", "", "", "Origin", page, "Authorization", "Bearer wrong")
	require.Equal(t, http.StatusUnauthorized, w.status)
	require.Equal(t, page, w.header.Get("Access-Control-Allow-Origin"), "also where it is refused")
	w = h.modern(t, "tools/list", "", "", "Origin", evil, "Sec-Fetch-Site", "cross-site")
	requireRefused(t, w, http.StatusForbidden, "", "mcp.origins")
	require.Empty(t, w.header.Get("Access-Control-Allow-Origin"))
}
