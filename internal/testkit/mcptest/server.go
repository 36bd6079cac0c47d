// Package mcptest provides MCP servers over HTTP that a test controls, for tests of packages that
// call tools of upstreams.
package mcptest

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

// The tested revisions of MCP: the newest, which has no sessions, and the last one with sessions.
const (
	Newest   = "2026-07-28"
	Sessions = "2025-11-25"
)

// Server is an MCP server over HTTP that a test controls. It counts the calls of its tools.
type Server struct {
	*mcp.Server
	// ID is the server's id as an upstream.
	ID string
	// URL is the address of its endpoint.
	URL string

	calls atomic.Int64
	http  *httptest.Server
}

// New starts a server of the newest revision, without tools. It stops with the test.
func New(t testing.TB, id string) *Server {
	t.Helper()
	return NewOf(t, id, Newest)
}

// NewOf starts a server that supports revisions up to the given one.
func NewOf(t testing.TB, id, revision string) *Server {
	t.Helper()
	return newServer(t, id, revision, &mcp.ServerOptions{
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{ListChanged: true}},
	})
}

func newServer(t testing.TB, id, revision string, can *mcp.ServerOptions) *Server {
	t.Helper()
	s := &Server{ID: id, Server: mcp.NewServer(&mcp.Implementation{Name: id, Version: "1"}, can)}
	srv := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s.Server },
		&mcp.StreamableHTTPOptions{Stateless: revision == Newest, PropagateRequestCancellation: revision == Newest}))
	s.URL, s.http = srv.URL, srv
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return s
}

// NewPaper starts a server with a tool of each class: echo reads, note writes, shred is destructive.
func NewPaper(t testing.TB, id string) *Server {
	t.Helper()
	return New(t, id).Echo().Says("note", "noted", Writes()).Says("shred", "shredded", nil)
}

// NewGithub starts a server with the id github that lists three commits.
func NewGithub(t testing.TB) *Server {
	t.Helper()
	return New(t, "github").Tool(&mcp.Tool{
		Name: "list_commits", Description: "List the commits of a GitHub repository", Annotations: Reads(),
		InputSchema: json.RawMessage(`{"type":"object","properties":{"limit":{"type":"number"}}}`),
	}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return Texts(`[{"author":"alice"},{"author":"bob"},{"author":"alice"}]`), nil
	}).Says("create_issue", "created", nil)
}

// NewLibrary starts a server with a resource, a template, a prompt and completions of its own. Its
// responses may be cached publicly, and name it as the server.
func NewLibrary(t testing.TB, id, revision string) *Server {
	t.Helper()
	s := newServer(t, id, revision, &mcp.ServerOptions{
		CompletionHandler: func(_ context.Context, r *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
			return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{id + r.Params.Argument.Value}}}, nil
		},
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	}).Echo()
	read := func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{
			Cacheable: mcp.Cacheable{TTLMs: 1000, CacheScope: "public"},
			Contents:  []*mcp.ResourceContents{{URI: r.Params.URI, MIMEType: "text/plain", Text: id + " has " + r.Params.URI}},
		}, nil
	}
	s.AddResource(&mcp.Resource{URI: id + "://index", Name: "index", MIMEType: "text/plain"}, read)
	s.AddResourceTemplate(&mcp.ResourceTemplate{URITemplate: id + "://book/{n}", Name: "book"}, read)
	s.AddPrompt(&mcp.Prompt{Name: "ask", Arguments: []*mcp.PromptArgument{{Name: "what"}}}, func(_ context.Context, r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: id + " is asked " + r.Params.Arguments["what"]}}}}, nil
	})
	return s
}

// CloseConnections closes the connections of clients, so that calls in progress get no response.
func (s *Server) CloseConnections() { s.http.CloseClientConnections() }

// Calls returns the number of calls that reached a tool.
func (s *Server) Calls() int64 { return s.calls.Load() }

// WriteServers writes an mcpServers file in the format of desktop clients.
func WriteServers(t testing.TB, path string, servers ...*Server) {
	t.Helper()
	entries := map[string]any{}
	for _, s := range servers {
		entries[s.ID] = map[string]any{"url": s.URL}
	}
	text, err := json.Marshal(map[string]any{"mcpServers": entries})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, text, 0o600))
}
