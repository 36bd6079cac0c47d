package tools

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/background"
	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/input/schema"
	"comet/internal/toolsearch"
	"comet/internal/upstream"
	"comet/models"
)

// Tool is a tool of an upstream or comet's own.
type Tool struct {
	ID, Server, Name string
	// listed is the name in lists.
	ListedName string
	// def is the definition of its server; it is read only.
	Definition *mcp.Tool
	Class      models.ToolClass
	// digest is the digest of the definition.
	digest string
	// quarantined is true where the definition has changed and is not approved.
	quarantined bool
	// schema returns the schema of the arguments of an upstream's tool, nil if it cannot be used.
	schema func() *jsonschema.Resolved
	// builtin is nil for tools of upstreams, and rank the position among comet's own tools.
	builtin *Builtin
	rank    int
}

// catalogue is all tools at one moment. It is read only.
type catalogue struct {
	// byName has every tool under each of its names.
	byName map[string]*Tool
	// all is sorted by id, comet's own tools first.
	all []*Tool
	// servers are the servers with tools.
	servers []string
}

// newCatalogue returns a catalogue, whose order does not depend on the order of the arguments.
func newCatalogue(builtins []*Tool, upstreams map[string][]*Tool) *catalogue {
	c := &catalogue{byName: map[string]*Tool{}}
	c.all = append(c.all, builtins...)
	for id, tools := range upstreams {
		c.servers = append(c.servers, id)
		c.all = append(c.all, tools...)
	}
	slices.Sort(c.servers)
	slices.SortStableFunc(c.all[len(builtins):], func(a, b *Tool) int {
		return cmp.Or(strings.Compare(a.Server, b.Server), strings.Compare(a.Name, b.Name))
	})
	for _, t := range c.all {
		c.byName[t.ID] = t
	}
	for _, t := range c.all { // an id takes precedence over another tool's listed name
		if _, taken := c.byName[portable(t.Server, t.Name)]; !taken {
			c.byName[portable(t.Server, t.Name)] = t
		}
	}
	return c
}

// visible returns the tools that a policy allows, in order.
func (c *catalogue) visible(p *policy) []*Tool {
	out := make([]*Tool, 0, len(c.all))
	for _, t := range c.all {
		if t.visibleTo(p) {
			out = append(out, t)
		}
	}
	return out
}

func (t *Tool) visibleTo(p *policy) bool { return !t.quarantined && t.allowedBy(p) }

// allowedBy reports whether a policy allows the tool with any arguments.
func (t *Tool) allowedBy(p *policy) bool { return t.refusedBy(p) == nil }

// refusedBy returns why a policy does not allow the tool with any arguments, nil if it does.
func (t *Tool) refusedBy(p *policy) *refusal {
	if t.IsGateway() { // calls from code are checked on their own
		return p.deny(t.Server, t.Name)
	}
	return p.refuse(t.Server, t.Name, t.Class)
}

// classOf returns the class of a tool by its annotations; without them it is destructive.
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

// IsRepeatable reports whether a call whose result was lost may be repeated.
func (t *Tool) IsRepeatable() bool {
	a := t.Definition.Annotations
	return t.Class == models.ToolRead || a != nil && a.IdempotentHint
}

// CheckArguments returns INVALID_ARGUMENTS for arguments that the schema of the tool does not allow. comet's own tools check
// theirs themselves, and a schema that cannot be used allows all.
func (t *Tool) CheckArguments(arguments json.RawMessage) error {
	if t.schema == nil {
		return nil
	}
	if err := schema.Validate(t.schema(), arguments); err != nil {
		return NewError(errs.InvalidRequest, "INVALID_ARGUMENTS", "the arguments of %s do not match its schema: %s", t.ID, input.ClipTo(err.Error(), maxProblem))
	}
	return nil
}

// maxProblem limits the description of invalid arguments, in characters.
const maxProblem = 1000

// metaTasks is the member of a tool's _meta that is "required" if its calls must become tasks of MCP.
const metaTasks = "comet/tasks"

// DemandsTasks reports whether the tool with a name in any form demands that its calls become tasks of MCP.
func (svc *Service) DemandsTasks(name string) bool {
	t := svc.catalogue.Load().byName[name]
	return t != nil && t.Definition.Meta[metaTasks] == "required"
}

// Title returns the title of the tool, "" for none.
func (t *Tool) Title() string {
	if t.Definition.Title == "" && t.Definition.Annotations != nil {
		return t.Definition.Annotations.Title
	}
	return t.Definition.Title
}

