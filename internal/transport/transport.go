// Package transport connects agents to the orchestrator: over WebSocket, server-sent events, long
// polling, push, NATS and TCP (Chiffon §Authentication). It tracks which agents are connected and
// which messages they have received. It does not interpret messages; that is the job of a protocol.
//
// # Where state is kept
//
// A message stays in its agent's inbox, in the database, until the agent acknowledges it. A
// connection only remembers which messages it has delivered, so that it does not deliver them
// twice. A new connection starts with every unacknowledged message. Nothing is lost when a
// connection breaks or a process ends, but an agent may receive a message more than once.
//
// An agent has one connection at a time. A new connection replaces the older one: at once in the
// same process, and in another process when that process sees the new connection id.
package transport

import (
	"cmp"
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/time/rate"

	"comet/internal/auth"
	"comet/internal/background"
	"comet/internal/bus"
	"comet/internal/httpkit"
	"comet/internal/netguard"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	"comet/internal/pubsub"
)

// The transports over which an agent is reached. They are the values of models.Worker.Transport.
const (
	WebSocket = "websocket"
	SSE       = "sse"
	Poll      = "poll"
	Push      = "push"
	NATS      = "nats"
)

// Limits set by the protocol. They are not configurable.
const (
	// MaxMessageBytes is the size limit of a message from an agent.
	MaxMessageBytes = 8 << 20
	// maxWait is the longest time that a request may wait for a result or a message.
	maxWait = 60 * time.Second
	// maxInboxMessages is the most messages that one poll returns.
	maxInboxMessages = 1000
)

// Core is what a Server works on.
type Core struct {
	Work *orchestrator.Orchestrator
	Auth *auth.Auth
	// Keys are the agents' signing keys, nil if no agent has one.
	Keys *auth.Keys
	// Protocols are selected by subprotocol, content type or name. The first one is used by an agent
	// that selects none. There is at least one.
	Protocols []protocol.Protocol
	// PubSub delivers publications, nil if there are none.
	PubSub *pubsub.PubSub
	// Bus carries messages over NATS, nil to disable that transport.
	Bus *bus.Bus
}

// Options configures New; nil is the zero value.
type Options struct {
	// Heartbeat is how often a connection must show that it is alive, default 15 s.
	Heartbeat time.Duration
	// Redeliver is the time after which polling returns an unacknowledged message again, default 30
	// s.
	Redeliver time.Duration
	// Republish is the time after which an unacknowledged message is published on NATS again,
	// default 10 s.
	Republish time.Duration
	// WriteTimeout is how long an agent may take to read one message, default 10 s.
	WriteTimeout time.Duration
	// CloseTimeout is how long closing a connection may take, default 2 s.
	CloseTimeout time.Duration
	// MaxConnections limits the connections of this process, default 20,000.
	MaxConnections int
	// Limits are the limits of tokens and addresses that all APIs share, nil for limits of its own.
	Limits *httpkit.Limits
	// Guard limits the addresses that receive pushes, default public addresses only. HTTPSOnly
	// rejects http:// addresses too.
	Guard     *netguard.Guard
	HTTPSOnly bool
	// SingleProcess says that no other process serves the same agents.
	SingleProcess bool
	// PushBackoff and MaxPushBackoff are the first and the longest pause after a failed push,
	// default 1 s and 1 min.
	PushBackoff, MaxPushBackoff time.Duration
	// UserAgent is the User-Agent header of push requests, default "comet".
	UserAgent string
	// Clock returns the current time, default time.Now.
	Clock func() time.Time
	// Registerer registers the metrics, nil for none.
	Registerer prometheus.Registerer
	// Logger receives failures of connections; by default they are discarded.
	Logger *slog.Logger
}

func (o *Options) orDefaults() Options {
	out := *cmp.Or(o, &Options{})
	out.Heartbeat = cmp.Or(out.Heartbeat, 15*time.Second)
	out.Redeliver = cmp.Or(out.Redeliver, 30*time.Second)
	out.Republish = cmp.Or(out.Republish, 10*time.Second)
	out.WriteTimeout = cmp.Or(out.WriteTimeout, 10*time.Second)
	out.CloseTimeout = cmp.Or(out.CloseTimeout, 2*time.Second)
	out.PushBackoff = cmp.Or(out.PushBackoff, time.Second)
	out.MaxPushBackoff = cmp.Or(out.MaxPushBackoff, time.Minute)
	out.MaxConnections = cmp.Or(out.MaxConnections, 20_000)
	out.Limits = cmp.Or(out.Limits, httpkit.NewLimits(nil))
	out.Guard = cmp.Or(out.Guard, netguard.New([]netip.Prefix{}))
	out.UserAgent = cmp.Or(out.UserAgent, "comet")
	if out.Clock == nil {
		out.Clock = time.Now
	}
	out.Logger = cmp.Or(out.Logger, slog.New(slog.DiscardHandler))
	return out
}

