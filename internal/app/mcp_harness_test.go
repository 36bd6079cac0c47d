package app_test

import (
	"context"
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/app"
	"comet/internal/config"
	"comet/internal/testkit/mcptest"
	"comet/store/storetest"
)

// The tested revisions of MCP: the newest, which has no sessions, and the last one with sessions.
const (
	newest   = mcptest.Newest
	sessions = mcptest.Sessions
)

// hub is a server with a gateway, and its admin.
type hub struct {
	*client
	app *app.App
	cfg config.Config
}

// hubs runs a test with a separate server on every database.
func hubs(t *testing.T, fn func(t *testing.T, database string)) {
	t.Helper()
	for _, database := range storetest.Databases() {
		t.Run(database, func(t *testing.T) {
			t.Parallel()
			fn(t, database)
		})
	}
}

// openHub starts a server with upstreams from a file and waits until their tools can be called.
func openHub(t *testing.T, database string, change func(*config.Config), fakes ...*mcptest.Server) *hub {
	t.Helper()
	cfg := configured(t, database)
	cfg.MCP.Servers = filepath.Join(cfg.Data, "servers.json")
	cfg.Sandbox.Warm = 0
	mcptest.WriteServers(t, cfg.MCP.Servers, fakes...)
	if change != nil {
		change(&cfg)
	}
	return startHub(t, cfg, fakes...)
}

func startHub(t *testing.T, cfg config.Config, fakes ...*mcptest.Server) *hub {
	t.Helper()
	a := started(t, cfg)
	t.Cleanup(func() { require.NoError(t, a.Stop(context.WithoutCancel(t.Context()))) })
	h := &hub{client: newClient(t, a.URL(), adminToken(t, cfg.Data)), app: a, cfg: cfg}
	for _, f := range fakes {
		h.awaitTools(t, f.ID)
	}
	return h
}

// awaitTools waits until a server's tools can be called.
func (h *hub) awaitTools(t *testing.T, server string) {
	t.Helper()
	eventually(t, func() bool { return len(h.tools(t, server)) > 0 }, "the tools of "+server+" come")
}

// tools are the ids of the tools that the client may call, of one server or "" for all.
func (c *client) tools(t *testing.T, server string) (ids []string) {
	t.Helper()
	path := "/api/v1/tools?limit=1000"
	if server != "" {
		path += "&server=" + server
	}
	list := get[struct{ Tools []struct{ ID string } }](t, c, path)
	for _, tool := range list.Tools {
		ids = append(ids, tool.ID)
	}
	return ids
}

// must sends a request, requires the status, and returns the response.
func (c *client) must(t *testing.T, status int, method, path string, body any, header ...string) []byte {
	t.Helper()
	got, answer, err := c.do(t.Context(), method, path, body, header...)
	require.NoError(t, err)
	require.Equal(t, status, got, "%s %s: %s", method, path, answer)
	return answer
}

// into is must with a decoded response.
func into[T any](t *testing.T, c *client, status int, method, path string, body any) (v T) {
	t.Helper()
	require.NoError(t, json.Unmarshal(c.must(t, status, method, path, body), &v))
	return v
}

// issued is a token, and a client that holds it.
type issued struct {
	*client
	id string
}

// holder creates a token that is bound to an agent; "" is no agent.
func (h *hub) holder(t *testing.T, agentID string, scopes ...string) *issued {
	t.Helper()
	if len(scopes) == 0 {
		scopes = []string{"tools:call"}
	}
	body := map[string]any{"name": "holder", "scopes": scopes}
	if agentID != "" {
		body["agent_id"] = agentID
	}
	made := into[struct{ ID, Token string }](t, h.client, http.StatusCreated, http.MethodPost, "/api/v1/tokens", body)
	return &issued{newClient(t, h.URL, made.Token), made.ID}
}

// agent registers an agent with a budget.
func (h *hub) agent(t *testing.T, id string, budget int64) {
	t.Helper()
	h.must(t, http.StatusCreated, http.MethodPost, "/api/v1/agents", map[string]any{
		"id": id, "name": id, "level": 2, "parent_id": "orch-my-team", "sphere_id": 8, "frequency_hz": 555, "capabilities": []string{}, "token_budget": budget,
	})
}

// policy sets the tool policy of a token.
func (h *hub) policy(t *testing.T, who *issued, policy string) {
	t.Helper()
	h.must(t, http.StatusOK, http.MethodPut, "/api/v1/tokens/"+who.id+"/tool-policy", json.RawMessage(policy))
}

// bearer adds a token to requests.
type bearer struct {
	token string
	next  http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}

// speak connects the SDK's client with a revision. The session ends with the test.
func (c *client) speak(t *testing.T, revision string, opts *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	transport := &mcp.StreamableClientTransport{Endpoint: c.URL + "/mcp", HTTPClient: &http.Client{Transport: bearer{c.Token, c.HTTP.Transport}}}
	s, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, opts).
		Connect(t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	require.Equal(t, revision, s.InitializeResult().ProtocolVersion)
	return s
}

