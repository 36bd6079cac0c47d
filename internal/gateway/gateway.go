package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/prometheus/client_golang/prometheus"

	"comet/internal/events"
	"comet/internal/lifecycle"
	"comet/internal/orchestrator"
	"comet/internal/registry"
	"comet/internal/sandbox"
	"comet/internal/toolindex"
	"comet/internal/upstream"
	"comet/internal/usage"
	"comet/internal/words"
	"comet/models"
	"comet/store"
)

// Expose is which tools tools/list shows.
type Expose string

// What is shown.
const (
	// ExposeMeta shows comet's own tools, and those that are pinned.
	ExposeMeta Expose = "meta"
	// ExposeAll shows all, page by page.
	ExposeAll Expose = "all"
)

// Options configures New; nil is the zero value.
type Options struct {
	// Names is how tools are listed, default NamesPortable.
	Names NameStyle
	// Expose is what is listed, default ExposeMeta; Pinned are names of further tools.
	Expose Expose
	Pinned []string
	// PageSize is how many tools, prompts or resources a page has, default 200.
	PageSize int
	// TrustChanges takes changed definitions of tools for right, instead of quarantining
	// the tools.
	TrustChanges bool
	// AnswerAfterAudit has a call answered when its line of the audit trail is written,
	// some milliseconds later.
	AnswerAfterAudit bool
	// File is the mcpServers file, "" for none. NoCommands has programs only come from it.
	File       string
	NoCommands bool
	// Parent is under which agent upstreams are registered, default orch-my-team, of which
	// Sphere is the sphere, default 8.
	Parent string
	Sphere int
	// Retention is how long the audit trail is kept, default 30 days.
	Retention time.Duration
	// Version is what clients are told that comet is.
	Version string
	// Registerer takes the metrics; default none does.
	Registerer prometheus.Registerer
	// Logger hears of what cannot be done; default discards.
	Logger *slog.Logger
	// Clock tells the time, default time.Now.
	Clock func() time.Time
}

func (o *Options) orDefaults() Options {
	var out Options
	if o != nil {
		out = *o
	}
	if out.Names == "" {
		out.Names = NamesPortable
	}
	if out.Expose == "" {
		out.Expose = ExposeMeta
	}
	if out.PageSize <= 0 {
		out.PageSize = 200
	}
	if out.Parent == "" {
		out.Parent, out.Sphere = "orch-my-team", 8
	}
	if out.Retention <= 0 {
		out.Retention = 30 * 24 * time.Hour
	}
	if out.Version == "" {
		out.Version = "unknown"
	}
	if out.Logger == nil {
		out.Logger = slog.New(slog.DiscardHandler)
	}
	if out.Clock == nil {
		out.Clock = time.Now
	}
	return out
}

// Core is what the gateway opens to; every part is required.
type Core struct {
	Store     *store.Store
	Registry  *registry.Registry
	Usage     *usage.Ledger
	Work      *orchestrator.Orchestrator
	Feed      *events.Feed
	Upstreams *upstream.Manager
	Index     *toolindex.Index
	Sandbox   *sandbox.Sandbox
}

// Gateway is safe for concurrent use.
type Gateway struct {
	store     *store.Store
	registry  *registry.Registry
	ledger    *usage.Ledger
	work      *orchestrator.Orchestrator
	feed      *events.Feed
	upstreams *upstream.Manager
	index     *toolindex.Index
	sandbox   *sandbox.Sandbox
	opts      Options
	log       *slog.Logger

	policies *policies
	meter    *meter
	trail    *trail
	runs     *runs
	parked   *parked
	mcp      *mcp.Server
	subs     *subscriptions
	counts   counts

	// servers are those that speak with clients: that of the HTTP door, and one for each
	// connection over stdio.
	serversMu sync.Mutex
	servers   []*mcp.Server

	// catalogue is all tools as they are; changing guards the parts it is made of.
	catalogue atomic.Pointer[catalogue]
	changing  sync.Mutex
	parts     map[string][]*tool
	builtins  []*tool

	// stale are the servers whose tools are to be looked at again, nudge has one when there
	// are any.
	staleMu sync.Mutex
	stale   map[string]bool
	nudge   chan struct{}

	agents   *agents
	loader   *loader
	services lifecycle.Group
}