// Server serves the agents that are connected to this process. It is safe for concurrent use.
type Server struct {
	core          Core
	protocols     protocolList
	opts          Options
	log           *slog.Logger
	metrics       *metrics
	authenticator *httpkit.Authenticator
	connections   *connectionRegistry
	// pollers holds the in-flight messages of agents that poll, by agent id.
	pollers *lru.Cache[string, *poller]
	pushers *pushers
	// inboxFailures throttles the log entry for an inbox that cannot be read.
	inboxFailures *rate.Limiter
	// rejoins counts the calls of Rejoin.
	rejoins atomic.Int64

	loop *background.Loop
	// ctx ends when the connections must end.
	ctx    context.Context
	cancel context.CancelFunc
}

// newLogLimiter allows one log entry a minute about an event that may happen often.
func newLogLimiter() *rate.Limiter { return rate.NewLimiter(rate.Every(time.Minute), 1) }

// maxPollers limits how many polling agents are remembered. An agent that was evicted may receive
// its unacknowledged messages again.
const maxPollers = 20_000

// New returns a server for the agents of core. Call Mount to add its routes and Start to run its
// background loops.
func New(core Core, opts *Options) *Server {
	s := &Server{core: core, protocols: describe(core.Protocols), opts: opts.orDefaults(), inboxFailures: newLogLimiter()}
	s.log = s.opts.Logger
	s.metrics = newMetrics(s.opts.Registerer)
	s.authenticator = httpkit.NewAuthenticator(core.Auth, &httpkit.AuthenticatorOptions{Limits: s.opts.Limits, Clock: s.opts.Clock, OnFailure: s.metrics.failures.Inc})
	s.connections = newConnectionRegistry(s.opts.MaxConnections, s.metrics.connections)
	s.pollers, _ = lru.New[string, *poller](maxPollers) // New fails only for a size below 1
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.pushers = newPushers(s)
	s.loop = background.NewLoop(func(ctx context.Context) {
		var loops sync.WaitGroup
		loops.Go(func() { s.pushers.run(ctx) })
		loops.Go(func() { newNATSTransport(s).run(ctx) })
		loops.Go(func() { s.receivePublications(ctx) })
		if core.PubSub != nil {
			loops.Go(func() { core.PubSub.Follow(ctx, s.offer) })
		}
		s.runHeartbeats(ctx)
		loops.Wait()
	})
	return s
}

// Start implements background.Service.
func (s *Server) Start(ctx context.Context) error { return s.loop.Start(ctx) }

// Drain closes every connection, rejects new ones and ends waiting requests early with what is
// available. It returns at once. Call it when the HTTP server starts its shutdown, which waits for
// these requests; a second call has no effect.
func (s *Server) Drain() { s.connections.drain() }

// Stop drains the server and returns when every connection has ended.
func (s *Server) Stop(ctx context.Context) error {
	s.connections.drain()
	late := background.WaitFor(ctx, s.connections.running.Wait)
	s.cancel() // closes the remaining connections
	err := s.loop.Stop(ctx)
	if late == nil {
		return err
	}
	cut, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opts.CloseTimeout)
	defer cancel()
	if background.WaitFor(cut, s.connections.running.Wait) != nil {
		return late
	}
	return err
}

// logWarning logs a failure on behalf of an agent. It does nothing if err is nil or the server has
// stopped.
func (s *Server) logWarning(message, agentID string, err error) {
	if err != nil && s.ctx.Err() == nil {
		s.log.Warn(message, "agent", agentID, "error", err)
	}
}

// metrics are the metrics of the transports.
type metrics struct {
	connections *prometheus.GaugeVec
	messages    *prometheus.CounterVec
	redelivered *prometheus.CounterVec
	failures    prometheus.Counter
}

// newMetrics returns the metrics and registers them, unless registerer is nil.
func newMetrics(registerer prometheus.Registerer) *metrics {
	create := promauto.With(registerer)
	return &metrics{
		connections: create.NewGaugeVec(prometheus.GaugeOpts{
			Name: "comet_transport_connections", Help: "Connections of agents to this process.",
		}, []string{"transport"}),
		messages: create.NewCounterVec(prometheus.CounterOpts{
			Name: "comet_transport_messages_total", Help: "Messages from agents (in) and to agents (out).",
		}, []string{"transport", "direction"}),
		redelivered: create.NewCounterVec(prometheus.CounterOpts{
			Name: "comet_transport_redeliveries_total", Help: "Messages delivered again because they were not acknowledged in time.",
		}, []string{"transport"}),
		failures: create.NewCounter(prometheus.CounterOpts{
			Name: "comet_transport_authentication_failures_total", Help: "Rejected tokens and signatures of agents.",
		}),
	}
}

func (m *metrics) countReceived(transport string) {
	m.messages.WithLabelValues(transport, "in").Inc()
}