// called returns the response to a call over MCP that must not be a protocol error.
func called(t *testing.T, s *mcp.ClientSession, name string, args any) *mcp.CallToolResult {
	t.Helper()
	res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: args})
	require.NoError(t, err)
	return res
}

// listed returns the names of all pages of tools/list.
func listed(t *testing.T, s *mcp.ClientSession) (names []string, descriptions map[string]string) {
	t.Helper()
	descriptions = map[string]string{}
	for tool, err := range s.Tools(t.Context(), nil) {
		require.NoError(t, err)
		names = append(names, tool.Name)
		descriptions[tool.Name] = tool.Description
	}
	return names, descriptions
}

// requireFailed requires that a call failed with a code of the document, in the text and in the
// structured content.
func requireFailed(t *testing.T, code string, res *mcp.CallToolResult) string {
	t.Helper()
	text := mcptest.TextOf(t, res)
	require.True(t, res.IsError, text)
	require.True(t, strings.HasPrefix(text, code+": "), text)
	inner, err := json.Marshal(res.StructuredContent)
	require.NoError(t, err)
	var structured struct {
		Error struct{ Code, Message string }
	}
	require.NoError(t, json.Unmarshal(inner, &structured))
	require.Equal(t, code, structured.Error.Code)
	require.Equal(t, code+": "+structured.Error.Message, text)
	return text
}

// run returns the response to code that is run over MCP.
func run(t *testing.T, s *mcp.ClientSession, code string, more map[string]any) *mcp.CallToolResult {
	t.Helper()
	args := map[string]any{"code": code}
	for name, value := range more {
		args[name] = value
	}
	return called(t, s, "agentcards:execute_code", args)
}

// result returns the return value of the code.
func result(t *testing.T, res *mcp.CallToolResult) any {
	t.Helper()
	var out struct{ Result any }
	require.False(t, res.IsError, mcptest.TextOf(t, res))
	require.NoError(t, json.Unmarshal([]byte(mcptest.TextOf(t, res)), &out))
	return out.Result
}

// restCall is a call over REST.
func (c *client) restCall(t *testing.T, status int, name string, args any) map[string]any {
	t.Helper()
	return into[map[string]any](t, c, status, http.MethodPost, "/api/v1/tools/call", map[string]any{"tool": name, "arguments": args})
}

// wire is an HTTP response with the JSON of each message in it.
type wire struct {
	status   int
	header   http.Header
	body     string
	messages []json.RawMessage
}

// say sends one body to /mcp unchanged. Headers replace those that every client sends.
func (c *client) say(t *testing.T, body string, header ...string) wire {
	t.Helper()
	return c.raw(t, http.MethodPost, "/mcp", body, header...)
}

func (c *client) raw(t *testing.T, method, path, body string, header ...string) wire {
	t.Helper()
	resp := c.Do(t, method, path, body, acceptStreams(header)...)
	out := wire{status: resp.Status, header: resp.Header, body: string(resp.Body)}
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		out.messages = append(out.messages, resp.Body)
		return out
	}
	for line := range strings.Lines(out.body) {
		if data, ok := strings.CutPrefix(strings.TrimSpace(line), "data:"); ok && json.Valid([]byte(data)) {
			out.messages = append(out.messages, json.RawMessage(data))
		}
	}
	return out
}

// acceptStreams adds the header Accept of MCP clients to headers without it, and a Content-Type,
// which a request without a body has, too.
func acceptStreams(header []string) []string {
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Accept" {
			return header
		}
	}
	return append([]string{"Accept", "application/json, text/event-stream"}, header...)
}

// rpcError returns the JSON-RPC error in a response.
func (w wire) rpcError(t *testing.T) (code int, message string) {
	t.Helper()
	require.NotEmpty(t, w.messages, "%d %s", w.status, w.body)
	var v struct {
		Error *struct {
			Code    int
			Message string
		}
	}
	require.NoError(t, json.Unmarshal(w.messages[len(w.messages)-1], &v), "%d %s", w.status, w.body)
	require.NotNil(t, v.Error, "%d %s", w.status, w.body)
	return v.Error.Code, v.Error.Message
}

// result returns the JSON-RPC result in a response.
func (w wire) result(t *testing.T) map[string]any {
	t.Helper()
	require.NotEmpty(t, w.messages, "%d %s", w.status, w.body)
	var v struct {
		Result map[string]any
		Error  json.RawMessage
	}
	require.NoError(t, json.Unmarshal(w.messages[len(w.messages)-1], &v), "%d %s", w.status, w.body)
	require.Empty(t, string(v.Error))
	return v.Result
}

// requireNoStart requires that a server does not start, and that the error contains the reason.
func requireNoStart(t *testing.T, cfg config.Config, why string) {
	t.Helper()
	a, err := app.New(t.Context(), cfg, nil)
	require.NoError(t, err)
	require.ErrorContains(t, a.Start(t.Context()), why)
	require.NoError(t, a.Stop(t.Context()))
}
