// Package tools executes calls of tools for every API: the tools of all upstreams, and comet's
// own tools, which search tools, run code and hand tasks to agents (AgentCards).
//
// Every call takes the same steps (call.go): its name is looked up in the catalogue, the policy
// of the token is checked, tokens are reserved, the upstream executes it, and the audit log
// records it. Code in the sandbox calls tools in the same way, each call on its own, and so do
// the agents of the upstreams for tasks of the orchestrator.
package tools

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/prometheus/client_golang/prometheus"

	"comet/internal/background"
	"comet/internal/events"
	"comet/internal/netguard"
	"comet/internal/orchestrator"
	"comet/internal/registry"
	"comet/internal/toolsearch"
	"comet/internal/upstream"
	"comet/internal/upstream/oauth"
	"comet/internal/usage"
	"comet/models"
	"comet/store"
	"comet/store/seal"
)

// Expose selects the tools that a client sees when it lists all tools.
type Expose string

// Values of Expose.
const (
	// ExposeMeta lists comet's own tools and the pinned ones.
	ExposeMeta Expose = "meta"
	// ExposeAll lists all tools.
	ExposeAll Expose = "all"
)

// Options configures New; nil is the zero value.
type Options struct {
	// Names is the form of listed names, default NamesPortable.
	Names NameStyle
	// Expose selects the listed tools, default ExposeMeta; Pinned are names of further tools.
	Expose Expose
	Pinned []string
	// TrustChanges approves changed definitions of tools instead of quarantining the tools.
	TrustChanges bool
	// QuarantineNew quarantines the tools of upstreams of the API until they are approved.
	QuarantineNew bool
	// Keys encrypts the tokens of upstreams; without it upstreams cannot be authorized.
	Keys *seal.Keyring
	// RedirectURL returns the address to which browsers return from an authorization server, "" for none.
	RedirectURL func() string
	// Guard decides which authorization servers comet may connect to, by default those with public addresses.
	Guard *netguard.Guard
	// WaitForAudit returns a call only after its record is written, some milliseconds later.
	WaitForAudit bool
	// UpstreamsFile is the mcpServers file, "" for none; RejectCommands allows programs only there.
	UpstreamsFile  string
	RejectCommands bool
	// ParentAgent is the parent of the upstreams' agents, default orch-my-team; Sphere is 8 then.
	ParentAgent string
	Sphere      int
	// Retention is how long audit records are kept, default 30 days.
	Retention time.Duration
	// OnChange receives changes of the lists that clients have, and of resources. It must not block.
	OnChange func(upstream.Change)
	// Registerer registers the metrics; nil registers none.
	Registerer prometheus.Registerer
	// Logger receives failures; default discards them.
	Logger *slog.Logger
	// Clock returns the current time, default time.Now.
	Clock func() time.Time
}

func (o *Options) withDefaults() Options {
	out := *cmp.Or(o, &Options{})
	out.Names, out.Expose = cmp.Or(out.Names, NamesPortable), cmp.Or(out.Expose, ExposeMeta)
	if out.ParentAgent == "" {
		out.ParentAgent, out.Sphere = "orch-my-team", 8
	}
	out.Retention = cmp.Or(out.Retention, 30*24*time.Hour)
	out.Logger = cmp.Or(out.Logger, slog.New(slog.DiscardHandler))
	if out.OnChange == nil {
		out.OnChange = func(upstream.Change) {}
	}
	if out.Clock == nil {
		out.Clock = time.Now
	}
	if out.RedirectURL == nil {
		out.RedirectURL = func() string { return "" }
	}
	if out.Guard == nil {
		out.Guard = netguard.New(nil)
	}
	return out
}

// Dependencies are the services that New needs; all are required.
type Dependencies struct {
	Store        *store.Store
	Registry     *registry.Registry
	Usage        *usage.Ledger
	Orchestrator *orchestrator.Orchestrator
	Feed         *events.Feed
	Upstreams    *upstream.Manager
	Index        *toolsearch.Index
}

