package tools

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/models"
)

// Builtin is one of comet's own tools (Service.Register).
type Builtin struct {
	// Server and the name of Definition form its id.
	Server     string
	Definition *mcp.Tool
	Class      models.ToolClass
	// Scope is required to call the tool, "" for none; the tool is visible without it.
	Scope models.Scope
	// Hidden tools can be called and found, and are listed only with ExposeAll.
	Hidden bool
	// Gateway tools reach other tools, and only those that the policy allows. So policies do not
	// hide them unless they deny them, and their descriptions name the connected servers.
	Gateway bool
	// Follows is set for a gateway tool that continues what another one has begun: the search index does not have it,
	// and its description does not name the connected servers.
	Follows bool
	// Finder is the tool that finds others. The search index does not have it, and the error for an
	// unknown tool names it.
	Finder bool
	// Execute executes a call.
	Execute func(context.Context, *Invocation) (*mcp.CallToolResult, error)
}

// Register adds comet's own tools in the order of lists. Call it once, before Start.
func (svc *Service) Register(list []Builtin) {
	found := map[string][]*Tool{}
	for i, b := range list {
		t := &Tool{
			ID: toolID(b.Server, b.Definition.Name), Server: b.Server, Name: b.Definition.Name, ListedName: svc.opts.Names.listed(b.Server, b.Definition.Name),
			Definition: b.Definition, Class: b.Class, builtin: &list[i], rank: i,
		}
		if svc.builtins = append(svc.builtins, t); b.Finder {
			svc.finder = t.ID
		}
		if b.Finder || b.Follows {
			continue
		}
		found[b.Server] = append(found[b.Server], t)
	}
	svc.catalogue.Store(newCatalogue(svc.builtins, nil))
	for server, tools := range found {
		svc.index.Replace(server, indexEntries(tools))
	}
}

func (svc *Service) isOwnServer(id string) bool {
	return slices.ContainsFunc(svc.builtins, func(t *Tool) bool { return t.Server == id })
}

// IsBuiltin reports whether the tool is one of comet's own.
func (t *Tool) IsBuiltin() bool { return t.builtin != nil }

// IsGateway reports whether the tool reaches other tools.
func (t *Tool) IsGateway() bool { return t.builtin != nil && t.builtin.Gateway }

// connectedServers returns a sentence with the servers whose tools a caller may see: models do not
// search for tools of servers they do not know (ADR-013 of AgentCards lists only these tools).
func connectedServers(visible []*Tool) string {
	var servers []string
	for _, t := range visible {
		if !t.IsBuiltin() && (len(servers) == 0 || servers[len(servers)-1] != t.Server) {
			servers = append(servers, t.Server)
		}
	}
	if len(servers) == 0 {
		return " No server is connected."
	}
	const most = 40
	more := ""
	if len(servers) > most {
		more = fmt.Sprintf(" and %d more", len(servers)-most)
		servers = servers[:most]
	}
	return " Connected servers: " + strings.Join(servers, ", ") + more + "."
}
