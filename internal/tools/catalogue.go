package tools

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/toolsearch"
	"comet/models"
)

// tool is one that can be called, of an upstream or comet's own.
type tool struct {
	id, server, name string
	// listed is the name it is listed with.
	listed string
	// def is what its server says of it; nobody changes it.
	def   *mcp.Tool
	class models.ToolClass
	// digest is that of its definition.
	digest string
	// quarantined is that its definition changed and nobody has approved that.
	quarantined bool
	// builtin does the work of comet's own tools; nil for an upstream's.
	builtin func(ctx context.Context, c *call) (*mcp.CallToolResult, error)
	// rank is where one of comet's own stands among them: what finds the others is first.
	rank int
	// hidden tools are called and found, and not listed unless all are.
	hidden bool
	// scope is a scope without which a call is refused; "" for none. The tool is shown all the
	// same: who asks for it hears what is missing.
	scope models.Scope
}

// catalogue is all tools as they are at one moment. It never changes.
type catalogue struct {
	// byName has every tool under each of its names.
	byName map[string]*tool
	// all is in the order of the ids, comet's own first.
	all []*tool
	// servers are those whose tools are there.
	servers []string
}

// newCatalogue returns what is there together. The order does not depend on that in which
// servers came.
func newCatalogue(builtins []*tool, upstreams map[string][]*tool) *catalogue {
	c := &catalogue{byName: map[string]*tool{}}
	c.all = append(c.all, builtins...)
	for id, tools := range upstreams {
		c.servers = append(c.servers, id)
		c.all = append(c.all, tools...)
	}
	slices.Sort(c.servers)
	slices.SortStableFunc(c.all[len(builtins):], func(a, b *tool) int {
		return cmp.Or(strings.Compare(a.server, b.server), strings.Compare(a.name, b.name))
	})
	for _, t := range c.all {
		c.byName[t.id] = t
	}
	for _, t := range c.all { // an id comes before another's listed name
		if _, taken := c.byName[portable(t.server, t.name)]; !taken {
			c.byName[portable(t.server, t.name)] = t
		}
	}
	return c
}

// find returns the tool with a name, in any of its forms.
func (c *catalogue) find(name string) *tool { return c.byName[name] }

// visible returns the tools that a policy shows, in order.
func (c *catalogue) visible(p *policy) []*tool {
	out := make([]*tool, 0, len(c.all))
	for _, t := range c.all {
		if t.visibleTo(p) {
			out = append(out, t)
		}
	}
	return out
}

// visibleTo reports whether the holder of a policy may see a tool.
func (t *tool) visibleTo(p *policy) bool {
	return !t.quarantined && p.allowsTool(t.server, t.name, t.class)
}

// classOf is what the annotations of a tool say it may do (MCP, ToolAnnotations): one that
// says nothing may do anything.
func classOf(d *mcp.Tool) models.ToolClass {
	a := d.Annotations
	switch {
	case a != nil && a.ReadOnlyHint:
		return models.ToolRead
	case a != nil && a.DestructiveHint != nil && !*a.DestructiveHint:
		return models.ToolWrite
	}
	return models.ToolDestructive
}

// indexEntry is a tool as the search knows it.
func (t *tool) indexEntry() toolsearch.Tool {
	return toolsearch.Tool{
		ID: t.id, Server: t.server, Name: t.name, Title: titleOf(t.def), Description: t.def.Description, InputSchema: schemaText(t.def.InputSchema),
	}
}

func titleOf(d *mcp.Tool) string {
	if d.Title == "" && d.Annotations != nil {
		return d.Annotations.Title
	}
	return d.Title
}

func indexEntries(tools []*tool) []toolsearch.Tool {
	out := make([]toolsearch.Tool, 0, len(tools))
	for _, t := range tools {
		if !t.quarantined {
			out = append(out, t.indexEntry())
		}
	}
	return out
}
