package app_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/config"
	"comet/internal/testkit/mcptest"
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
	h := openHub(t, "sqlite", func(cfg *config.Config) { cfg.MCP.MaxBodyBytes = 4096 }, mcptest.New(t, "paper").Echo())
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

// sleeper returns a token of a deactivated agent.
func sleeper(t *testing.T, h *hub) string {
	t.Helper()
	id := "sleeper-" + uuid.NewString()
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
