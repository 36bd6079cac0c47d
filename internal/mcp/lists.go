package mcp

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/input"
	"comet/internal/tools"
)

// pageSize is the number of tools, prompts or resources of a page.
const pageSize = 200

// cacheHints returns how long a client may cache a list (MCP 2026-07-28, cache hints). The list is
// private, because it depends on the token.
func cacheHints() mcp.Cacheable {
	return mcp.Cacheable{TTLMs: int((5 * time.Second).Milliseconds()), CacheScope: "private"}
}

// pageOf returns one page of what the caller may list.
func pageOf[T any](ctx context.Context, by tools.Caller, list func(context.Context, tools.Caller) ([]tools.Listed[T], error), cursor string) (items []T, next string, err error) {
	all, err := list(ctx, by)
	if err != nil {
		return nil, "", toRPCError(err)
	}
	page, next, err := paginate(all, cursor, pageSize)
	items = make([]T, 0, len(page))
	for _, o := range page {
		items = append(items, o.Item)
	}
	return items, next, err
}

// cursorMark is the first byte of every cursor. It rejects other text that is valid base64.
const cursorMark = 1

// paginate sorts a list by key and returns one page of it. The cursor is the key of the last item
// of the previous page, so a list that changes repeats no item.
func paginate[T any](list []tools.Listed[T], cursor string, size int) (page []tools.Listed[T], next string, err error) {
	slices.SortStableFunc(list, func(a, b tools.Listed[T]) int { return strings.Compare(a.Key, b.Key) })
	if cursor != "" {
		after, err := base64.RawURLEncoding.DecodeString(cursor)
		if err != nil || len(after) > 4096 || len(after) == 0 || after[0] != cursorMark {
			return nil, "", invalidParams("the cursor %q is invalid", input.Clip(cursor))
		}
		first, found := slices.BinarySearchFunc(list, string(after[1:]), func(v tools.Listed[T], k string) int { return strings.Compare(v.Key, k) })
		if found {
			first++
		}
		list = list[first:]
	}
	if len(list) <= size {
		return list, "", nil
	}
	return list[:size], base64.RawURLEncoding.EncodeToString(append([]byte{cursorMark}, list[size-1].Key...)), nil
}

// The results of upstreams are converted to the protocol version of the client. A result of
// 2026-07-28 has a resultType, and older ones have none; the SDK keeps it in a field that only its
// JSON decoder sets. Results are private, because another token may see less.

// resourceResult converts the outcome of resources/read to the version of the client.
func resourceResult(revision string, o callOutcome) (*mcp.ReadResourceResult, error) {
	out := &mcp.ReadResourceResult{}
	markType(revision, o, out)
	out.InputRequests, out.RequestState, out.Contents = o.questions, o.state, []*mcp.ResourceContents{}
	if r, ok := o.res.(*mcp.ReadResourceResult); ok && r != nil {
		out.Meta, out.Contents = r.Meta, r.Contents
		out.Cacheable = mcp.Cacheable{TTLMs: max(r.TTLMs, 0), CacheScope: "private"}
	}
	return out, toRPCError(o.err)
}

// promptResult converts the outcome of prompts/get to the version of the client.
func promptResult(revision string, o callOutcome) (*mcp.GetPromptResult, error) {
	out := &mcp.GetPromptResult{}
	markType(revision, o, out)
	out.InputRequests, out.RequestState, out.Messages = o.questions, o.state, []*mcp.PromptMessage{}
	if r, ok := o.res.(*mcp.GetPromptResult); ok && r != nil {
		out.Meta, out.Description, out.Messages = r.Meta, r.Description, r.Messages
	}
	return out, toRPCError(o.err)
}

func markType(revision string, o callOutcome, out any) {
	kind := `{"resultType":"complete"}`
	if o.questions != nil {
		kind = `{"resultType":"input_required"}`
	}
	if revision >= statelessVersion {
		_ = json.Unmarshal([]byte(kind), out) // a constant cannot fail
	}
}
