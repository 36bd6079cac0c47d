package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"go.opentelemetry.io/otel/trace"

	"comet/api"
	"comet/internal/a2a"
	"comet/internal/a2a/remote"
	"comet/internal/auth"
	"comet/internal/background"
	"comet/internal/bus"
	"comet/internal/config"
	"comet/internal/dashboard"
	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/events/live"
	"comet/internal/httpkit"
	"comet/internal/jobs"
	"comet/internal/mcp"
	"comet/internal/netguard"
	"comet/internal/oidc"
	"comet/internal/orchestrator"
	"comet/internal/protocol/genesis"
	"comet/internal/protocol/genesis/intents"
	v5 "comet/internal/protocol/v5"
	"comet/internal/protocol/v5/messagelog"
	"comet/internal/protocol/v5/references"
	"comet/internal/pubsub"
	"comet/internal/registry"
	"comet/internal/schedule"
	"comet/internal/stats"
	"comet/internal/telemetry"
	"comet/internal/transport"
	"comet/internal/usage"
	"comet/models"
	"comet/store"
	"comet/store/reseal"
	"comet/webhooks"
)

// purgeInterval is the interval of each purge over all replicas together.
const purgeInterval = time.Hour

// New locks the data directory, opens the database, creates the founding agents and the admin token
// at the first start, and creates all parts of the server. Call Stop when it is no longer needed.
func New(ctx context.Context, cfg config.Config, opts *Options) (*App, error) {
	a := &App{cfg: cfg, opts: opts.orDefaults()}
	a.log, a.metrics = a.opts.Logger, telemetry.NewMetrics(a.opts.Build)
	if err := a.open(ctx); err != nil {
		return nil, errors.Join(err, a.Stop(ctx))
	}
	return a, nil
}

