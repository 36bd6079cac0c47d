package tools

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/toolsearch"
	"comet/internal/upstream"
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

// refreshSoon has a server's tools looked at again.
func (h *Service) refreshSoon(server string) {
	h.staleMu.Lock()
	h.stale[server] = true
	h.staleMu.Unlock()
	select {
	case h.staleAdded <- struct{}{}:
	default:
	}
}

// retryAfter is when a server's tools are looked at again after that failed; it doubles up to
// maxRetry.
const retryAfter, maxRetry = 2 * time.Second, time.Minute

func (h *Service) maintainCatalogue(ctx context.Context) {
	pause := retryAfter
	for {
		if again := h.refreshAll(ctx); again {
			pause = min(2*pause, maxRetry)
		} else {
			pause = retryAfter
		}
		wait := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			wait.Stop()
			return
		case <-h.staleAdded:
			wait.Stop()
		case <-wait.C:
		}
	}
}

// refreshAll looks at the tools of the servers that may have changed, and reports whether one
// could not be.
func (h *Service) refreshAll(ctx context.Context) (again bool) {
	h.staleMu.Lock()
	servers := slices.Sorted(maps.Keys(h.stale))
	clear(h.stale)
	h.staleMu.Unlock()
	if len(servers) == 0 {
		return false
	}
	changed := false
	for _, id := range servers {
		differs, err := h.refresh(ctx, id)
		if changed = changed || differs; err != nil {
			h.log.Warn("the tools of an upstream cannot be taken over yet", "upstream", id, "error", err)
			h.staleMu.Lock()
			h.stale[id] = true
			h.staleMu.Unlock()
			again = true
		}
	}
	if changed {
		h.publish()
	}
	return again
}

// refresh takes over a server's tools as they are, none where it is not up, and reports
// whether they are others than before.
func (h *Service) refresh(ctx context.Context, id string) (differs bool, err error) {
	h.refreshing.Lock()
	defer h.refreshing.Unlock()
	s, known := h.status(id)
	var tools []*tool
	if known && s.State == upstream.Ready {
		if tools, err = h.checkDefinitions(ctx, id, h.upstreams.Tools(id)); err != nil {
			return false, err
		}
	}
	h.catalogueMu.Lock()
	before, had := h.upstreamTools[id]
	differs = had != (tools != nil) || !slices.EqualFunc(before, tools, sameTool)
	if tools == nil {
		delete(h.upstreamTools, id)
	} else {
		h.upstreamTools[id] = tools
	}
	h.catalogueMu.Unlock()
	if differs {
		h.index.Replace(id, indexEntries(tools))
	}
	return differs, h.upstreamAgents.update(ctx, id, known && s.State == upstream.Ready, tools)
}

// refreshNow has what was said about a server's tools count before that is answered.
func (h *Service) refreshNow(ctx context.Context, id string) {
	differs, err := h.refresh(ctx, id)
	if err != nil {
		h.refreshSoon(id)
	}
	if differs {
		h.publish()
	}
}

// sameTool reports whether two tools are the same to whoever calls them.
func sameTool(a, b *tool) bool {
	return a.id == b.id && a.digest == b.digest && a.class == b.class && a.quarantined == b.quarantined
}

// publish makes the catalogue of what there is, and tells the doors.
func (h *Service) publish() {
	h.catalogueMu.Lock()
	h.catalogue.Store(newCatalogue(h.builtins, h.upstreamTools))
	h.catalogueMu.Unlock()
	h.opts.OnChange(Change{Kind: ToolsChanged})
}

// WaitForUpstreams waits until no upstream is being started for the first time, or patience has passed.
func (h *Service) WaitForUpstreams(ctx context.Context, patience time.Duration) {
	late := time.NewTimer(patience)
	defer late.Stop()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		if h.upstreamsSettled() {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-late.C:
			return
		case <-look.C:
		}
	}
}

// upstreamsSettled reports whether every upstream has started or failed to, and the catalogue has the
// tools of those that are ready.
func (h *Service) upstreamsSettled() bool {
	have := h.catalogue.Load().servers
	for _, s := range h.upstreams.Servers() {
		if s.State == upstream.Starting && s.Error == "" || s.State == upstream.Ready && s.Tools > 0 && !slices.Contains(have, s.ID) {
			return false
		}
	}
	return true
}
