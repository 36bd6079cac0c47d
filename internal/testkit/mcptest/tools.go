package mcptest

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

// Tool adds a tool, or replaces the tool with the same name. Without an input schema it takes any
// object.
func (s *Server) Tool(d *mcp.Tool, do mcp.ToolHandler) *Server {
	if d.InputSchema == nil {
		d.InputSchema = json.RawMessage(`{"type":"object"}`)
	}
	s.AddTool(d, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		s.calls.Add(1)
		return do(ctx, r)
	})
	return s
}

// Says adds a tool of a class that always returns the same text. Its description names the text.
func (s *Server) Says(name, text string, a *mcp.ToolAnnotations) *Server {
	return s.Tool(&mcp.Tool{Name: name, Description: "Says " + text, Annotations: a}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return Texts(text), nil
	})
}

// Echo adds a tool that returns its argument.
func (s *Server) Echo() *Server {
	return s.Tool(&mcp.Tool{Name: "echo", Description: "Says what it is given", Annotations: Reads()}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return Texts(string(r.Params.Arguments)), nil
	})
}

// Fails adds the tool fail, whose result is an error with a text.
func (s *Server) Fails(text string) *Server {
	return s.Tool(&mcp.Tool{Name: "fail"}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		res := Texts(text)
		res.IsError = true
		return res, nil
	})
}

// Held adds the tool held, which runs until its call is cancelled. It signals its start and its
// end, and reports a progress of 1 of 4.
func (s *Server) Held() (began chan struct{}, ended chan error) {
	began, ended = make(chan struct{}, 10), make(chan error, 10)
	s.Tool(&mcp.Tool{Name: "held"}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if token := r.Params.GetProgressToken(); token != nil {
			_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: 1, Total: 4, Message: "a quarter"})
		}
		began <- struct{}{}
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	})
	return began, ended
}

// Asking adds the tool ask, which sends a question to its caller, as the server's revision defines
// it, and returns the reply.
func (s *Server) Asking(revision string) *Server {
	question := &mcp.ElicitParams{Mode: "form", Message: "shred it?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{"sure":{"type":"boolean"}}}`)}
	says := func(a *mcp.ElicitResult) *mcp.CallToolResult {
		text, _ := json.Marshal(a.Content)
		return Texts(a.Action + " " + string(text))
	}
	return s.Tool(&mcp.Tool{Name: "ask"}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if revision != Newest {
			a, err := r.Session.Elicit(ctx, question)
			if err != nil {
				return nil, err
			}
			return says(a), nil
		}
		if a, ok := r.Params.InputResponses["q"].(*mcp.ElicitResult); ok && r.Params.RequestState == "mine" {
			return says(a), nil
		}
		return &mcp.CallToolResult{RequestState: "mine", InputRequests: mcp.InputRequestMap{"q": question}}, nil
	})
}

// Reads returns the annotations of the class read.
func Reads() *mcp.ToolAnnotations { return &mcp.ToolAnnotations{ReadOnlyHint: true} }

// Writes returns the annotations of the class write.
func Writes() *mcp.ToolAnnotations { return &mcp.ToolAnnotations{DestructiveHint: new(false)} }

// Texts returns a result with texts.
func Texts(list ...string) *mcp.CallToolResult {
	res := &mcp.CallToolResult{Content: []mcp.Content{}}
	for _, text := range list {
		res.Content = append(res.Content, &mcp.TextContent{Text: text})
	}
	return res
}

// TextOf returns the text of a result that has exactly one.
func TextOf(t testing.TB, res *mcp.CallToolResult) string {
	t.Helper()
	require.Len(t, res.Content, 1)
	text, ok := res.Content[0].(*mcp.TextContent)
	require.True(t, ok, "%T", res.Content[0])
	return text.Text
}

// RequireSays requires that a tool returned a text.
func RequireSays(t testing.TB, want string, res *mcp.CallToolResult) {
	t.Helper()
	require.Equal(t, want, TextOf(t, res))
	require.False(t, res.IsError)
}
