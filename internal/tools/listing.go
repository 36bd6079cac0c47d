package tools

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/auth"
	"comet/models"
)

// policyOf returns what the caller may do, or why not.
func (h *Service) policyOf(ctx context.Context, by Caller) (*policy, error) {
	if err := auth.Require(by.Principal, models.ScopeToolsCall); err != nil {
		return nil, toError(err)
	}
	p, err := h.policies.get(ctx, by.Principal.TokenID)
	if err != nil {
		return nil, toError(err)
	}
	return p, nil
}

// MCPTool is a tool as tools/list shows it, under its listed name.
type MCPTool struct {
	// Position is where it stands among all.
	Position string
	Tool     *mcp.Tool
}

// MCPTools returns the tools that a client is shown that asks for all: comet's own, which say
// what they are over, and those that are pinned, or all (Options.Expose).
func (h *Service) MCPTools(ctx context.Context, by Caller) ([]MCPTool, error) {
	may, err := h.policyOf(ctx, by)
	if err != nil {
		return nil, err
	}
	visible := h.catalogue.Load().visible(may)
	servers := connectedServers(visible)
	var out []MCPTool
	for _, t := range visible {
		if h.isListed(t) {
			out = append(out, MCPTool{t.position(), listing(t, servers)})
		}
	}
	return out, nil
}

// isListed reports whether a tool is shown to who asks for all.
func (h *Service) isListed(t *tool) bool {
	if h.opts.Expose == ExposeAll || t.builtin != nil && !t.hidden {
		return true
	}
	return slices.ContainsFunc(h.opts.Pinned, func(name string) bool {
		return name == t.id || name == t.listed || name == portable(t.server, t.name) || matchesPattern(name, t.id)
	})
}

// listing is a tool as a client sees it: under its listed name, and comet's own with what
// they are over.
func listing(t *tool, servers string) *mcp.Tool {
	d := *t.def
	d.Name = t.listed
	if t.builtin != nil && t.server == agentCardsServer {
		d.Description += servers
	}
	return &d
}

// Tools returns up to limit tools that a token may call, of one server or of all (""), in the
// order in which MCP lists them, behind the one whose place is after.
func (h *Service) Tools(ctx context.Context, by models.Principal, server, after string, limit int) ([]ToolInfo, error) {
	p, err := h.policies.get(ctx, by.TokenID)
	if err != nil {
		return nil, err
	}
	list := slices.DeleteFunc(h.catalogue.Load().visible(p), func(t *tool) bool {
		return server != "" && t.server != server || t.position() <= after
	})
	slices.SortFunc(list, func(a, b *tool) int { return strings.Compare(a.position(), b.position()) })
	out := []ToolInfo{}
	for _, t := range list[:min(limit, len(list))] {
		out = append(out, t.info())
	}
	return out, nil
}

// ToolInfo is a tool as doors other than MCP show it.
type ToolInfo struct {
	// Position is where it stands among all.
	Position    string
	ID          string
	Server      string
	Name        string
	ListedName  string
	Title       string
	Description string
	Class       models.ToolClass
	InputSchema any
}

func (t *tool) info() ToolInfo {
	return ToolInfo{
		Position: t.position(), ID: t.id, Server: t.server, Name: t.name, ListedName: t.listed, Title: titleOf(t.def), Description: t.def.Description,
		Class: t.class, InputSchema: t.def.InputSchema,
	}
}

// position is where a tool stands among all: comet's own come first.
func (t *tool) position() string {
	if t.builtin != nil {
		return fmt.Sprintf("0 %02d", t.rank)
	}
	return "1 " + t.server + " " + t.name
}

// IsPosition reports whether a text may be the Place of a tool.
func IsPosition(text string) bool {
	return strings.HasPrefix(text, "0 ") || strings.HasPrefix(text, "1 ")
}
