package builtin

import (
	"encoding/json"
	"math"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/auth"
	"comet/internal/orchestrator"
	"comet/internal/sandbox"
	"comet/internal/tools"
	"comet/internal/toolsearch"
	"comet/internal/workflow"
)

// The servers of comet's own tools.
const (
	// agentCardsServer has the tools of AgentCards (“Meta-Tools”).
	agentCardsServer = "agentcards"
	// cometServer has the tools for tasks.
	cometServer = "comet"
)

// Dependencies are the services that Register needs.
type Dependencies struct {
	Tools        *tools.Service
	Orchestrator *orchestrator.Orchestrator
	Auth         *auth.Auth
	Index        *toolsearch.Index
	Sandbox      *sandbox.Sandbox
	Workflows    *workflow.Engine
	// Clock returns the current time, default time.Now.
	Clock func() time.Time
}

type builtins struct{ Dependencies }

// jsonResult returns a result: JSON, as text and as structured content.
func jsonResult(v any) (*mcp.CallToolResult, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(text)}}, StructuredContent: json.RawMessage(text)}, nil
}

func rounded(f float64) float64 { return math.Round(f*1000) / 1000 }
