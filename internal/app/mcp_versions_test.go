package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/config"
	"comet/internal/testkit/mcptest"
)

// meta is the _meta member of every request of the newest revision.
const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"raw","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`

// modern returns a request of the newest revision with the required headers.
func modern(method, name, params string) (body string, header []string) {
	if params != "" {
		params += ","
	}
	header = []string{"Mcp-Protocol-Version", newest, "Mcp-Method", method}
	if name != "" {
		header = append(header, "Mcp-Name", name)
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{%s%s}}`, method, params, meta), header
}

func (c *client) modern(t *testing.T, method, name, params string, header ...string) wire {
	t.Helper()
	body, own := modern(method, name, params)
	return c.say(t, body, append(own, header...)...)
}

// initialize begins a session and returns the headers of its requests.
func (c *client) initialize(t *testing.T) []string {
	t.Helper()
	w := c.say(t, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`)
	require.Equal(t, http.StatusOK, w.status, w.body)
	require.Equal(t, sessions, w.result(t)["protocolVersion"])
	header := []string{"Mcp-Session-Id", w.header.Get("Mcp-Session-Id"), "Mcp-Protocol-Version", sessions}
	require.NotEmpty(t, header[1])
	require.Equal(t, http.StatusAccepted, c.say(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, header...).status)
	return header
}