func (a *App) open(ctx context.Context) (err error) {
	tlsConfig, err := newTLSConfig(a.cfg.TLS, a.log)
	if err != nil {
		return err
	}
	// If an address is in use, no data directory is created.
	entries, _ := os.ReadDir(a.cfg.Data)
	for flag, address := range map[string]string{"--listen": a.cfg.Listen, "--v5-listen": a.cfg.Transport.V5Listen, "--debug-listen": a.cfg.DebugListen, "--metrics-listen": a.cfg.MetricsListen} {
		if _, isSocket := transport.UnixPath(address); len(entries) == 0 && address != "" && !isSocket {
			l, err := listen(ctx, address, flag)
			if err != nil {
				return err
			}
			_ = l.Close()
		}
	}
	if a.lock, err = lockDir(a.cfg.Data); err != nil {
		return err
	}
	if a.tracing, err = telemetry.NewTracing(&telemetry.TracingOptions{
		Endpoint: strings.TrimSuffix(a.cfg.Tracing.Endpoint, "/"), Sample: float64(a.cfg.Tracing.SamplePercent) / 100, Build: a.opts.Build, Logger: a.log,
	}); err != nil {
		return err
	}
	if err := a.openStore(ctx); err != nil {
		return err
	}
	reg := registry.New(a.store, &registry.Options{StrictCapabilities: a.cfg.Registry.StrictCapabilities})
	if err := reg.Bootstrap(ctx); err != nil {
		return fmt.Errorf("create the founding agents: %w", err)
	}
	verifying := &auth.Options{Clock: a.opts.Clock, Logger: a.log}
	if c := a.cfg.OIDC; c.Issuer != "" {
		o := oidc.Options{URL: c.Issuer, Audience: c.Audience, ScopeClaim: c.ScopeClaim, Scopes: c.Scopes, AgentClaim: c.AgentClaim, Clock: a.store.Now, Logger: a.log}
		verifying.JWTs, verifying.JWTSettings = oidc.New(o).Token, o.Fingerprint()
	}
	a.tokens, a.keys = auth.New(a.store, verifying), auth.NewKeys(a.store, &auth.KeysOptions{Clock: a.opts.Clock, Window: a.cfg.Transport.V5ReplayWindow})
	serviceKeys := auth.NewServiceKeys(a.store, a.secrets, &auth.KeysOptions{Clock: a.opts.Clock})
	if a.cfg.AdminToken != "" {
		if _, err := a.tokens.EnsureAdmin(ctx, a.cfg.AdminToken, true); err != nil {
			return fmt.Errorf("store the admin token: %w", err)
		}
		if _, err := a.tokens.Verify(ctx, a.cfg.AdminToken); err != nil {
			a.log.Warn("COMET_ADMIN_TOKEN was rotated or revoked and is not valid; set another value", "error", err)
		}
	}
	unstored := &liveEvents{}
	ledger := usage.New(a.store, &usage.Options{Retention: a.cfg.Usage.Retention, OnChange: unstored.usageChanged, Logger: a.log})
	a.metrics.Registerer().MustRegister(ledger)
	var clients *a2a.Handler
	hooks := webhooks.New(a.store, &webhooks.Options{
		TaskEvents: a2a.PushedEvents(),
		Render: func(ctx context.Context, hook models.Webhook, d models.Delivery) ([]byte, string, error) {
			return clients.Render(ctx, hook, d)
		},
		Guard: netguard.New(a.cfg.Webhooks.Networks()), HTTPSOnly: a.cfg.Webhooks.HTTPSOnly, UserAgent: "comet/" + cmp.Or(a.opts.Build.Version, "unknown"),
		Timeout: a.cfg.Webhooks.Timeout, Poll: a.cfg.Events.PollInterval, Retention: a.cfg.Webhooks.Retention,
		OnAttempt: countAttempts(a.metrics.Registerer()), Logger: a.log,
	})
	feed := events.NewFeed(a.store, &events.Options{Poll: a.cfg.Events.PollInterval, Logger: a.log})
	relay := events.NewRelay(a.store, feed, &events.Options{Poll: a.cfg.Events.PollInterval, Deliveries: hooks, Logger: a.log})
	limits := httpkit.NewLimits(&httpkit.LimitOptions{
		MaxFailures: a.cfg.HTTP.MaxAuthFailures, RateLimit: a.cfg.HTTP.RateLimit.Requests, RateWindow: a.cfg.HTTP.RateLimit.Window,
		MaxBytes: cmp.Or(a.cfg.HTTP.MaxBytes, background.MemoryLimit()/16),
	})
	authenticator := httpkit.NewAuthenticator(a.tokens, &httpkit.AuthenticatorOptions{Limits: limits, Clock: a.opts.Clock})
	natsBus, err := a.newBus(authenticator)
	if err != nil {
		return err
	}
	unstored.bus, unstored.Events = natsBus, live.New(unstored.publish)
	work, wakeups := a.newOrchestrator(reg, ledger, feed, natsBus)
	messages := messagelog.New(a.store, &messagelog.Options{Registerer: a.metrics.Registerer(), Logger: a.log})
	protocolV5 := v5.New(work, a.store, &v5.Options{Keys: a.keys, MessageLog: messages, Retention: a.cfg.Tasks.Retention, Clock: a.opts.Clock, Logger: a.log})
	stack, err := a.newToolStack(reg, ledger, work, feed, limits)
	if err != nil {
		return err
	}
	a.tools, a.mcpServer = stack.service, stack.server
	remotes := remote.New(a.store, work, &remote.Options{
		Guard: netguard.New(a.cfg.Webhooks.Networks()), HTTPSOnly: a.cfg.Webhooks.HTTPSOnly, Keys: a.secrets, UserAgent: "comet/" + cmp.Or(a.opts.Build.Version, "unknown"),
		Clock: a.opts.Clock, Logger: a.log,
	})
	publications := pubsub.New(a.store, &pubsub.Options{Bus: natsBus, Wake: wakeups.wakeInboxes, Protocols: []string{genesis.Name}, Feed: feed, Events: api.PublishedEvents(), Registerer: a.metrics.Registerer(), Logger: a.log})
	schedules := schedule.New(schedule.Dependencies{Store: a.store, Auth: a.tokens, Orchestrator: work, Workflows: stack.workflows, Logger: a.log})
	statistics := stats.New(a.store)
	core := api.Services{Schedules: schedules, PubSub: publications, Registry: reg, Auth: a.tokens, Keys: a.keys, ServiceKeys: serviceKeys, Usage: ledger, Webhooks: hooks, Orchestrator: work, Feed: feed, Messages: a.v5ForAPI(protocolV5, messages), Tools: stack.service, Workflows: stack.workflows, Remotes: remotes, Stats: statistics, Live: unstored.Events}
	options := a.apiOptions(relay, natsBus, work)
	signed := genesis.New(genesis.Dependencies{
		Work: work, Keys: a.keys, ServiceKeys: serviceKeys, Events: publications,
		Intents: &intents.Service{
			Registry: reg, Auth: a.tokens, Keys: a.keys, Work: work, Workflows: stack.workflows, Schedules: schedules, Events: publications, Tools: stack.service, Checks: options.Checks,
		},
	}, &genesis.Options{Clock: a.opts.Clock, Logger: a.log})
	agents := a.newTransport(work, publications, natsBus, protocolV5, signed, limits)
	if options.Limits = limits; a.cfg.MetricsListen != "" {
		options.Metrics = nil // that listener serves them
	}
	clients = a2a.New(a2a.Dependencies{Store: a.store, Auth: a.tokens, Keys: serviceKeys, Orchestrator: work, Workflows: stack.workflows, Feed: feed, Webhooks: hooks}, &a2a.Options{
		PublicURL: a.cfg.MCP.PublicURL, Version: cmp.Or(a.opts.Build.Version, "unknown"), Retention: a.cfg.Tasks.Retention,
		Limits: limits, OnFailure: func(reason string) { a.metrics.CountFailure("a2a", reason) }, Logger: a.log,
	})
	options.Untimed = func(r *http.Request) bool {
		return agents.IsStreaming(r) || mcp.IsStreaming(r) || a2a.IsStreaming(r)
	}
	var server *api.Server
	logins := dashboard.Logins{Authenticator: authenticator, WriteError: func(w http.ResponseWriter, r *http.Request, err error) { server.WriteError(w, r, err) }}
	options.MountPublic = func(r chi.Router) {
		agents.Mount(r)
		logins.Mount(r)
		for _, path := range stack.handler.Paths() {
			r.Handle(path, stack.handler)
		}
		for _, path := range clients.Paths() {
			r.Handle(path, clients)
		}
	}
	server = api.New(core, options)
	a.http = newHTTPServer(a.cfg, "--listen", a.cfg.Listen, a.log, server)
	a.http.srv.TLSConfig, a.http.tls = tlsConfig, tlsConfig != nil
	a.http.srv.RegisterOnShutdown(server.Drain) // Shutdown waits for the streams, which Drain ends
	a.http.srv.RegisterOnShutdown(agents.Drain)
	a.http.srv.RegisterOnShutdown(stack.handler.Drain)
	a.http.srv.RegisterOnShutdown(clients.Drain)

	a.services.Add("the traces", a.tracing)
	a.services.Add("the replicas", jobs.NewReplicas(a.store, jobs.ReplicaOptions{Disconnect: work.Disconnect, Removed: agents.Rejoin, Isolated: a.cfg.NATSURL == "", Logger: a.log}))
	// The webhooks stop late, because attempts in flight may take all the remaining time.
	a.services.Add("the webhooks", hooks)
	a.services.Add("the message bus", natsBus)
	a.services.Add("the event relay", relay)
	a.services.Add("the tokens", a.tokens)
	a.services.Add("the ledger", ledger)
	a.services.Add("the statistics", statistics)
	a.services.Add("the live events", unstored)
	a.services.Add("the wake-ups", wakeups)
	a.services.Add("the orchestrator", work)
	a.services.Add("the PROTOCOL_V5 message log", messages)
	runner := a.newJobs(ledger, hooks, work, protocolV5, stack)
	runner.Every("a2a.purge", purgeInterval, clients.Purge)
	publications.RegisterJobs(runner)
	schedules.RegisterJobs(runner)
	a.services.Add("the jobs", runner)
	stack.addServices(a)
	a.services.Add("the remote A2A agents", remotes)
	a.services.Add("the connections of agents", agents)
	if a.cfg.Transport.V5Listen != "" {
		mode, _ := strconv.ParseUint(a.cfg.Transport.V5SocketMode, 8, 32) // config has validated it
		a.tcp = transport.NewTCPListener(agents, a.cfg.Transport.V5Listen, &transport.TCPOptions{
			Setting: "--v5-listen", SocketMode: fs.FileMode(mode), Enroll: v5.SelfRegistration(reg, a.cfg.Transport.V5SelfRegistration),
		})
		a.services.Add("the V5 TCP listener", a.tcp)
	}
	for _, l := range []struct {
		flag, address string
		handler       http.Handler
	}{
		{"--debug-listen", a.cfg.DebugListen, debugHandler(authenticator, a.metrics.Handler())},
		{"--metrics-listen", a.cfg.MetricsListen, metricsHandler(a.metrics.Handler(), server)},
	} {
		if l.address != "" {
			s := newHTTPServer(a.cfg, l.flag, l.address, a.log, l.handler)
			s.delay = 0
			a.services.Add("the listener of "+l.flag, s)
		}
	}
	if a.cfg.Listen != "" {
		a.services.Add("the HTTP server", a.http)
	}
	return nil
}

