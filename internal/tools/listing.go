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

// policyOf returns the policy of the caller, after a check of its scope.
func (svc *Service) policyOf(ctx context.Context, by Caller) (*policy, error) {
	if err := auth.Require(by.Principal, models.ScopeToolsCall); err != nil {
		return nil, toError(err)
	}
	p, err := svc.policies.get(ctx, by.Principal.TokenID)
	if err != nil {
		return nil, toError(err)
	}
	return p, nil
}

// MCPTool is a tool as tools/list returns it, under its listed name.
type MCPTool struct {
	// Position sorts the tool among all.
	Position string
	Tool     *mcp.Tool
}

// MCPTools returns the tools that tools/list returns: comet's own and the pinned ones, or all
// (Options.Expose).
func (svc *Service) MCPTools(ctx context.Context, by Caller) ([]MCPTool, error) {
	policy, err := svc.policyOf(ctx, by)
	if err != nil {
		return nil, err
	}
	visible := svc.catalogue.Load().visible(policy)
	servers := connectedServers(visible)
	var out []MCPTool
	for _, t := range visible {
		if svc.isListed(t) {
			out = append(out, MCPTool{t.position(), listing(t, servers)})
		}
	}
	return out, nil
}

// isListed reports whether MCPTools returns a tool.
func (svc *Service) isListed(t *tool) bool {
	if svc.opts.Expose == ExposeAll || t.builtin != nil && !t.hidden {
		return true
	}
	return slices.ContainsFunc(svc.opts.Pinned, func(name string) bool {
		return name == t.id || name == t.listed || name == portable(t.server, t.name) || matchesPattern(name, t.id)
	})
}

// listing returns the definition of a tool under its listed name. The descriptions of the
// AgentCards tools name the connected servers.
func listing(t *tool, servers string) *mcp.Tool {
	d := *t.def
	d.Name = t.listed
	if t.builtin != nil && t.server == agentCardsServer {
		d.Description += servers
	}
	return &d
}

// Tools returns up to limit tools that a token may call, of one server or of all (""), in the
// order of MCPTools, after the position after.
func (svc *Service) Tools(ctx context.Context, by models.Principal, server, after string, limit int) ([]ToolInfo, error) {
	p, err := svc.policies.get(ctx, by.TokenID)
	if err != nil {
		return nil, err
	}
	list := slices.DeleteFunc(svc.catalogue.Load().visible(p), func(t *tool) bool {
		return server != "" && t.server != server || t.position() <= after
	})
	slices.SortFunc(list, func(a, b *tool) int { return strings.Compare(a.position(), b.position()) })
	out := []ToolInfo{}
	for _, t := range list[:min(limit, len(list))] {
		out = append(out, t.info())
	}
	return out, nil
}

// ToolInfo describes a tool for the REST API.
type ToolInfo struct {
	// Position sorts the tool among all.
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

// position returns the sort key of a tool; comet's own tools come first.
func (t *tool) position() string {
	if t.builtin != nil {
		return fmt.Sprintf("0 %02d", t.rank)
	}
	return "1 " + t.server + " " + t.name
}

// IsPosition reports whether a text has the form of a position.
func IsPosition(text string) bool {
	return strings.HasPrefix(text, "0 ") || strings.HasPrefix(text, "1 ")
}
