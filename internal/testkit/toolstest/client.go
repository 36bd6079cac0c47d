package toolstest

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/testkit"
	"comet/internal/testkit/mcptest"
	"comet/internal/tools"
	"comet/internal/tools/builtin"
	"comet/models"
)

// Client calls tools with one token.
type Client struct {
	tools.Caller
	svc *Tools
}

// Admin returns a client with the scope admin that is no agent.
func (s *Tools) Admin() *Client {
	return &Client{tools.Caller{Principal: testkit.Admin(), Source: tools.SourceMCP}, s}
}

// Client returns a client with a new token of an agent, "" for none, and scopes, by default
// tools:call.
func (s *Tools) Client(t testing.TB, agentID string, scopes ...models.Scope) *Client {
	t.Helper()
	if len(scopes) == 0 {
		scopes = []models.Scope{models.ScopeToolsCall}
	}
	draft := auth.TokenDraft{Name: new("holder"), Scopes: scopes}
	if agentID != "" {
		draft.AgentID = &agentID
	}
	made, err := s.Tokens.Create(t.Context(), models.System(), draft, nil)
	require.NoError(t, err)
	principal, err := s.Tokens.Verify(t.Context(), made.Secret)
	require.NoError(t, err)
	return &Client{tools.Caller{Principal: principal, Source: tools.SourceMCP}, s}
}

// At returns a client with the same token that calls other tools, such as those of a replica.
func (c *Client) At(s *Tools) *Client { return &Client{c.Caller, s} }

// From returns a client with the same token that calls from another source with a trace.
func (c *Client) From(source, traceID string) *Client {
	by := c.Caller
	by.Source, by.TraceID = source, traceID
	return &Client{by, c.svc}
}

// TryCall calls a tool with arguments, nil for none, and returns its error. A call that does not end is cancelled after
// testkit.Timeout.
func (c *Client) TryCall(t testing.TB, name string, args any) (*mcp.CallToolResult, error) {
	var text json.RawMessage
	if args != nil {
		var err error
		if text, err = json.Marshal(args); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Timeout)
	defer cancel()
	return c.svc.Call(ctx, c.Caller, name, text, nil)
}

// Call calls a tool that must return a result.
func (c *Client) Call(t testing.TB, name string, args any) *mcp.CallToolResult {
	t.Helper()
	res, err := c.TryCall(t, name, args)
	require.NoError(t, err)
	return res
}

// RequireSays calls a tool and requires its text.
func (c *Client) RequireSays(t testing.TB, want, name string, args any) {
	t.Helper()
	mcptest.RequireSays(t, want, c.Call(t, name, args))
}

// RequireFails calls a tool and requires an error with the given name. It returns the error text
// as a model reads it.
func (c *Client) RequireFails(t testing.TB, code, name string, args any) string {
	t.Helper()
	res, err := c.TryCall(t, name, args)
	require.Nil(t, res)
	require.Equal(t, code, tools.ErrorName(err), "%v", err)
	text := tools.ErrorText(err)
	require.True(t, strings.HasPrefix(text, code+": "), text)
	return text
}

// Run runs code and returns its value.
func (c *Client) Run(t testing.TB, code string, more map[string]any) any {
	t.Helper()
	var out struct{ Result any }
	res := c.Call(t, "agentcards:execute_code", codeArguments(code, more))
	require.False(t, res.IsError)
	require.NoError(t, json.Unmarshal([]byte(mcptest.TextOf(t, res)), &out))
	return out.Result
}

// RequireRunFails runs code and requires an error, like RequireFails.
func (c *Client) RequireRunFails(t testing.TB, errorName, code string, more map[string]any) string {
	t.Helper()
	return c.RequireFails(t, errorName, "agentcards:execute_code", codeArguments(code, more))
}

func codeArguments(code string, more map[string]any) map[string]any {
	args := map[string]any{"code": code}
	for name, value := range more {
		args[name] = value
	}
	return args
}

// Search returns the ids of the tools that a search finds, the best first.
func (c *Client) Search(t testing.TB, query string) (ids []string) {
	t.Helper()
	found, err := builtin.Search(t.Context(), c.svc.Service, c.Caller, builtin.SearchQuery{Query: query, Limit: new(100)})
	require.NoError(t, err)
	for _, tool := range found.Tools {
		ids = append(ids, tool.Name)
	}
	return ids
}

// Tools returns the ids of the tools that the client may call, of one upstream or of all ("").
func (c *Client) Tools(t testing.TB, upstreamID string) (ids []string) {
	t.Helper()
	list, err := c.svc.Service.Tools(t.Context(), c.Principal, upstreamID, "", 1000)
	require.NoError(t, err)
	for _, tool := range list {
		ids = append(ids, tool.ID)
	}
	return ids
}

// Listed returns the names and the descriptions of the tools of tools/list.
func (c *Client) Listed(t testing.TB) (names []string, descriptions map[string]string) {
	t.Helper()
	list, err := c.svc.MCPTools(t.Context(), c.Caller)
	require.NoError(t, err)
	descriptions = map[string]string{}
	for _, l := range list {
		names = append(names, l.Item.Name)
		descriptions[l.Item.Name] = l.Item.Description
	}
	return names, descriptions
}

// Calls returns the audit records that the client may see, the newest first, read page by page.
func (c *Client) Calls(t testing.TB, q tools.ToolCallQuery) (all []models.ToolCall) {
	t.Helper()
	q.Limit = cmp.Or(q.Limit, 1000)
	for {
		page, err := c.svc.Service.Calls(t.Context(), c.Principal, q)
		require.NoError(t, err)
		if all = append(all, page...); len(page) < q.Limit {
			return all
		}
		q.Before = page[len(page)-1].ID
	}
}

// SetPolicy sets the tool policy of the client's token, as JSON.
func (c *Client) SetPolicy(t testing.TB, policy string) {
	t.Helper()
	var p models.ToolPolicy
	require.NoError(t, json.Unmarshal([]byte(policy), &p))
	_, err := c.svc.SetPolicy(t.Context(), models.System(), c.Principal.TokenID, p, nil)
	require.NoError(t, err)
}

// Put adds or replaces an upstream of the API.
func (s *Tools) Put(t testing.TB, id string, entry map[string]any) error {
	t.Helper()
	text, err := json.Marshal(entry)
	require.NoError(t, err)
	_, err = s.PutUpstream(t.Context(), testkit.Admin(), id, text, nil)
	return err
}

// RequireError requires an error with a code whose detail contains words.
func RequireError(t testing.TB, err error, code errs.Code, words ...string) {
	t.Helper()
	require.True(t, errs.Is(err, code), "%v", err)
	for _, word := range words {
		require.Contains(t, tools.Detail(err), word)
	}
}
