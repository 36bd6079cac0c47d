// Package mcp is the MCP door (AgentCards): MCP clients of every revision come in over
// HTTP or stdio and find the tools of the hub (internal/tools), which makes their calls. What
// is here is the protocol: sessions and requests, lists page by page, who is asked back, who
// is told what changed.
package mcp
