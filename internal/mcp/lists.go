package mcp

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/tools"
)

// cacheHints returns how long a client may cache a list (MCP 2026-07-28, cache hints). The list is
// private, because it depends on the token.
func cacheHints() mcp.Cacheable {
	return mcp.Cacheable{TTLMs: int((5 * time.Second).Milliseconds()), CacheScope: "private"}
}

func (g *Server) listTools(ctx context.Context, by tools.Caller, p *mcp.ListToolsParams) (*mcp.ListToolsResult, error) {
	list, err := g.tools.MCPTools(ctx, by)
	if err != nil {
		return nil, toRPCError(err)
	}
	page, next, err := paginate(list, p.Cursor, g.opts.PageSize, func(o tools.MCPTool) string { return o.Position })
	return &mcp.ListToolsResult{Tools: mapSlice(page, func(o tools.MCPTool) *mcp.Tool { return o.Tool }), NextCursor: next, Cacheable: cacheHints()}, err
}

// listResources answers resources/list with the resources of all upstreams, sorted by server.
func (g *Server) listResources(ctx context.Context, by tools.Caller, p *mcp.ListResourcesParams) (*mcp.ListResourcesResult, error) {
	list, err := g.tools.Resources(ctx, by)
	page, next, err := pageOf(g, list, err, p.Cursor, func(r *mcp.Resource) string { return r.URI })
	return &mcp.ListResourcesResult{Resources: page, NextCursor: next, Cacheable: cacheHints()}, err
}

func (g *Server) listTemplates(ctx context.Context, by tools.Caller, p *mcp.ListResourceTemplatesParams) (*mcp.ListResourceTemplatesResult, error) {
	list, err := g.tools.ResourceTemplates(ctx, by)
	page, next, err := pageOf(g, list, err, p.Cursor, func(r *mcp.ResourceTemplate) string { return r.URITemplate })
	return &mcp.ListResourceTemplatesResult{ResourceTemplates: page, NextCursor: next, Cacheable: cacheHints()}, err
}

func (g *Server) listPrompts(ctx context.Context, by tools.Caller, p *mcp.ListPromptsParams) (*mcp.ListPromptsResult, error) {
	list, err := g.tools.Prompts(ctx, by)
	page, next, err := pageOf(g, list, err, p.Cursor, func(r *mcp.Prompt) string { return r.Name })
	return &mcp.ListPromptsResult{Prompts: page, NextCursor: next, Cacheable: cacheHints()}, err
}

// pageOf returns one page of the items of all upstreams. listErr is the error of their list.
func pageOf[T any](g *Server, list []tools.ServerItem[T], listErr error, cursor string, key func(T) string) (items []T, next string, err error) {
	if listErr != nil {
		return nil, "", toRPCError(listErr)
	}
	page, next, err := paginate(list, cursor, g.opts.PageSize, func(o tools.ServerItem[T]) string { return o.Server + " " + key(o.Item) })
	return mapSlice(page, func(o tools.ServerItem[T]) T { return o.Item }), next, err
}

func mapSlice[T, U any](list []T, of func(T) U) []U {
	out := make([]U, 0, len(list))
	for _, v := range list {
		out = append(out, of(v))
	}
	return out
}

// cursorMark is the first byte of every cursor. It rejects other text that is valid base64.
const cursorMark = 1

// paginate sorts a list by key and returns one page of it. The cursor is the key of the last item
// of the previous page, so a list that changes repeats no item.
func paginate[T any](list []T, cursor string, size int, key func(T) string) (page []T, next string, err error) {
	slices.SortStableFunc(list, func(a, b T) int { return strings.Compare(key(a), key(b)) })
	if cursor != "" {
		after, err := base64.RawURLEncoding.DecodeString(cursor)
		if err != nil || len(after) > 4096 || len(after) == 0 || after[0] != cursorMark {
			return nil, "", invalidParams("the cursor %q is invalid", clip(cursor))
		}
		first, found := slices.BinarySearchFunc(list, string(after[1:]), func(v T, k string) int { return strings.Compare(key(v), k) })
		if found {
			first++
		}
		list = list[first:]
	}
	if len(list) <= size {
		return list, "", nil
	}
	return list[:size], base64.RawURLEncoding.EncodeToString(append([]byte{cursorMark}, key(list[size-1])...)), nil
}

// The results of upstreams are converted to the protocol version of the client. A result of
// 2026-07-28 has a resultType, and older ones have none; the SDK keeps it in a field that only its
// JSON decoder sets. Results are private, because another token may see less.

// resourceResult converts an upstream's result of resources/read to the version of the client.
func resourceResult(revision string, r *mcp.ReadResourceResult) *mcp.ReadResourceResult {
	out := &mcp.ReadResourceResult{}
	markComplete(revision, out)
	out.Meta, out.Contents = r.Meta, r.Contents
	out.Cacheable = mcp.Cacheable{TTLMs: max(r.TTLMs, 0), CacheScope: "private"}
	return out
}

// promptResult converts an upstream's result of prompts/get to the version of the client.
func promptResult(revision string, r *mcp.GetPromptResult) *mcp.GetPromptResult {
	out := &mcp.GetPromptResult{}
	markComplete(revision, out)
	out.Meta, out.Description, out.Messages = r.Meta, r.Description, r.Messages
	return out
}

func markComplete(revision string, out any) {
	if revision >= statelessVersion {
		_ = json.Unmarshal([]byte(`{"resultType":"complete"}`), out) // a constant cannot fail
	}
}