// Service has all tools and executes calls for all APIs. It is safe for concurrent use.
type Service struct {
	store        *store.Store
	registry     *registry.Registry
	orchestrator *orchestrator.Orchestrator
	feed         *events.Feed
	upstreams    *upstream.Manager
	index        *toolsearch.Index
	oauth        *oauth.Client
	opts         Options
	log          *slog.Logger

	policies  *lru.Cache[string, cachedPolicy] // by token
	auditLog  *auditLog
	lastCalls *lru.Cache[string, lastCall] // by client
	metrics   callMetrics

	// subscribing serialises subscriptions to resources, so that an end does not overtake a start.
	subscribing sync.Mutex

	// catalogue is the set of all tools, built from upstreamTools.
	catalogue atomic.Pointer[catalogue]
	// refreshing guards upstreamTools and serialises refreshes, so that an earlier read does not
	// overwrite a later one.
	refreshing    sync.Mutex
	upstreamTools map[string][]*Tool
	builtins      []*Tool
	finder        string // the id of the tool that finds others

	// stale are the servers whose tools need a refresh.
	stale *background.Pending[string]

	upstreamAgents *upstreamAgents
	loader         *definitionLoader
	services       background.Group
}

// New returns a service without tools. Register adds comet's own, Start those of upstreams.
func New(p Dependencies, opts *Options) *Service {
	svc := &Service{
		store: p.Store, registry: p.Registry, orchestrator: p.Orchestrator, feed: p.Feed, upstreams: p.Upstreams, index: p.Index,
		opts: opts.withDefaults(), upstreamTools: map[string][]*Tool{}, stale: background.NewPending[string](),
	}
	svc.log, svc.oauth = svc.opts.Logger, oauth.New(svc.opts.Guard, svc.store.Now)
	svc.metrics = newCallMetrics(svc.opts.Registerer)
	svc.policies, _ = lru.New[string, cachedPolicy](maxPolicies) // fails only for a size that is not positive
	svc.auditLog = newAuditLog(svc.store, p.Usage, svc.opts.Clock, svc.log)
	svc.lastCalls, _ = lru.New[string, lastCall](maxSequences) // fails only for a size that is not positive
	svc.upstreamAgents = &upstreamAgents{svc: svc, workers: map[string]*upstreamWorker{}}
	svc.upstreamAgents.Loop = background.NewLoop(svc.upstreamAgents.run)
	svc.loader = newDefinitionLoader(svc, svc.opts.UpstreamsFile)
	svc.catalogue.Store(newCatalogue(nil, nil))

	svc.services.Add("the audit log of tools", svc.auditLog)
	svc.services.Add("the catalogue of tools", background.NewLoop(svc.newRefresher().Run))
	svc.services.Add("the agents of upstreams", svc.upstreamAgents)
	svc.services.Add("the definitions of upstreams", background.NewLoop(svc.loader.poller.Run))
	svc.services.Add("the events of upstreams", background.NewLoop(svc.loader.follower.Run))
	return svc
}

// Start implements background.Service. An invalid upstreams file is an error.
func (svc *Service) Start(ctx context.Context) error {
	if err := svc.ReloadUpstreams(ctx); err != nil {
		return err
	}
	for _, s := range svc.upstreams.Servers() {
		svc.stale.Add(s.ID)
	}
	return svc.services.Start(ctx)
}

// Stop implements background.Service.
func (svc *Service) Stop(ctx context.Context) error { return svc.services.Stop(ctx) }

// OnUpstreamChange handles a change of an upstream. It does not block.
func (svc *Service) OnUpstreamChange(c upstream.Change) {
	switch c.Kind {
	case upstream.ResourceUpdated:
		svc.opts.OnChange(c)
		return
	case upstream.Up:
		svc.publishUpstreamEvent(events.UpstreamUp, upstreamChanged{ID: c.Server, Tools: len(svc.upstreams.Tools(c.Server))})
	case upstream.Down:
		s, _ := svc.upstreams.Server(c.Server)
		svc.publishUpstreamEvent(events.UpstreamDown, upstreamChanged{ID: c.Server, Reason: s.Error})
	case upstream.Prompts, upstream.Resources:
		svc.opts.OnChange(c)
	}
	svc.stale.Add(c.Server)
}

func (svc *Service) publishUpstreamEvent(kind models.EventType, data upstreamChanged) {
	svc.auditLog.addEvent(store.EventDraft{Type: kind, Key: data.ID, Data: data})
}

// OnGraphChange publishes a change of the usage graph as an event. It does not block.
func (svc *Service) OnGraphChange(c toolsearch.Change) {
	kinds := map[toolsearch.ChangeKind]models.EventType{
		toolsearch.EdgeCreated: events.EdgeCreated, toolsearch.EdgeUpdated: events.EdgeUpdated,
		toolsearch.GraphSynced: events.GraphSynced, toolsearch.MetricsUpdated: events.MetricsUpdated,
	}
	svc.auditLog.addEvent(store.EventDraft{Type: kinds[c.Kind], Key: "tools", Data: c})
}
