package tools

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"comet/internal/events"
	"comet/internal/lifecycle"
	"comet/internal/orchestrator"
	"comet/internal/registry"
	"comet/internal/sandbox"
	"comet/internal/toolsearch"
	"comet/internal/upstream"
	"comet/internal/usage"
	"comet/store"
)

// Expose is which tools a client is shown that asks for all.
type Expose string

// What is shown.
const (
	// ExposeMeta shows comet's own tools, and those that are pinned.
	ExposeMeta Expose = "meta"
	// ExposeAll shows all.
	ExposeAll Expose = "all"
)

// Options configures New; nil is the zero value.
type Options struct {
	// Names is how tools are listed, default NamesPortable.
	Names NameStyle
	// Expose is what is listed, default ExposeMeta; Pinned are names of further tools.
	Expose Expose
	Pinned []string
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
	// Changed hears what became of the lists that clients have; default nobody does. It must
	// not block.
	Changed func(Change)
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
	if out.Parent == "" {
		out.Parent, out.Sphere = "orch-my-team", 8
	}
	if out.Retention <= 0 {
		out.Retention = 30 * 24 * time.Hour
	}
	if out.Changed == nil {
		out.Changed = func(Change) {}
	}
	if out.Logger == nil {
		out.Logger = slog.New(slog.DiscardHandler)
	}
	if out.Clock == nil {
		out.Clock = time.Now
	}
	return out
}

// Parts is what the hub stands on; every part is required.
type Parts struct {
	Store     *store.Store
	Registry  *registry.Registry
	Usage     *usage.Ledger
	Work      *orchestrator.Orchestrator
	Feed      *events.Feed
	Upstreams *upstream.Manager
	Index     *toolsearch.Index
	Sandbox   *sandbox.Sandbox
}

// Service has all tools, and makes the calls of all doors. It is safe for concurrent use.
type Service struct {
	store     *store.Store
	registry  *registry.Registry
	work      *orchestrator.Orchestrator
	feed      *events.Feed
	upstreams *upstream.Manager
	index     *toolsearch.Index
	sandbox   *sandbox.Sandbox
	opts      Options
	log       *slog.Logger

	policies *policies
	meter    *meter
	trail    *trail
	runs     *runs
	counts   counts

	// asking is held by who asks an upstream to tell of a resource, so that the end of one's
	// subscription does not cross the beginning of another's.
	asking sync.Mutex

	// catalogue is all tools as they are; changing guards the parts it is made of.
	catalogue atomic.Pointer[catalogue]
	changing  sync.Mutex
	// refreshing is held by who looks at the tools of a server, so that what was read earlier
	// does not come later.
	refreshing sync.Mutex
	parts      map[string][]*tool
	builtins   []*tool

	// stale are the servers whose tools are to be looked at again, nudge has one when there
	// are any.
	staleMu sync.Mutex
	stale   map[string]bool
	nudge   chan struct{}

	agents   *agents
	loader   *loader
	services lifecycle.Group
}

// New returns the hub of the parts. It has comet's own tools at once, and those of the
// upstreams when it has been started.
func New(p Parts, opts *Options) *Service {
	h := &Service{
		store: p.Store, registry: p.Registry, work: p.Work, feed: p.Feed, upstreams: p.Upstreams, index: p.Index, sandbox: p.Sandbox,
		opts: opts.orDefaults(), parts: map[string][]*tool{}, stale: map[string]bool{}, nudge: make(chan struct{}, 1),
	}
	h.log = h.opts.Logger
	h.counts = newCounts(h.opts.Registerer)
	h.policies = newPolicies(h.store, h.opts.Clock)
	h.meter = newMeter(p.Usage, h.opts.Clock)
	h.trail = newTrail(h.store, h.meter, h.log)
	h.meter.count = h.trail.Flush
	h.runs = newRuns()
	h.builtins = h.builtinTools()
	h.agents = newAgents(h)
	h.loader = newLoader(h, h.opts.File)
	h.catalogue.Store(newCatalogue(h.builtins, nil))
	h.indexBuiltins()

	h.services.Add("the audit trail of tools", h.trail)
	h.services.Add("the catalogue of tools", lifecycle.NewLoop(h.keepCatalogue))
	h.services.Add("the agents of upstreams", h.agents)
	h.services.Add("the definitions of upstreams", h.loader)
	return h
}

// Start implements lifecycle.Service. A file of upstreams that cannot be understood is an
// error: who names one means it.
func (h *Service) Start(ctx context.Context) error {
	if err := h.ReloadUpstreams(ctx); err != nil {
		return err
	}
	for _, s := range h.upstreams.Servers() {
		h.refreshSoon(s.ID)
	}
	return h.services.Start(ctx)
}

// Stop implements lifecycle.Service.
func (h *Service) Stop(ctx context.Context) error { return h.services.Stop(ctx) }
