package gateway

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/auth"
	"comet/models"
)

// fresh is for how long a client may keep a list (MCP 2026-07-28, cache hints): another token
// sees another one, so it is the client's own.
func fresh() mcp.Cacheable {
	return mcp.Cacheable{TTLMs: int((5 * time.Second).Milliseconds()), CacheScope: "private"}
}

// may returns what the caller may do, or why not.
func (g *Gateway) may(ctx context.Context, by Caller) (*policy, error) {
	if err := auth.Require(by.Principal, models.ScopeToolsCall); err != nil {
		return nil, protocolError(toToolError(err))
	}
	p, err := g.policies.of(ctx, by.Principal.TokenID)
	if err != nil {
		return nil, protocolError(toToolError(err))
	}
	return p, nil
}

// listTools answers tools/list.
func (g *Gateway) listTools(ctx context.Context, by Caller, p *mcp.ListToolsParams) (*mcp.ListToolsResult, error) {
	may, err := g.may(ctx, by)
	if err != nil {
		return nil, err
	}
	visible := g.catalogue.Load().visible(may)
	servers := over(visible)
	list := slices.DeleteFunc(visible, func(t *tool) bool { return !g.lists(t) })
	page, next, err := pageOf(list, p.Cursor, g.opts.PageSize, (*tool).place)
	if err != nil {
		return nil, err
	}
	out := &mcp.ListToolsResult{Tools: []*mcp.Tool{}, NextCursor: next, Cacheable: fresh()}
	for _, t := range page {
		out.Tools = append(out.Tools, shownAs(t, servers))
	}
	return out, nil
}

// lists reports whether tools/list has a tool.
func (g *Gateway) lists(t *tool) bool {
	if g.opts.Expose == ExposeAll || t.builtin != nil && !t.hidden {
		return true
	}
	return slices.ContainsFunc(g.opts.Pinned, func(name string) bool {
		return name == t.id || name == t.listed || name == portable(t.server, t.name) || matches(name, t.id)
	})
}

// shownAs is a tool as a client sees it: under its listed name, and comet's own with what
// they are over.
func shownAs(t *tool, servers string) *mcp.Tool {
	d := *t.def
	d.Name = t.listed
	if t.builtin != nil && t.server == agentCards {
		d.Description += servers
	}
	return &d
}

// Tools returns up to limit tools that a token may call, of one server or of all (""), in the
// order in which MCP lists them, behind the one whose place is after.
func (g *Gateway) Tools(ctx context.Context, by models.Principal, server, after string, limit int) ([]Listed, error) {
	p, err := g.policies.of(ctx, by.TokenID)
	if err != nil {
		return nil, err
	}
	list := slices.DeleteFunc(g.catalogue.Load().visible(p), func(t *tool) bool {
		return server != "" && t.server != server || t.place() <= after
	})
	slices.SortFunc(list, func(a, b *tool) int { return strings.Compare(a.place(), b.place()) })
	out := []Listed{}
	for _, t := range list[:min(limit, len(list))] {
		out = append(out, t.asListed())
	}
	return out, nil
}

// Listed is a tool as doors other than MCP show it.
type Listed struct {
	// Place is where it stands among all.
	Place       string
	ID          string
	Server      string
	Name        string
	Listed      string
	Title       string
	Description string
	Class       models.ToolClass
	InputSchema any
}

func (t *tool) asListed() Listed {
	return Listed{
		Place: t.place(), ID: t.id, Server: t.server, Name: t.name, Listed: t.listed, Title: titleOf(t.def), Description: t.def.Description,
		Class: t.class, InputSchema: t.def.InputSchema,
	}
}

// cursorMark begins every cursor, which tells them from words that happen to be base64.
const cursorMark = 1

// pageOf cuts one page out of a list, which it puts in the order of its keys. A cursor names
// the last of the page before, so that a list that changes repeats nothing.
func pageOf[T any](list []T, cursor string, size int, key func(T) string) (page []T, next string, err error) {
	slices.SortStableFunc(list, func(a, b T) int { return strings.Compare(key(a), key(b)) })
	if cursor != "" {
		after, err := base64.RawURLEncoding.DecodeString(cursor)
		if err != nil || len(after) > 4096 || len(after) == 0 || after[0] != cursorMark {
			return nil, "", invalid("the cursor %q was not given by this server", clip(cursor))
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

// place is where a tool stands among all: comet's own come first.
func (t *tool) place() string {
	if t.builtin != nil {
		return fmt.Sprintf("0 %02d", t.rank)
	}
	return "1 " + t.server + " " + t.name
}

// IsPlace reports whether a text may be the Place of a tool.
func IsPlace(text string) bool { return strings.HasPrefix(text, "0 ") || strings.HasPrefix(text, "1 ") }

// notifyTools, notifyPrompts and notifyResources have the SDK tell its clients that a list
// changed: it does when it is given something.
func (g *Gateway) notifyTools() {
	for _, s := range g.everyServer() {
		s.AddTool(&mcp.Tool{Name: everyTool, InputSchema: emptyObject()}, g.answerCall)
	}
}

func (g *Gateway) notifyPrompts() {
	for _, s := range g.everyServer() {
		s.AddPrompt(&mcp.Prompt{Name: everyPrompt}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return nil, invalid("there is no such prompt")
		})
	}
}

func (g *Gateway) notifyResources() {
	for _, s := range g.everyServer() {
		s.AddResource(&mcp.Resource{URI: everyResource, Name: everyResource}, func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			return nil, mcp.ResourceNotFoundError(r.Params.URI)
		})
	}
}
