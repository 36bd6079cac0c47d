package tools

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/auth"
	"comet/internal/toolsearch"
	"comet/models"
)

// policyOf returns the policy of the caller, after a check of its scope.
func (svc *Service) policyOf(ctx context.Context, by Caller) (*policy, error) {
	if err := auth.Require(by.Principal, models.ScopeToolsCall); err != nil {
		return nil, toCallError(err)
	}
	p, err := svc.cachedPolicyOf(ctx, by.Principal.TokenID)
	if err != nil {
		return nil, toCallError(err)
	}
	return p, nil
}

// Listed is a tool, a resource, a template or a prompt as the lists of MCP return it. Key is its sort key.
type Listed[T any] struct {
	Key  string
	Item T
}

// MCPTools returns what tools/list returns: comet's own tools and the pinned ones, or all.
func (svc *Service) MCPTools(ctx context.Context, by Caller) ([]Listed[*mcp.Tool], error) {
	policy, err := svc.policyOf(ctx, by)
	if err != nil {
		return nil, err
	}
	visible := svc.catalogue.Load().visible(policy)
	servers := connectedServers(visible)
	var out []Listed[*mcp.Tool]
	for _, t := range visible {
		if svc.isListed(t) {
			out = append(out, Listed[*mcp.Tool]{t.Position(), listing(t, servers)})
		}
	}
	return out, nil
}

// isListed reports whether MCPTools returns a tool.
func (svc *Service) isListed(t *Tool) bool {
	if svc.opts.Expose == ExposeAll || t.IsBuiltin() && !t.builtin.Hidden {
		return true
	}
	return slices.ContainsFunc(svc.opts.Pinned, func(name string) bool {
		return name == t.ID || name == t.ListedName || name == portable(t.Server, t.Name) || matchesPattern(name, t.ID)
	})
}

// listing returns the definition of a tool under its listed name. The descriptions of the
// AgentCards tools name the connected servers.
func listing(t *Tool, servers string) *mcp.Tool {
	d := *t.Definition
	d.Name = t.ListedName
	if t.IsGateway() && !t.builtin.Follows {
		d.Description += servers
	}
	return &d
}

// Tools returns up to limit tools that a token may call, of one server or of all (""), in the
// order of MCPTools, after the position after.
func (svc *Service) Tools(ctx context.Context, by models.Principal, server, after string, limit int) ([]*Tool, error) {
	p, err := svc.cachedPolicyOf(ctx, by.TokenID)
	if err != nil {
		return nil, err
	}
	list := slices.DeleteFunc(svc.catalogue.Load().visible(p), func(t *Tool) bool {
		return server != "" && t.Server != server || t.Position() <= after
	})
	slices.SortFunc(list, func(a, b *Tool) int { return strings.Compare(a.Position(), b.Position()) })
	return list[:min(limit, len(list))], nil
}

// UsageGraph returns the usage graph of the tools that a token may call, at most limit of them.
func (svc *Service) UsageGraph(ctx context.Context, by models.Principal, limit int) (toolsearch.Usage, error) {
	p, err := svc.cachedPolicyOf(ctx, by.TokenID)
	if err != nil {
		return toolsearch.Usage{}, err
	}
	allowed := map[string]bool{}
	for _, t := range svc.catalogue.Load().visible(p) {
		allowed[t.ID] = true
	}
	return svc.index.Usage(func(id string) bool { return allowed[id] }, limit), nil
}

// Position returns the sort key of a tool; comet's own tools come first.
func (t *Tool) Position() string {
	if t.IsBuiltin() {
		return fmt.Sprintf("0 %02d", t.rank)
	}
	return "1 " + t.Server + " " + t.Name
}

// IsPosition reports whether a text has the form of a position.
func IsPosition(text string) bool {
	return strings.HasPrefix(text, "0 ") || strings.HasPrefix(text, "1 ")
}

// InputSchema returns the decoded input schema of an upstream's tool, nil for a tool that the caller may not see.
func (svc *Service) InputSchema(ctx context.Context, by models.Principal, name string) (map[string]any, error) {
	t := svc.catalogue.Load().byName[name]
	if t == nil || t.IsBuiltin() {
		return nil, nil
	}
	p, err := svc.cachedPolicyOf(ctx, by.TokenID)
	if err != nil || !t.visibleTo(p) {
		return nil, err
	}
	schema, _ := t.Definition.InputSchema.(map[string]any)
	return schema, nil
}