// New returns the gateway to the core. It has comet's own tools at once, and those of the
// upstreams when it has been started.
func New(core Core, opts *Options) *Gateway {
	g := &Gateway{
		store: core.Store, registry: core.Registry, ledger: core.Usage, work: core.Work, feed: core.Feed,
		upstreams: core.Upstreams, index: core.Index, sandbox: core.Sandbox,
		opts: opts.orDefaults(), parts: map[string][]*tool{}, stale: map[string]bool{}, nudge: make(chan struct{}, 1),
	}
	g.log = g.opts.Logger
	g.counts = newCounts(g.opts.Registerer)
	g.policies = newPolicies(g.store, g.opts.Clock)
	g.meter = newMeter(g.ledger, g.opts.Clock)
	g.trail = newTrail(g.store, g.meter, g.log)
	g.meter.count = g.trail.Flush
	g.runs, g.parked = newRuns(), newParked(g.opts.Clock)
	g.builtins = g.builtinTools()
	g.agents = newAgents(g)
	g.loader = newLoader(g, g.opts.File)
	g.catalogue.Store(newCatalogue(g.builtins, nil))
	g.indexBuiltins()
	g.subs = newSubscriptions(g)
	g.mcp = g.newServer(nil)

	g.services.Add("the audit trail of tools", g.trail)
	g.services.Add("the catalogue of tools", lifecycle.NewLoop(g.keepCatalogue))
	g.services.Add("the subscriptions to resources", g.subs)
	g.services.Add("the agents of upstreams", g.agents)
	g.services.Add("the definitions of upstreams", g.loader)
	return g
}

// Start implements lifecycle.Service. A file of upstreams that cannot be understood is an
// error: who names one means it.
func (g *Gateway) Start(ctx context.Context) error {
	if err := g.ReloadUpstreams(ctx); err != nil {
		return err
	}
	for _, s := range g.upstreams.Servers() {
		g.refreshSoon(s.ID)
	}
	return g.services.Start(ctx)
}

// Stop implements lifecycle.Service.
func (g *Gateway) Stop(ctx context.Context) error {
	g.parked.stop()
	return g.services.Stop(ctx)
}

// UpstreamChanged hears from the upstreams what changed; it does not block.
func (g *Gateway) UpstreamChanged(c upstream.Change) {
	switch c.Kind {
	case upstream.ResourceUpdated:
		g.subs.tell(c.URI)
		return
	case upstream.Up:
		g.tellUpstream(models.EventUpstreamUp, models.UpstreamChanged{ID: c.Server, Tools: len(g.upstreams.Tools(c.Server))})
	case upstream.Down:
		g.tellUpstream(models.EventUpstreamDown, models.UpstreamChanged{ID: c.Server, Reason: g.whyDown(c.Server)})
	case upstream.Prompts:
		g.notifyPrompts()
	case upstream.Resources:
		g.notifyResources()
	}
	g.refreshSoon(c.Server)
}

// status returns how an upstream stands, and whether there is one.
func (g *Gateway) status(id string) (upstream.Status, bool) {
	s, err := g.upstreams.Server(id)
	return s, err == nil
}

func (g *Gateway) tellUpstream(kind models.EventType, data models.UpstreamChanged) {
	g.trail.tell(models.EventDraft{Type: kind, Key: data.ID, Data: data})
}

// GraphChanged hears from the index what became of the usage graph; it does not block.
func (g *Gateway) GraphChanged(c toolindex.Change) {
	kinds := map[toolindex.ChangeKind]models.EventType{
		toolindex.EdgeCreated: models.EventEdgeCreated, toolindex.EdgeUpdated: models.EventEdgeUpdated,
		toolindex.GraphSynced: models.EventGraphSynced, toolindex.MetricsUpdated: models.EventMetricsUpdated,
	}
	g.trail.tell(models.EventDraft{Type: kinds[c.Kind], Key: "tools", Data: models.GraphChanged{
		From: c.From, To: c.To, Runs: c.Runs, Nodes: c.Nodes, Edges: c.Edges, Communities: c.Communities, Density: c.Density,
	}})
}

func (g *Gateway) whyDown(server string) string {
	s, _ := g.status(server)
	return s.Error
}

func clip(s string) string { return words.Clip(s) }

func indexedOf(tools []*tool) []toolindex.Tool {
	out := make([]toolindex.Tool, 0, len(tools))
	for _, t := range tools {
		if !t.quarantined {
			out = append(out, t.indexed())
		}
	}
	return out
}

// shortDigest is enough of a digest to tell two names apart.
func shortDigest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:3])
}
