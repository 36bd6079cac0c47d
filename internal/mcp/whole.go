package mcp

import (
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// What an upstream answered in its revision becomes here an answer in the client's. A result
// of 2026-07-28 says that it is whole, and for older clients it says no such thing; the SDK
// keeps that in a field that only its reader of JSON can fill. For others than the client
// nothing may be kept: another token may see less.

// resourceResult is an upstream's answer to resources/read for a client of the revision.
func resourceResult(revision string, r *mcp.ReadResourceResult) *mcp.ReadResourceResult {
	out := &mcp.ReadResourceResult{}
	markComplete(revision, out)
	out.Meta, out.Contents = r.Meta, r.Contents
	out.Cacheable = mcp.Cacheable{TTLMs: max(r.TTLMs, 0), CacheScope: "private"}
	return out
}

// promptResult is an upstream's answer to prompts/get for a client of the revision.
func promptResult(revision string, r *mcp.GetPromptResult) *mcp.GetPromptResult {
	out := &mcp.GetPromptResult{}
	markComplete(revision, out)
	out.Meta, out.Description, out.Messages = r.Meta, r.Description, r.Messages
	return out
}

func markComplete(revision string, out any) {
	if revision >= statelessVersion {
		_ = json.Unmarshal([]byte(`{"resultType":"complete"}`), out) // of a constant
	}
}
