package mcp

import (
	"context"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/tools"
)

// OnChange hears from the tools what clients are to be told; it does not block.
func (g *Server) OnChange(c tools.Change) {
	switch c.Kind {
	case tools.ToolsChanged:
		g.notifyTools()
	case tools.PromptsChanged:
		g.notifyPrompts()
	case tools.ResourcesChanged:
		g.notifyResources()
	case tools.ResourceUpdated:
		g.subs.resourceUpdated(c.URI)
	}
}

// notifyTools, notifyPrompts and notifyResources have the SDK tell its clients that a list
// changed: it does when it is given something.
func (g *Server) notifyTools() {
	for _, s := range g.sdkServers() {
		s.AddTool(&mcp.Tool{Name: dispatchTool, InputSchema: json.RawMessage(`{"type":"object"}`)}, g.handleToolCall)
	}
}

func (g *Server) notifyPrompts() {
	for _, s := range g.sdkServers() {
		s.AddPrompt(&mcp.Prompt{Name: placeholderPrompt}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return nil, invalidParams("there is no such prompt")
		})
	}
}

func (g *Server) notifyResources() {
	for _, s := range g.sdkServers() {
		s.AddResource(&mcp.Resource{URI: placeholderResource, Name: placeholderResource}, func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			return nil, mcp.ResourceNotFoundError(r.Params.URI)
		})
	}
}
