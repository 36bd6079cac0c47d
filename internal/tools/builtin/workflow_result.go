package builtin

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/tools"
)

// awaitWorkflow waits until a workflow is paused or has ended, unless err is set.
func (b *builtins) awaitWorkflow(ctx context.Context, c *tools.Invocation, id string, err error) (*mcp.CallToolResult, error) {
	if err != nil {
		return nil, err
	}
	if c.Options.Workflow != nil {
		c.Options.Workflow(id)
	}
	v, err := b.Workflows.Wait(ctx, c.Caller.Principal, id)
	if err != nil {
		return nil, err
	}
	return v.CallResult()
}