const listTools = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`

func TestMCPVersions(t *testing.T) {
	t.Parallel()
	h := openHub(t, "sqlite", nil, mcptest.New(t, "paper").Echo())
	own := []string{"agentcards__search_tools", "agentcards__execute_code", "agentcards__execute_dag", "agentcards__continue", "agentcards__abort", "agentcards__replan", "agentcards__approval_response", "comet__submit_task"}

	for _, revision := range []string{newest, sessions, "2025-06-18", "2025-03-26", "2024-11-05"} {
		t.Run("AClientListsAndCallsIn"+revision, func(t *testing.T) {
			t.Parallel()
			s := h.holder(t, "").speak(t, revision, nil)
			list, err := s.ListTools(t.Context(), nil)
			require.NoError(t, err)
			var names []string
			for _, tool := range list.Tools {
				names = append(names, tool.Name)
			}
			require.Equal(t, own, names)
			mcptest.RequireSays(t, `{"a":1}`, called(t, s, "paper__echo", map[string]any{"a": 1}))
			requireFailed(t, "TOOL_NOT_FOUND", called(t, s, "paper__nothing", nil))
			require.Contains(t, s.InitializeResult().Instructions, "agentcards:search_tools")
		})
	}

	t.Run("TheNewestRevisionDescribesTheServerWithoutASession", func(t *testing.T) {
		t.Parallel()
		w := h.modern(t, "server/discover", "", "")
		require.Equal(t, http.StatusOK, w.status, w.body)
		res := w.result(t)
		require.Contains(t, res["supportedVersions"], newest)
		require.Contains(t, res["capabilities"], "tools")
		require.Empty(t, w.header.Get("Mcp-Session-Id"))
	})

	t.Run("AListOfTheNewestRevisionHasCacheHints", func(t *testing.T) {
		t.Parallel()
		res := h.modern(t, "tools/list", "", "").result(t)
		require.Equal(t, "private", res["cacheScope"])
		require.EqualValues(t, 5000, res["ttlMs"])
		require.Equal(t, "complete", res["resultType"])
	})

	for name, header := range map[string][]string{
		"AnotherMethodInTheHeader": {"Mcp-Method", "tools/list"},
		"NoMethodInTheHeader":      {"Mcp-Method", ""},
		"AnotherNameInTheHeader":   {"Mcp-Name", "paper__other"},
		"NoNameInTheHeader":        {"Mcp-Name", ""},
	} {
		t.Run(name+"IsAHeaderMismatch", func(t *testing.T) {
			t.Parallel()
			w := h.modern(t, "tools/call", "paper__echo", `"name":"paper__echo","arguments":{"mismatch":true}`, header...)
			require.Equal(t, http.StatusBadRequest, w.status)
			code, _ := w.rpcError(t)
			require.Equal(t, -32020, code)
		})
	}

	t.Run("AnUnknownMethodIsAProtocolError", func(t *testing.T) {
		t.Parallel()
		header := h.initialize(t)
		w := h.say(t, `{"jsonrpc":"2.0","id":1,"method":"no/such/thing"}`, header...)
		require.Equal(t, http.StatusOK, w.status)
		code, message := w.rpcError(t)
		require.Equal(t, -32601, code)
		require.Contains(t, message, "no/such/thing")
		require.Equal(t, http.StatusAccepted, h.say(t, `{"jsonrpc":"2.0","method":"notifications/unknown/method"}`, header...).status)
		code, message = h.say(t, listTools).rpcError(t)
		require.Equal(t, -32600, code)
		require.Contains(t, message, "initialize")
	})

	t.Run("ATaskContinuesTheTraceOfItsCall", func(t *testing.T) {
		t.Parallel()
		const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
		for _, header := range [][]string{{"Traceparent", "00-" + trace + "-00f067aa0ba902b7-01"}, nil} {
			params := `"name":"comet__submit_task","arguments":{"capabilities":["custom:paper:echo"],"wait_seconds":0}`
			body, own := modern("tools/call", "comet__submit_task", params)
			if header == nil { // as where there are no headers
				body = strings.Replace(body, `"_meta":{`, `"_meta":{"traceparent":"00-`+trace+`-00f067aa0ba902b7-01",`, 1)
			}
			res := h.say(t, body, append(own, header...)...).result(t)
			task, ok := res["structuredContent"].(map[string]any)["task_id"].(string)
			require.True(t, ok, res)
			require.Contains(t, get[struct{ Request struct{ Traceparent string } }](t, h.client, "/api/v1/tasks/"+task).Request.Traceparent, trace)
		}
	})

	t.Run("SubscribersAreNotifiedOfChangedLists", func(t *testing.T) {
		t.Parallel()
		for _, revision := range []string{newest, sessions} {
			t.Run(revision, func(t *testing.T) {
				t.Parallel()
				growing := mcptest.New(t, "growing-"+strings.ReplaceAll(revision, "-", "")).Echo()
				h := openHub(t, "sqlite", nil, growing)
				changed := make(chan struct{}, 100)
				h.speak(t, revision, &mcp.ClientOptions{ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
					changed <- struct{}{}
				}})
				growing.Says("later", "later", mcptest.Reads())
				eventually(t, func() bool { return len(h.tools(t, growing.ID)) == 2 }, "the new tool comes")
				eventually(t, func() bool { return len(changed) > 0 }, "the client is notified")
			})
		}
	})
}

func TestMCPEndpoint(t *testing.T) {
	t.Parallel()
	h := openHub(t, "sqlite", func(cfg *config.Config) {
		cfg.MCP.Origins, cfg.MCP.MaxBodyBytes = []string{"https://app.example.com"}, 4096
	}, mcptest.New(t, "paper").Echo())

	t.Run("WithoutATokenTheResponseRefersToTheMetadata", func(t *testing.T) {
		t.Parallel()
		for _, token := range []string{"", "Bearer unknown"} {
			w := h.say(t, listTools, "Authorization", token)
			require.Equal(t, http.StatusUnauthorized, w.status)
			at := h.URL + "/.well-known/oauth-protected-resource/mcp"
			require.Contains(t, w.header.Get("WWW-Authenticate"), `resource_metadata="`+at+`"`)
		}
		for _, path := range []string{"/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource"} {
			w := h.raw(t, http.MethodGet, path, "", "Authorization", "")
			require.Equal(t, http.StatusOK, w.status)
			var m struct {
				Resource string
				Scopes   []string `json:"scopes_supported"`
			}
			require.NoError(t, json.Unmarshal([]byte(w.body), &m))
			require.Equal(t, h.URL+"/mcp", m.Resource)
			require.Equal(t, []string{"tools:call"}, m.Scopes)
		}
	})

	t.Run("ATokenWithoutTheScopeIsRefused", func(t *testing.T) {
		t.Parallel()
		w := h.holder(t, "", "agents:read").modern(t, "tools/list", "", "")
		require.Equal(t, http.StatusForbidden, w.status, w.body)
		require.Contains(t, w.header.Get("WWW-Authenticate"), `scope="tools:call"`)
	})

	t.Run("ASessionBelongsToItsToken", func(t *testing.T) {
		t.Parallel()
		header := h.holder(t, "").initialize(t)
		w := h.holder(t, "").say(t, listTools, header...)
		require.Equal(t, http.StatusForbidden, w.status, w.body)
	})

	t.Run("AnEndedSessionIsUnknown", func(t *testing.T) {
		t.Parallel()
		w := h.say(t, listTools, "Mcp-Session-Id", "unknown", "Mcp-Protocol-Version", sessions)
		require.Equal(t, http.StatusNotFound, w.status, w.body)
		who := h.holder(t, "")
		header := who.initialize(t)
		require.Equal(t, http.StatusOK, who.say(t, listTools, header...).status)
		require.Equal(t, http.StatusNoContent, who.raw(t, http.MethodDelete, "/mcp", "", header...).status)
		require.Equal(t, http.StatusNotFound, who.say(t, listTools, header...).status)
	})

	t.Run("APageOfAnotherOriginIsRefusedUnlessItIsNamed", func(t *testing.T) {
		t.Parallel()
		evil := []string{"Origin", "https://evil.example.com"}
		require.Equal(t, http.StatusForbidden, h.modern(t, "tools/list", "", "", evil...).status)
		require.Equal(t, http.StatusOK, h.modern(t, "tools/list", "", "", "Origin", "https://app.example.com").status)
		require.Equal(t, http.StatusOK, h.modern(t, "tools/list", "", "", "Origin", h.URL).status)
	})

	t.Run("ANameOfAnotherMachineAtALoopbackAddressIsRefused", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, http.StatusForbidden, h.modern(t, "tools/list", "", "", "Host", "evil.example.com").status)
		header := h.initialize(t)
		require.Equal(t, http.StatusForbidden, h.say(t, listTools, append(header, "Host", "evil.example.com")...).status)
	})

	t.Run("ABodyHasAMaximumSize", func(t *testing.T) {
		t.Parallel()
		of := func(size int) (string, []string) {
			body, header := modern("tools/call", "paper__echo", `"name":"paper__echo","arguments":{"x":"…"}`)
			return strings.Replace(body, "…", strings.Repeat("x", size-len(body)+len("…")), 1), header
		}
		body, header := of(4096)
		require.Len(t, body, 4096)
		require.Equal(t, http.StatusOK, h.say(t, body, header...).status)
		body, header = of(4097)
		require.Equal(t, http.StatusRequestEntityTooLarge, h.say(t, body, header...).status)
	})

	t.Run("ProtocolErrorsAreJSONRPCErrors", func(t *testing.T) {
		t.Parallel()
		for name, c := range map[string]struct {
			method, tool, params, body string
			code                       int
		}{
			"ParseError":             {body: `{"jsonrpc":`, code: -32700},
			"InvalidRequest":         {body: `{"jsonrpc":"1.0","id":1,"method":"tools/list"}`, code: -32600},
			"MethodNotFound":         {method: "tools/dance", code: -32601},
			"EmptyBody":              {body: " ", code: -32700},
			"NoMessage":              {body: `{"colour":"red"}`, code: -32600},
			"CursorOfAnotherServer":  {method: "tools/list", params: `"cursor":"%%%"`, code: -32602},
			"ParameterUnknown":       {method: "tools/call", tool: "agentcards:search_tools", params: `"name":"agentcards:search_tools","arguments":{"query":"x","colour":1}`, code: -32602},
			"ParameterMissing":       {method: "tools/call", tool: "agentcards:execute_code", params: `"name":"agentcards:execute_code","arguments":{}`, code: -32602},
			"ParameterOfAnotherKind": {method: "tools/call", tool: "agentcards:search_tools", params: `"name":"agentcards:search_tools","arguments":{"query":7}`, code: -32602},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				body, header := c.body, []string{"Mcp-Protocol-Version", newest, "Mcp-Method", "tools/list"}
				if body == "" {
					body, header = modern(c.method, c.tool, c.params)
				}
				code, message := h.say(t, body, header...).rpcError(t)
				require.Equal(t, c.code, code, message)
				require.NotEmpty(t, message)
			})
		}
	})
}

func TestMCPHostNames(t *testing.T) {
	t.Parallel()
	const page = "https://app.example.com"
	h := openHub(t, "sqlite", func(cfg *config.Config) {
		cfg.MCP.Hosts, cfg.MCP.PublicURL, cfg.MCP.Origins = []string{"comet.example.com"}, "https://comet.example.com", []string{page}
	})
	w := h.modern(t, "tools/list", "", "", "Host", "comet.example.com", "Origin", page, "Sec-Fetch-Site", "cross-site")
	require.Equal(t, http.StatusOK, w.status, w.body)
	require.Equal(t, page, w.header.Get("Access-Control-Allow-Origin"))
	require.Equal(t, http.StatusForbidden, h.modern(t, "tools/list", "", "").status, "127.0.0.1 is not in mcp.hosts")
	w = h.modern(t, "tools/list", "", "", "Host", "comet.example.com", "Authorization", "")
	require.Equal(t, http.StatusUnauthorized, w.status)
	require.Contains(t, w.header.Get("WWW-Authenticate"), `resource_metadata="https://comet.example.com/.well-known/oauth-protected-resource/mcp"`)
}
