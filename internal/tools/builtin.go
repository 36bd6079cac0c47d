package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/models"
)

// Builtin is one of comet's own tools (Service.Register).
type Builtin struct {
	// Server and the name of Definition form its id.
	Server     string
	Definition *mcp.Tool
	Class      models.ToolClass
	// Scope is required to call the tool, "" for none. The tool is visible without it, so that the
	// error can name the missing scope.
	Scope models.Scope
	// Hidden tools can be called and found, and are listed only with ExposeAll.
	Hidden bool
	// Gateway tools reach other tools, and only those that the policy allows. So policies do not
	// hide them unless they deny them, and their descriptions name the connected servers.
	Gateway bool
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
			continue
		}
		found[b.Server] = append(found[b.Server], t)
	}
	svc.catalogue.Store(newCatalogue(svc.builtins, nil))
	for server, tools := range found {
		svc.index.Replace(server, indexEntries(tools))
	}
}

// isOwnServer reports whether an id is a server of comet's own tools.
func (svc *Service) isOwnServer(id string) bool {
	return slices.ContainsFunc(svc.builtins, func(t *Tool) bool { return t.Server == id })
}

// IsBuiltin reports whether the tool is one of comet's own.
func (t *Tool) IsBuiltin() bool { return t.builtin != nil }

// IsGateway reports whether the tool reaches other tools.
func (t *Tool) IsGateway() bool { return t.builtin != nil && t.builtin.Gateway }

// connectedServers returns a sentence with the servers whose tools a caller may see, because
// models do not search for tools of servers they do not know (ADR-013 of AgentCards lists only
// these tools).
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

// Invocation is a call in progress.
type Invocation struct {
	ID        string
	Caller    Caller
	Arguments json.RawMessage
	Options   CallOptions

	at        time.Time
	tool      *Tool
	policy    *policy // of the caller's token
	failed    bool    // the tool returned an error as its result
	catalogue *catalogue
}

// Visible returns the tools that the caller may see, comet's own first, in order.
func (c *Invocation) Visible() []*Tool { return c.catalogue.visible(c.policy) }

// Find returns the tool that has a name in any of its forms, nil where there is none or the caller
// may not see it.
func (c *Invocation) Find(name string) *Tool {
	if t := c.catalogue.find(name); t != nil && t.visibleTo(c.policy) {
		return t
	}
	return nil
}

// Decode decodes the arguments, rejects unknown members and checks the fields.
func (c *Invocation) Decode(v any) error {
	err := input.DecodeJSON(c.Arguments, v)
	if err == nil {
		err = input.Validate(v).Err()
	}
	if err != nil {
		return c.Invalid("%s: %s", c.tool.ID, Detail(err))
	}
	return nil
}

// Invalid returns an error for invalid arguments: INVALID_PARAMS (AgentCards, “Codes d'erreur”).
func (c *Invocation) Invalid(format string, args ...any) error {
	return errs.Wrap(errs.InvalidRequest, ErrInvalidArguments, format, args...).With(memberName, "INVALID_ARGUMENTS")
}
