//go:build unix

package upstream_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/upstream"
)

// newSDKServer returns an upstream without faults, in every version that the SDK supports.
func newSDKServer(held chan<- error) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "2"}, &mcp.ServerOptions{
		Instructions: "be kind", PageSize: 2,
		CompletionHandler: func(_ context.Context, r *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
			return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{r.Params.Argument.Value + "!"}}}, nil
		},
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	object := json.RawMessage(`{"type":"object"}`)
	add := func(name string, h mcp.ToolHandler) { s.AddTool(&mcp.Tool{Name: name, InputSchema: object}, h) }
	add("echo", func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return said(string(r.Params.Arguments)), nil
	})
	add("ask", func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if answer, ok := r.Params.InputResponses["q"].(*mcp.ElicitResult); ok {
			return said(answer.Action), nil
		}
		return &mcp.CallToolResult{RequestState: "s", InputRequests: mcp.InputRequestMap{"q": &mcp.ElicitParams{
			Mode: "form", Message: "sure?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{"ok":{"type":"boolean"}}}`),
		}}}, nil
	})
	add("held", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: 1, Total: 2})
		<-ctx.Done()
		held <- ctx.Err()
		return nil, ctx.Err()
	})
	add("steps", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for i := range 50 {
			_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: float64(i), Total: 50})
		}
		return said("done"), nil
	})
	add("big", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return said(strings.Repeat("x", 2<<20)), nil
	})
	add("more", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		s.AddTool(&mcp.Tool{Name: "added", InputSchema: object}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return said("new"), nil
		})
		return said("added"), nil
	})
	add("touch", func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return said("touched"), s.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: "file:///a"})
	})
	s.AddResource(&mcp.Resource{URI: "file:///a", Name: "a"}, func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: r.Params.URI, Text: "content"}}}, nil
	})
	s.AddResourceTemplate(&mcp.ResourceTemplate{URITemplate: "file:///{x}", Name: "x"}, nil)
	s.AddPrompt(&mcp.Prompt{Name: "greet"}, func(_ context.Context, r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Description: "hello " + r.Params.Arguments["who"]}, nil
	})
	return s
}

func said(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}

// serveSDK serves newSDKServer over standard input and output.
func serveSDK() {
	held := make(chan error, 1)
	go func() { fmt.Fprintln(os.Stderr, "cancelled", <-held) }()
	_ = newSDKServer(held).Run(context.Background(), &mcp.StdioTransport{})
}

// hold runs a manager with an upstream until it is killed.
func hold() {
	exe := os.Args[0]
	m := upstream.New(nil)
	_ = m.Start(context.Background())
	_, _ = m.Apply(context.Background(), "file", []upstream.Server{{ID: "one", Command: exe, Env: map[string]string{fakeMode: "stubborn"}}})
	for s, _ := m.Server("one"); s.PID == 0; s, _ = m.Server("one") {
		<-time.After(10 * time.Millisecond)
	}
	s, _ := m.Server("one")
	fmt.Println(s.PID)
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
}