func (a *App) openStore(ctx context.Context) (err error) {
	if a.cfg.DatabaseURL == "" {
		if err := checkDatabase(a.cfg); err != nil {
			return err
		}
	}
	keys, save, err := secretKeys(a.cfg, a.log)
	if err != nil {
		return err
	}
	a.secrets = keys
	a.store, err = store.Open(ctx, store.Options{
		Dir: a.cfg.Data, DatabaseURL: a.cfg.DatabaseURL, Keys: keys,
		ReadConnections: a.cfg.Store.ReadConnections, MaxConnections: a.cfg.Store.MaxConnections,
		Quotas: map[string]int{"agents": a.cfg.Quotas.Agents, "tokens": a.cfg.Quotas.Tokens, "webhooks": a.cfg.Quotas.Webhooks, "upstreams": a.cfg.Quotas.Upstreams},
		Clock:  a.opts.Clock, Connector: a.opts.Connector, Logger: a.log, OnCommit: countCommits(a.metrics.Registerer()),
	})
	if err != nil {
		return err
	}
	a.metrics.Registerer().MustRegister(newBacklog(a.store, a.log))
	sealed, err := reseal.Start(ctx, a.store, keys, save)
	if sealed > 0 {
		a.log.Info("secrets in the database were encrypted with the current key", "secrets", sealed)
	}
	return err
}

