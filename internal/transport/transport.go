// Package transport holds the lines to agents: the WebSocket, the event stream, the inbox
// that is asked for, the address to which is pushed, and the message queue (Chiffon
// §Authentication). It knows who is on a line and what was handed over on it, and no
// message: what is said is a dialect's.
//
// # What is kept where
//
// A message stays in its agent's inbox, in the database, until the agent acknowledges
// it. A line only remembers which messages it has handed over, so that it does not do it
// twice; a new line begins with all that is not acknowledged. So whatever becomes of
// lines and processes, nothing is lost, and an agent may be told the same twice.
//
// An agent has one line at a time. The newest wins: an older one in the same process is
// ended when the new one comes, one in another process when that process hears of it.
package transport

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/prometheus/client_golang/prometheus"

	"comet/internal/auth"
	"comet/internal/bus"
	"comet/internal/lifecycle"
	"comet/internal/netguard"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
)

// The ways in which an agent is reached, as a worker's Link says it.
const (
	WebSocket = "websocket"
	SSE       = "sse"
	Poll      = "poll"
	Push      = "push"
	NATS      = "nats"
)

// Limits that are the protocol's, and not the operator's.
const (
	// MaxMessageBytes is the largest message an agent may send, in bytes.
	MaxMessageBytes = 8 << 20
	// maxWait is the longest that somebody may wait for an answer or a message.
	maxWait = 60 * time.Second
	// maxInboxMessages is how many messages are handed over in one answer at most.
	maxInboxMessages = 1000
)

// Core is what the lines lead to.
type Core struct {
	Work *orchestrator.Orchestrator
	Auth *auth.Auth
	// Protocols are what can be spoken on a WebSocket; the first of them is spoken
	// everywhere else. There is at least one.
	Protocols []protocol.Protocol
	// Bus carries the message-queue form, nil for none.
	Bus *bus.Bus
}

// Options configures New; nil is the zero value.
type Options struct {
	// Heartbeat is how often a line has to show that it lives, default 15 s.
	Heartbeat time.Duration
	// Redeliver is after what time a message is handed over again by an inbox that is
	// asked for, unless it was acknowledged; default 30 s.
	Redeliver time.Duration
	// Republish is the same for the message queue, default 10 s.
	Republish time.Duration
	// WriteTimeout is how long an agent may take to read one message off a line, default
	// 10 s.
	WriteTimeout time.Duration
	// CloseTimeout is how long a line that is ended may take to say good-bye, default 2 s.
	CloseTimeout time.Duration
	// MaxConnections is how many lines there may be at a time, default 20,000.
	MaxConnections int
	// MaxFailures is how many tokens that are not accepted an address may show a minute,
	// default 10.
	MaxFailures int
	// Admit hears of every request whose token is accepted, and refuses those of a token
	// that asks too often: its error is errs.RateLimited with "retry_after" in seconds.
	// Default: all are admitted.
	Admit func(w http.ResponseWriter, r *http.Request, tokenID string) error
	// Guard decides where is pushed to; default: public addresses only. HTTPSOnly
	// refuses http:// as well.
	Guard     *netguard.Guard
	HTTPSOnly bool
	// SingleProcess says that no other process serves the same agents.
	SingleProcess bool
	// PushTimeout is how long a push may take, default 10 s. PushBackoff and
	// MaxPushBackoff are the first and the longest pause after one that failed, default
	// 1 s and 1 min.
	PushTimeout, PushBackoff, MaxPushBackoff time.Duration
	// UserAgent is how comet names itself to whom it pushes, default "comet".
	UserAgent string
	// Clock tells the time, default time.Now.
	Clock func() time.Time
	// Registerer takes the metrics; default none does.
	Registerer prometheus.Registerer
	// Logger hears of lines that fail; default discards.
	Logger *slog.Logger
}

