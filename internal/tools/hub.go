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
	// WaitForAudit has a call answered when its line of the audit trail is written,
	// some milliseconds later.
	WaitForAudit bool
	// UpstreamsFile is the mcpServers file, "" for none. NoCommands has programs only come from it.
	UpstreamsFile  string
	RejectCommands bool
	// ParentAgent is under which agent upstreams are registered, default orch-my-team, of which
	// Sphere is the sphere, default 8.
	ParentAgent string
	Sphere      int
	// Retention is how long the audit trail is kept, default 30 days.
	Retention time.Duration
	// OnChange hears what became of the lists that clients have; default nobody does. It must
	// not block.
	OnChange func(Change)
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
	if out.ParentAgent == "" {
		out.ParentAgent, out.Sphere = "orch-my-team", 8
	}
	if out.Retention <= 0 {
		out.Retention = 30 * 24 * time.Hour
	}
	if out.OnChange == nil {
		out.OnChange = func(Change) {}
	}
	if out.Logger == nil {
		out.Logger = slog.New(slog.DiscardHandler)
	}
	if out.Clock == nil {
		out.Clock = time.Now
	}
	return out
}

// Dependencies is what the hub stands on; every part is required.
type Dependencies struct {
	Store        *store.Store
	Registry     *registry.Registry
	Usage        *usage.Ledger
	Orchestrator *orchestrator.Orchestrator
	Feed         *events.Feed
	Upstreams    *upstream.Manager
	Index        *toolsearch.Index
	Sandbox      *sandbox.Sandbox
}

// Service has all tools, and makes the calls of all doors. It is safe for concurrent use.
type Service struct {
	store        *store.Store
	registry     *registry.Registry
	orchestrator *orchestrator.Orchestrator
	feed         *events.Feed
	upstreams    *upstream.Manager
	index        *toolsearch.Index
	sandbox      *sandbox.Sandbox
	opts         Options
	log          *slog.Logger

	policies  *policyCache
	prepaid   *prepaid
	auditLog  *auditLog
	sequences *callSequences
	metrics   callMetrics

	// subscribing is held by who asks an upstream to tell of a resource, so that the end of one's
	// subscription does not cross the beginning of another's.
	subscribing sync.Mutex

	// catalogue is all tools as they are; changing guards the parts it is made of.
	catalogue   atomic.Pointer[catalogue]
	catalogueMu sync.Mutex
	// refreshing is held by who looks at the tools of a server, so that what was read earlier
	// does not come later.
	refreshing    sync.Mutex
	upstreamTools map[string][]*tool
	builtins      []*tool

	// stale are the servers whose tools are to be looked at again, nudge has one when there
	// are any.
	staleMu    sync.Mutex
	stale      map[string]bool
	staleAdded chan struct{}

	upstreamAgents *upstreamAgents
	loader         *definitionLoader
	services       lifecycle.Group
}

// New returns the hub of the parts. It has comet's own tools at once, and those of the
// upstreams when it has been started.
func New(p Dependencies, opts *Options) *Service {
	h := &Service{
		store: p.Store, registry: p.Registry, orchestrator: p.Orchestrator, feed: p.Feed, upstreams: p.Upstreams, index: p.Index, sandbox: p.Sandbox,
		opts: opts.orDefaults(), upstreamTools: map[string][]*tool{}, stale: map[string]bool{}, staleAdded: make(chan struct{}, 1),
	}
	h.log = h.opts.Logger
	h.metrics = newCallMetrics(h.opts.Registerer)
	h.policies = newPolicyCache(h.store, h.opts.Clock)
	h.prepaid = newPrepaid(p.Usage, h.opts.Clock)
	h.auditLog = newAuditLog(h.store, h.prepaid, h.log)
	h.prepaid.countPending = h.auditLog.Flush
	h.sequences = newCallSequences()
	h.builtins = h.builtinTools()
	h.upstreamAgents = newUpstreamAgents(h)
	h.loader = newDefinitionLoader(h, h.opts.UpstreamsFile)
	h.catalogue.Store(newCatalogue(h.builtins, nil))
	h.indexBuiltinTools()

	h.services.Add("the audit trail of tools", h.auditLog)
	h.services.Add("the catalogue of tools", lifecycle.NewLoop(h.maintainCatalogue))
	h.services.Add("the agents of upstreams", h.upstreamAgents)
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
