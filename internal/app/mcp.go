package app

import (
	"cmp"
	"net/http"
	"os"
	"strings"

	"github.com/go-chi/chi/v5"

	"comet/internal/events"
	"comet/internal/mcp"
	"comet/internal/orchestrator"
	"comet/internal/registry"
	"comet/internal/sandbox"
	"comet/internal/tools"
	"comet/internal/toolsearch"
	"comet/internal/toolsearch/embeddings"
	"comet/internal/upstream"
	"comet/internal/usage"
)

// tooling is the tools and the MCP door, with what they stand on.
type tooling struct {
	upstreams *upstream.Manager
	index     *toolsearch.Index
	sandbox   *sandbox.Sandbox
	hub       *tools.Service
	gateway   *mcp.Server
	door      *mcp.Handler
}

// newTooling puts the tools and the MCP door together. admit is asked for every request to
// the door.
func (a *App) newTooling(reg *registry.Registry, ledger *usage.Ledger, work *orchestrator.Orchestrator, feed *events.Feed, admit admission) (t *tooling, err error) {
	t = &tooling{}
	version := cmp.Or(a.opts.Build.Version, "unknown")
	t.upstreams = upstream.New(&upstream.Options{
		Logger: a.log, Version: version, LookupEnv: lookup, IsProtected: inDir(a.cfg.Data), OnChange: func(c upstream.Change) { t.hub.OnUpstreamChange(c) },
	})
	index := &toolsearch.Options{Logger: a.log, OnChange: func(c toolsearch.Change) { t.hub.OnGraphChange(c) }}
	if index.Embedder, err = a.embedder(); err != nil {
		return nil, err
	}
	cache := 0 // the rooms' own
	if a.cfg.Tools.NoCache {
		cache = -1
	}
	index.CacheSize = cache
	t.index = toolsearch.New(a.store, index)
	if t.sandbox, err = sandbox.New(a.sandboxOptions(cache)); err != nil {
		return nil, err
	}
	t.hub = tools.New(tools.Dependencies{
		Store: a.store, Registry: reg, Usage: ledger, Orchestrator: work, Feed: feed, Upstreams: t.upstreams, Index: t.index, Sandbox: t.sandbox,
	}, a.toolsOptions(func(c tools.Change) { t.gateway.OnChange(c) }))
	t.gateway = mcp.New(t.hub, &mcp.Options{Version: version, Clock: a.opts.Clock, Logger: a.log})
	t.door, err = mcp.NewHandler(t.gateway, a.tokens, &mcp.HandlerOptions{
		Origins: a.cfg.MCP.Origins, Hosts: a.cfg.MCP.Hosts, PublicURL: a.cfg.MCP.PublicURL, AuthorizationServers: a.cfg.MCP.AuthorizationServers,
		MaxBody: a.cfg.MCP.MaxBodyBytes, RateLimit: admit,
	})
	return t, err
}

// lookup finds the variables that definitions of upstreams name. Those of comet's own are
// nobody else's: they hold its tokens and passwords.
func lookup(name string) (string, bool) {
	if strings.HasPrefix(name, "COMET_") {
		return "", false
	}
	return os.LookupEnv(name)
}

func (a *App) toolsOptions(changed func(tools.Change)) *tools.Options {
	return &tools.Options{
		Names: tools.NameStyle(a.cfg.Tools.Names), Expose: tools.Expose(a.cfg.Tools.Expose), Pinned: a.cfg.Tools.Pinned,
		TrustChanges: a.cfg.Tools.TrustChanges, WaitForAudit: a.cfg.Tools.WaitForAudit, Retention: a.cfg.Tools.AuditRetention,
		UpstreamsFile: a.cfg.MCP.Servers, RejectCommands: !a.cfg.MCP.AddCommands, ParentAgent: a.cfg.MCP.Parent, Sphere: a.cfg.MCP.Sphere,
		OnChange: changed, Clock: a.opts.Clock, Registerer: a.metrics.Registerer(), Logger: a.log,
	}
}

func (a *App) sandboxOptions(cache int) *sandbox.Options {
	c := a.cfg.Sandbox
	warm := c.Warm
	if warm == 0 {
		warm = -1
	}
	return &sandbox.Options{
		Timeout: c.Timeout, MaxTimeout: max(c.MaxTimeout, c.Timeout), MemoryMB: c.MemoryMB, MaxMemoryMB: c.MemoryMB, MaxRuns: c.Running, Warm: warm,
		ReadPaths: c.ReadPaths, Protected: inDir(a.cfg.Data), CacheSize: cache, Logger: a.log,
	}
}

// embedder returns what makes vectors of texts, nil for nothing. Its address is the
// operator's own and may be on this machine.
func (a *App) embedder() (toolsearch.Embedder, error) {
	c := a.cfg.Tools.Embeddings
	if c.URL == "" {
		return nil, nil
	}
	return embeddings.New(c.URL, c.Model, &embeddings.Options{Token: c.Key})
}

// add has the parts started in order.
func (t *tooling) add(a *App) {
	a.services.Add("the MCP door", t.door) // first, because its sessions wait for calls of the others
	a.services.Add("the index of tools", t.index)
	a.services.Add("the code sandbox", t.sandbox)
	a.services.Add("the upstreams", t.upstreams)
	a.services.Add("the tools", t.hub)
	a.services.Add("the gateway", t.gateway)
}

// mount adds the MCP door.
func (t *tooling) mount(r chi.Router) {
	for _, path := range t.door.Paths() {
		r.Handle(path, t.door)
	}
}

// endless selects the requests of the doors that set their own limits of time.
func endless(others ...func(*http.Request) bool) func(*http.Request) bool {
	return func(r *http.Request) bool {
		for _, other := range others {
			if other(r) {
				return true
			}
		}
		return false
	}
}