func (o *Options) orDefaults() Options {
	var out Options
	if o != nil {
		out = *o
	}
	out.Heartbeat = orElse(out.Heartbeat, 15*time.Second)
	out.Redeliver = orElse(out.Redeliver, 30*time.Second)
	out.Republish = orElse(out.Republish, 10*time.Second)
	out.WriteTimeout = orElse(out.WriteTimeout, 10*time.Second)
	out.CloseTimeout = orElse(out.CloseTimeout, 2*time.Second)
	out.PushTimeout = orElse(out.PushTimeout, 10*time.Second)
	out.PushBackoff = orElse(out.PushBackoff, time.Second)
	out.MaxPushBackoff = orElse(out.MaxPushBackoff, time.Minute)
	out.MaxConnections = orElse(out.MaxConnections, 20_000)
	out.MaxFailures = orElse(out.MaxFailures, 10)
	if out.Admit == nil {
		out.Admit = func(http.ResponseWriter, *http.Request, string) error { return nil }
	}
	if out.Guard == nil {
		out.Guard = netguard.New([]netip.Prefix{})
	}
	if out.UserAgent == "" {
		out.UserAgent = "comet"
	}
	if out.Clock == nil {
		out.Clock = time.Now
	}
	if out.Logger == nil {
		out.Logger = slog.New(slog.DiscardHandler)
	}
	return out
}

func orElse[T int | time.Duration](v, otherwise T) T {
	if v <= 0 {
		return otherwise
	}
	return v
}

// Server holds the lines of this process. It is safe for concurrent use.
type Server struct {
	core            Core
	defaultProtocol protocol.Protocol // the first of them
	opts            Options
	log             *slog.Logger
	metrics         *metrics
	authenticator   *authenticator
	connections     *connectionRegistry
	// pollers remembers what was handed over to agents that ask for their inbox.
	pollers *lru.Cache[string, *poller]
	pushers *pushers
	// inboxFailures are the inboxes that could not be read.
	inboxFailures logThrottle

	loop *lifecycle.Loop
	// ctx ends when the lines do, at the latest.
	ctx    context.Context
	cancel context.CancelFunc
}

// maxPollers bounds how many agents that ask for their inbox are remembered. One that is
// forgotten may be told again what it was just told.
const maxPollers = 20_000

// New returns the links to the core. Mount its routes, and Start it for the lines to be
// looked after.
func New(core Core, opts *Options) *Server {
	l := &Server{core: core, defaultProtocol: core.Protocols[0], opts: opts.orDefaults()}
	l.log = l.opts.Logger
	l.metrics = newMetrics(l.opts.Registerer)
	l.authenticator = newAuthenticator(core.Auth, l.opts.MaxFailures, l.opts.Clock, l.metrics.failures)
	l.connections = newConnectionRegistry(l.opts.MaxConnections, l.metrics.connections)
	l.pollers, _ = lru.New[string, *poller](maxPollers) // fails only for a size that is not positive
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.pushers = newPushers(l)
	l.loop = lifecycle.NewLoop(func(ctx context.Context) {
		var others sync.WaitGroup
		others.Go(func() { l.pushers.run(ctx) })
		others.Go(func() { newNATSTransport(l).run(ctx) })
		l.runHeartbeats(ctx)
		others.Wait()
	})
	return l
}

// Start implements lifecycle.Service.
func (l *Server) Start(ctx context.Context) error { return l.loop.Start(ctx) }

// Drain takes no line any more, tells those there are that they end, and has those who
// wait answered with what there is. It does not wait. It is for when the HTTP server
// stops, which waits for them; it may be called twice.
func (l *Server) Drain() { l.connections.drain() }

// Stop implements lifecycle.Service: it drains, and returns when every line is over.
func (l *Server) Stop(ctx context.Context) error {
	l.connections.drain()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.connections.running.Wait()
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	l.cancel()
	err := l.loop.Stop(ctx)
	select {
	case <-ended:
		return err
	case <-time.After(l.opts.CloseTimeout): // cut off, they have only just been told
		return ctx.Err()
	}
}

// logWarning logs what went wrong on behalf of an agent.
func (l *Server) logWarning(what, agentID string, err error) {
	if err != nil && l.ctx.Err() == nil {
		l.log.Warn(what, "agent", agentID, "error", err)
	}
}

// logInboxFailure logs that an inbox could not be read: once a minute, because every line tries
// again every second, and there are many lines on one database.
func (l *Server) logInboxFailure(agentID string, err error) {
	if l.ctx.Err() != nil {
		return
	}
	if n, due := l.inboxFailures.allow(l.opts.Clock()); due {
		l.log.Warn("inboxes cannot be read, and are tried again every second", "agent", agentID, "since_last", n, "error", err)
	}
}
