package tools

import (
	"maps"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// withoutServerInfo is an upstream's answer to a call as comet's own. What the upstream's revision adds
// to it stays behind: doors say that in the revision of their client.
func withoutServerInfo(r *mcp.CallToolResult) *mcp.CallToolResult {
	return &mcp.CallToolResult{Meta: metaWithoutServerInfo(r.Meta), Content: r.Content, StructuredContent: r.StructuredContent, IsError: r.IsError}
}

// metaWithoutServerInfo is what an upstream says about its answer without what it says about itself: who
// answers is comet.
func metaWithoutServerInfo(m mcp.Meta) mcp.Meta {
	m = maps.Clone(m)
	delete(m, mcp.MetaKeyServerInfo)
	return m
}