func indexEntries(tools []*Tool) []toolsearch.Tool {
	out := make([]toolsearch.Tool, 0, len(tools))
	for _, t := range tools {
		if !t.quarantined {
			out = append(out, toolsearch.Tool{
				ID: t.ID, Server: t.Server, Name: t.Name, Title: t.Title(), Description: t.Definition.Description, InputSchema: schemaText(t.Definition.InputSchema),
			})
		}
	}
	return out
}

// retryAfter is the pause after a failed refresh; it doubles up to maxRetry.
const retryAfter, maxRetry = 2 * time.Second, time.Minute

// newRefresher returns the loop that refreshes the tools of stale servers.
func (svc *Service) newRefresher() *background.PollLoop {
	pause := retryAfter
	var failed []string
	return background.NewPollLoop(background.PollOptions{Signal: svc.stale.Signal}, func(ctx context.Context) (time.Duration, error) {
		if failed = svc.refreshAll(ctx, slices.Concat(failed, svc.stale.Take())); len(failed) == 0 {
			pause = retryAfter
		} else {
			pause = min(2*pause, maxRetry)
		}
		return pause, nil
	})
}

// refreshAll refreshes the tools of servers and returns those that have to be retried.
func (svc *Service) refreshAll(ctx context.Context, servers []string) (failed []string) {
	changed := false
	for _, id := range slices.Compact(slices.Sorted(slices.Values(servers))) {
		differs, err := svc.refresh(ctx, id)
		if changed = changed || differs; err != nil {
			svc.log.Warn("refresh the tools of an upstream; retrying", "upstream", id, "error", err)
			failed = append(failed, id)
		}
	}
	if changed {
		svc.publish()
	}
	return failed
}

// refresh updates the tools of a server, none if it is not ready, and reports changes.
func (svc *Service) refresh(ctx context.Context, id string) (differs bool, err error) {
	svc.refreshing.Lock()
	defer svc.refreshing.Unlock()
	s, known := svc.upstreams.Server(id)
	var tools []*Tool
	if known && s.State == upstream.Ready {
		if tools, err = svc.checkDefinitions(ctx, id, svc.upstreams.Tools(id)); err != nil {
			return false, err
		}
	}
	before, had := svc.upstreamTools[id]
	differs = had != (tools != nil) || !slices.EqualFunc(before, tools, func(a, b *Tool) bool {
		return a.ID == b.ID && a.digest == b.digest && a.Class == b.Class && a.quarantined == b.quarantined
	})
	if tools == nil {
		delete(svc.upstreamTools, id)
	} else {
		svc.upstreamTools[id] = tools
	}
	if differs {
		svc.index.Replace(id, indexEntries(tools))
		svc.catalogue.Store(newCatalogue(svc.builtins, svc.upstreamTools)) // before the agent of the server offers its tools
	}
	return differs, svc.upstreamAgents.update(ctx, id, known && s.State == upstream.Ready, tools)
}

// refreshNow refreshes a server's tools before the caller returns. It always publishes them: the refresher
// may have seen the change, and not have published it yet.
func (svc *Service) refreshNow(ctx context.Context, id string) {
	if _, err := svc.refresh(ctx, id); err != nil {
		svc.stale.Add(id)
	}
	svc.publish()
}

// publish builds the catalogue and notifies clients.
func (svc *Service) publish() {
	svc.refreshing.Lock()
	svc.catalogue.Store(newCatalogue(svc.builtins, svc.upstreamTools))
	svc.refreshing.Unlock()
	svc.opts.OnChange(upstream.Change{Kind: upstream.Tools})
}

// WaitForUpstreams waits at most timeout until every upstream has started or failed once, and reports whether that is so.
func (svc *Service) WaitForUpstreams(ctx context.Context, timeout time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for !svc.upstreamsSettled() {
		if background.Sleep(ctx, 20*time.Millisecond) != nil {
			return false
		}
	}
	return true
}

// upstreamsSettled reports whether every upstream has started, with its tools known, or failed.
func (svc *Service) upstreamsSettled() bool {
	have := svc.catalogue.Load().servers
	for _, s := range svc.upstreams.Servers() {
		if s.State == upstream.Starting && s.Error == "" || s.State == upstream.Ready && s.Tools > 0 && !slices.Contains(have, s.ID) {
			return false
		}
	}
	return true
}