// tracer returns the tracer of a package, nil if traces are not exported.
func (a *App) tracer(pkg string) trace.Tracer {
	if a.cfg.Tracing.Endpoint == "" {
		return nil
	}
	return a.tracing.Tracer(pkg)
}

// newOrchestrator returns the orchestrator and the service that carries its wake-ups to and from
// other replicas.
func (a *App) newOrchestrator(reg *registry.Registry, ledger *usage.Ledger, feed *events.Feed, natsBus *bus.Bus) (*orchestrator.Orchestrator, *wakeups) {
	w := &wakeups{bus: natsBus, shared: a.cfg.NATSURL != "", subjects: map[orchestrator.WakeKind]bus.Kind{
		orchestrator.WakeInbox: bus.WakeInboxes, orchestrator.WakeProgress: bus.WakeProgress, orchestrator.WakeTask: bus.WakeTasks,
		orchestrator.WakeQueue: bus.WakeDispatches, orchestrator.WakeWorker: bus.WakeAgentIndexes,
	}}
	opts := &orchestrator.Options{
		Alone:   a.store.Alone(),
		Classes: classes(), Resolver: references.Resolver{}, ReservedSessionID: v5.ReservesSession, Tracer: a.tracer("orchestrator"), Registry: reg, Feed: feed,
		Retention: a.cfg.Tasks.Retention, OfflineAfter: max(3*a.cfg.Transport.Heartbeat, minOfflineAfter), ReturnGrace: a.cfg.Transport.ReturnGrace, Logger: a.log,
	}
	if w.shared { // an embedded bus has no other replicas
		opts.Waker = w
	}
	w.orchestrator = orchestrator.New(a.store, ledger, opts)
	a.metrics.Registerer().MustRegister(w.orchestrator)
	return w.orchestrator, w
}

func (a *App) newJobs(ledger *usage.Ledger, hooks *webhooks.Webhooks, work *orchestrator.Orchestrator, v5 *v5.Protocol, stack *toolStack) *jobs.Runner {
	r := jobs.New(a.store, &jobs.Options{Logger: a.log})
	r.Every("events.purge", purgeInterval, events.Purge(a.store, a.cfg.Events.Retention))
	r.Every("responses.purge", purgeInterval, jobs.PurgeStoredResponses(a.store))
	r.Every("deliveries.purge", purgeInterval, hooks.Purge)
	r.Every("usage.purge", purgeInterval, ledger.Purge)
	r.Every("tasks.purge", purgeInterval, work.Purge)
	r.Every("v5.purge", purgeInterval, v5.Purge)
	r.Every("signatures.purge", purgeInterval, a.keys.Purge)
	r.Every("tokens.purge", purgeInterval, a.tokens.Purge)
	r.Every("tool_calls.purge", purgeInterval, stack.service.Purge)
	r.Every("workflows.purge", purgeInterval, stack.workflows.Purge)
	work.RegisterJobs(r)
	stack.workflows.RegisterJobs(r)
	return r
}

