package app

import (
	"cmp"
	"context"
	"os"
	"slices"
	"strings"

	"comet/internal/events"
	"comet/internal/httpkit"
	"comet/internal/mcp"
	"comet/internal/netguard"
	"comet/internal/orchestrator"
	"comet/internal/registry"
	"comet/internal/sandbox"
	"comet/internal/tools"
	"comet/internal/tools/builtin"
	"comet/internal/toolsearch"
	"comet/internal/toolsearch/embeddings"
	"comet/internal/upstream"
	"comet/internal/usage"
	"comet/internal/workflow"
	"comet/models"
)

// toolStack is the tools, the MCP server and what they use.
type toolStack struct {
	upstreams *upstream.Manager
	index     *toolsearch.Index
	sandbox   *sandbox.Sandbox
	service   *tools.Service
	workflows *workflow.Engine
	server    *mcp.Server
	handler   *mcp.Handler
}

// newToolStack creates the tools and the MCP server.
func (a *App) newToolStack(reg *registry.Registry, ledger *usage.Ledger, work *orchestrator.Orchestrator, feed *events.Feed, limits *httpkit.Limits) (t *toolStack, err error) {
	t = &toolStack{}
	version := cmp.Or(a.opts.Build.Version, "unknown")
	t.upstreams = upstream.New(&upstream.Options{
		Logger: a.log, Version: version, LookupEnv: lookupEnv, IsProtected: inDir(a.cfg.Data), OnChange: func(c upstream.Change) { t.service.OnUpstreamChange(c) },
		Tokens: func(ctx context.Context, id, address string) (upstream.TokenSource, error) {
			return t.service.UpstreamTokens(ctx, id, address)
		},
	})
	index := &toolsearch.Options{Logger: a.log, OnChange: func(c toolsearch.Change) { t.service.OnGraphChange(c) }}
	if index.Embedder, err = a.embedder(); err != nil {
		return nil, err
	}
	cache := 0 // the default of each package
	if a.cfg.Tools.NoCache {
		cache = -1
	}
	index.CacheSize = cache
	t.index = toolsearch.New(a.store, index)
	if t.sandbox, err = sandbox.New(a.sandboxOptions(cache)); err != nil {
		return nil, err
	}
	t.service = tools.New(tools.Dependencies{
		Store: a.store, Registry: reg, Usage: ledger, Orchestrator: work, Feed: feed, Upstreams: t.upstreams, Index: t.index,
	}, a.toolsOptions(func(c upstream.Change) { t.server.OnChange(c) }))
	t.workflows = workflow.New(workflow.Dependencies{Store: a.store, Auth: a.tokens, Tools: t.service, Orchestrator: work, Feed: feed}, &workflow.Options{Logger: a.log})
	builtin.Register(builtin.Dependencies{
		Tools: t.service, Orchestrator: work, Auth: a.tokens, Index: t.index, Sandbox: t.sandbox, Workflows: t.workflows, Clock: a.opts.Clock,
	})
	t.server = mcp.New(t.service, &mcp.Options{
		Version: version, OnFailure: func(code string) { a.metrics.CountFailure("mcp", code) }, Clock: a.opts.Clock, Logger: a.log,
	})
	servers := a.cfg.MCP.AuthorizationServers
	if issuer := a.cfg.OIDC.Issuer; issuer != "" && !slices.Contains(servers, issuer) {
		servers = append(slices.Clip(servers), issuer)
	}
	t.handler, err = mcp.NewHandler(t.server, a.tokens, &mcp.HandlerOptions{
		Origins: a.cfg.MCP.Origins, Hosts: a.cfg.MCP.Hosts, PublicURL: a.cfg.MCP.PublicURL, AuthorizationServers: servers, Scopes: a.cfg.OIDC.ScopesToRequest(models.ScopeToolsCall),
		MaxBody: a.cfg.MCP.MaxBodyBytes, Limits: limits,
	})
	return t, err
}

// lookupEnv returns a variable that the definition of an upstream names. comet's own variables
// are not available to it, because they hold tokens and passwords.
func lookupEnv(name string) (string, bool) {
	if strings.HasPrefix(name, "COMET_") {
		return "", false
	}
	return os.LookupEnv(name)
}

func (a *App) toolsOptions(changed func(upstream.Change)) *tools.Options {
	return &tools.Options{
		Names: tools.NameStyle(a.cfg.Tools.Names), Expose: tools.Expose(a.cfg.Tools.Expose), Pinned: a.cfg.Tools.Pinned,
		TrustChanges: a.cfg.Tools.TrustChanges, QuarantineNew: a.cfg.Tools.QuarantineNew, Keys: a.secrets, RedirectURL: a.redirectURL, Guard: netguard.New(a.cfg.Webhooks.Networks()), WaitForAudit: a.cfg.Tools.WaitForAudit, Retention: a.cfg.Tools.AuditRetention,
		UpstreamsFile: a.cfg.MCP.Servers, RejectCommands: !a.cfg.MCP.AddCommands, ParentAgent: a.cfg.MCP.Parent, Sphere: a.cfg.MCP.Sphere,
		OnChange: changed, Clock: a.opts.Clock, Registerer: a.metrics.Registerer(), Logger: a.log,
	}
}

// redirectURL returns the address to which browsers return from the authorization servers of upstreams, ""
// without an HTTP listener.
func (a *App) redirectURL() string {
	const path = "/oauth/callback"
	switch {
	case a.cfg.MCP.PublicURL != "":
		return strings.TrimSuffix(a.cfg.MCP.PublicURL, "/") + path
	case a.http == nil || a.http.listener == nil:
		return ""
	}
	return a.http.url() + path
}

func (a *App) sandboxOptions(cache int) *sandbox.Options {
	c := a.cfg.Sandbox
	return &sandbox.Options{
		Timeout: c.Timeout, MaxTimeout: max(c.MaxTimeout, c.Timeout), MemoryMB: c.MemoryMB, MaxRuns: c.Running, Warm: cmp.Or(c.Warm, -1),
		ReadPaths: c.ReadPaths, Protected: inDir(a.cfg.Data), CacheSize: cache, Logger: a.log,
	}
}

// embedder returns the client of the embeddings server, nil if none is configured. Its address is
// the operator's own and may be on this machine.
func (a *App) embedder() (toolsearch.Embedder, error) {
	c := a.cfg.Tools.Embeddings
	if c.URL == "" {
		return nil, nil
	}
	return embeddings.New(c.URL, c.Model, &embeddings.Options{Token: c.Key})
}

// addServices adds the parts to the services of a, in the order in which they start.
func (t *toolStack) addServices(a *App) {
	a.services.Add("the MCP endpoint", t.handler) // first, so that it stops last: its sessions wait for calls
	a.services.Add("the index of tools", t.index)
	a.services.Add("the code sandbox", t.sandbox)
	a.services.Add("the upstreams", t.upstreams)
	a.services.Add("the tools", t.service)
	a.services.Add("the workflows", t.workflows)
	a.services.Add("the MCP server", t.server)
}