func (a *App) apiOptions(relay *events.Relay, natsBus *bus.Bus, work *orchestrator.Orchestrator) *api.Options {
	return &api.Options{
		Logger:       a.log,
		Clock:        a.opts.Clock,
		AccessSample: a.cfg.Log.Sample,
		Version:      a.opts.Build.Version,
		Database:     a.store.Database(),
		Checks: map[string]func(context.Context) error{
			"server":     a.ready,
			"database":   a.store.Ping,
			"migrations": a.store.CheckSchema,
			"disk":       checkDisk(a.cfg.Data),
			"events":     relay.Check,
			"bus":        natsBus.Check,
			"agents":     work.Check,
		},
		Metrics:        a.metrics.Handler(),
		Measure:        a.metrics.Measure(func(r *http.Request) string { return chi.RouteContext(r.Context()).RoutePattern() }),
		OnFailure:      func(code errs.Code) { a.metrics.CountFailure("rest", string(code)) },
		RequestTimeout: a.cfg.HTTP.RequestTimeout,
		MaxBody:        a.cfg.HTTP.MaxBodyBytes,
		MaxRoster:      a.cfg.HTTP.MaxRosterBytes,
	}
}

// Run serves until ctx ends, then drains.
func Run(ctx context.Context, cfg config.Config, opts *Options) error {
	a, err := New(ctx, cfg, opts)
	if err != nil {
		return err
	}
	if err = a.Start(ctx); err == nil {
		a.announce(ctx)
		a.log.Info("listening", "url", a.URL(), "database", a.store.Database())
		select {
		case <-ctx.Done():
			a.log.Info("shutting down")
		case err = <-a.http.failed:
		}
	}
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.HTTP.DrainDelay+cfg.HTTP.ShutdownTimeout)
	defer cancel()
	return errors.Join(err, a.Stop(stopCtx))
}

// announce prints the addresses of the server and how to begin, in one write.
func (a *App) announce(ctx context.Context) {
	text := fmt.Sprintf("comet listens on %s (%s, data in %s)\n  API description  %s/docs\n", a.URL(), a.store.Database(), a.cfg.Data, a.URL())
	if a.tcp != nil {
		text += fmt.Sprintf("  PROTOCOL_V5      %s (one message per line)\n", a.V5Addr())
	}
	text += "  Dashboard        " + a.URL() + "/ui/"
	if code, _, err := a.tokens.LoginCode(ctx, a.freshToken); err == nil { // of the first start
		text += "#login=" + code + "\n                   logs you in once, within a minute; comet dashboard opens another link"
	}
	text += "\n"
	if a.freshToken != "" {
		text += fmt.Sprintf("  Admin token      %s\n                   shown this once; also in %s\n", a.freshToken, a.adminTokenPath())
	}
	if token := a.shellToken(ctx); token != "" {
		text += fmt.Sprintf("\nTry:\n  curl -H \"Authorization: Bearer %s\" %s/api/v1/agents\n\n", token, a.URL())
	}
	_, _ = io.WriteString(a.opts.Out, text)
}

// shellToken returns a shell expression for the admin token that works between double quotes, ""
// if no valid token is known.
func (a *App) shellToken(ctx context.Context) string {
	switch {
	case a.freshToken != "":
		return a.freshToken
	case a.cfg.AdminToken != "":
		return "$COMET_ADMIN_TOKEN"
	}
	path := a.adminTokenPath()
	content, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	// It may have been rotated or revoked since it was written.
	if _, err := a.tokens.Verify(ctx, strings.TrimSpace(string(content))); err != nil {
		return ""
	}
	return "$(cat '" + strings.ReplaceAll(path, "'", `'\''`) + "')"
}

func (a *App) adminTokenPath() string { return filepath.Join(a.cfg.Data, adminTokenFile) }
