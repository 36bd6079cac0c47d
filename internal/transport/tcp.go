package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"comet/internal/errs"
	"comet/internal/protocol"
	"comet/models"
)

// TCP is the transport of agents that are connected to the TCPListener.
const TCP = "tcp"

// introducer is a protocol in which the first message identifies the sender.
type introducer interface {
	// Introduction returns the name that a join message proposes for its sender, "" for none. Its
	// error is for Refuse, for a message that does not join.
	Introduction(raw []byte) (name string, err error)
}

// TCPOptions configures NewTCPListener; nil is the zero value.
type TCPOptions struct {
	// Enroll registers an agent without a token under the name it proposes, "" for any name, and
	// returns its id. By default such agents are refused.
	Enroll func(ctx context.Context, name string) (agentID string, err error)
	// IsEnrolled reports whether Enroll registered an agent. By default it returns false.
	IsEnrolled func(models.Agent) bool
	// IsLocal reports whether an address belongs to this machine, whose agents need not sign;
	// default loopback addresses. Messages from other addresses must be signed.
	IsLocal func(netip.Addr) bool
	// IdleTimeout is how long an agent may send nothing, default 10 min. HandshakeTimeout is how
	// long it may take to identify itself, default 10 s. RemoteHandshakeTimeout is the same for an
	// agent on another machine, default 3 s.
	IdleTimeout, HandshakeTimeout, RemoteHandshakeTimeout time.Duration
	// MaxMessageRate is how many messages are read from a connection in a second, default 500.
	MaxMessageRate int
	// MaxUnauthenticated limits the connections whose agent is not known yet, default 256. A
	// quarter of them is reserved for this machine.
	MaxUnauthenticated int
}

// The rate at which agents may enroll themselves, in agents per second, and the burst.
const (
	enrollmentRate  = 10
	enrollmentBurst = 2000
)

// TCPListener accepts TCP connections that speak the server's unframed protocol, one message per
// line. It implements lifecycle.Service. Stop it before its Server.
type TCPListener struct {
	server   *Server
	protocol protocol.Protocol
	address  string
	opts     TCPOptions

	listener        net.Listener
	unauthenticated *anonymousLimiter
	enrollments     *rate.Limiter
	ctx             context.Context
	cancel          context.CancelFunc
	running         sync.WaitGroup
}

// NewTCPListener returns a listener on an address such as 127.0.0.1:7005.
func NewTCPListener(s *Server, address string, opts *TCPOptions) *TCPListener {
	l := &TCPListener{server: s, protocol: s.unframedProtocol(), address: address}
	if opts != nil {
		l.opts = *opts
	}
	l.opts.IdleTimeout = orElse(l.opts.IdleTimeout, 10*time.Minute)
	l.opts.HandshakeTimeout = orElse(l.opts.HandshakeTimeout, 10*time.Second)
	l.opts.RemoteHandshakeTimeout = orElse(l.opts.RemoteHandshakeTimeout, 3*time.Second)
	l.opts.MaxMessageRate = orElse(l.opts.MaxMessageRate, 500)
	l.opts.MaxUnauthenticated = orElse(l.opts.MaxUnauthenticated, 256)
	if l.opts.IsLocal == nil {
		l.opts.IsLocal = netip.Addr.IsLoopback
	}
	if l.opts.Enroll == nil {
		l.opts.Enroll = func(context.Context, string) (string, error) {
			return "", errs.New(errs.Unauthenticated, "token= is missing").With("missing", "token")
		}
	}
	if l.opts.IsEnrolled == nil {
		l.opts.IsEnrolled = func(models.Agent) bool { return false }
	}
	l.unauthenticated = newAnonymousLimiter(l.opts.MaxUnauthenticated)
	l.enrollments = rate.NewLimiter(enrollmentRate, enrollmentBurst)
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// Start implements lifecycle.Service. Its error names an address that is in use.
func (l *TCPListener) Start(ctx context.Context) error {
	if l.protocol == nil {
		return errors.New("no unframed protocol is configured")
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", l.address)
	if err != nil {
		return fmt.Errorf("listen on %s: %w; choose another address with --v5-listen, port 0 picks a free one", l.address, err)
	}
	l.listener = listener
	l.running.Go(l.accept)
	return nil
}

// Addr returns the address it listens on. Call it after Start.
func (l *TCPListener) Addr() net.Addr { return l.listener.Addr() }

// Stop stops accepting connections. The open connections end with the Server.
func (l *TCPListener) Stop(context.Context) error {
	l.cancel()
	if l.listener != nil {
		_ = l.listener.Close()
	}
	l.running.Wait()
	return nil
}

func (l *TCPListener) accept() {
	for {
		conn, err := l.listener.Accept()
		switch {
		case l.ctx.Err() != nil:
			if conn != nil {
				_ = conn.Close()
			}
			return
		case err != nil: // for example too many open files
			l.server.log.Warn("cannot accept a connection", "error", err)
			select {
			case <-l.ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		from, err := l.originOf(conn)
		if err != nil || !l.unauthenticated.acquire(from) {
			_ = conn.Close()
			continue
		}
		l.running.Go(func() { l.handshake(conn, from) })
	}
}

// handshake identifies the agent of a connection and starts serving it.
func (l *TCPListener) handshake(conn net.Conn, from origin) {
	defer l.unauthenticated.release(from)
	timeout := l.opts.HandshakeTimeout
	if from.conn.Remote {
		timeout = l.opts.RemoteHandshakeTimeout
	}
	tcp := newTCPConn(conn, rate.NewLimiter(rate.Limit(l.opts.MaxMessageRate), l.opts.MaxMessageRate), timeout)
	// The timeout covers everything before the agent identifies itself, including empty lines.
	readCtx, cancel := context.WithTimeout(l.ctx, timeout)
	defer cancel()
	first, err := tcp.read(readCtx)
	if err != nil {
		_ = conn.Close()
		return
	}
	sock, err := l.newSocket(tcp, from, first)
	if err != nil {
		refusal := l.protocol.Refuse(err, withoutToken(l.protocol, first)).Body
		l.server.log.Warn("a connection was refused", "remote", conn.RemoteAddr().String(), "refusal", string(refusal))
		ctx, cancel := context.WithTimeout(l.ctx, l.server.opts.WriteTimeout)
		defer cancel()
		_ = tcp.write(ctx, refusal)
		_ = conn.Close()
		return
	}
	go sock.run(l.server.ctx, "")
}

// withoutToken returns a message without its token, for replies and logs.
func withoutToken(proto protocol.Protocol, raw []byte) []byte {
	_, rest := proto.Token(raw)
	return rest
}

// newSocket returns the socket of a connection whose first message was read.
func (l *TCPListener) newSocket(tcp *tcpConn, from origin, first []byte) (*socket, error) {
	ctx := protocol.WithConnection(l.ctx, from.conn)
	verify, err := l.identify(ctx, from, first)
	if err != nil {
		return nil, err
	}
	p, err := verify(ctx)
	if err == nil && p.AgentID == nil {
		err = errs.New(errs.ForeignAgent, "the token %q is bound to no agent", p.Name)
	}
	if err == nil {
		err = l.authenticate(ctx, from, *p.AgentID, first)
	}
	if err != nil {
		return nil, err
	}
	agent, err := l.server.acceptedAgent(l.ctx, l.protocol, *p.AgentID)
	if err != nil {
		return nil, err
	}
	tcp.first, tcp.idleTimeout = withoutToken(l.protocol, first), l.opts.IdleTimeout
	sock := &socket{connection: newConnection(agent.ID, TCP, l.protocol, 1, l.server.opts.Clock()), server: l.server, conn: tcp, verify: verify, agent: agent}
	sock.remote, sock.firstVerified, sock.from = from.conn.Remote, true, from.prefix
	tcp.onPing = func() { sock.alive.Store(true) }
	return sock, l.server.connections.add(sock.connection)
}

// identify returns a function that returns the principal of a connection (decisions: “on the TCP
// listener token= in the DATA of J (loopback only) binds the connection”).
func (l *TCPListener) identify(ctx context.Context, from origin, first []byte) (func(context.Context) (models.Principal, error), error) {
	intro, ok := l.protocol.(introducer)
	if !ok {
		return nil, errs.New(errs.Unauthenticated, "this protocol does not identify agents by their first message")
	}
	name, err := intro.Introduction(first)
	if err != nil {
		return nil, err
	}
	if verify, err := l.signer(ctx, from, first); verify != nil || err != nil {
		return verify, err
	}
	if token, _ := l.protocol.Token(first); token != "" {
		_, err := l.server.authenticator.verifyToken(ctx, token, from.prefix)
		return l.server.tokenVerifier(token), err
	}
	if err := l.server.connections.checkCapacity(); err != nil {
		return nil, err
	}
	if !l.enrollments.Allow() {
		return nil, errs.New(errs.Busy, "too many agents enroll at the same time; try again in a second")
	}
	id, err := l.opts.Enroll(l.ctx, name)
	if err != nil {
		return nil, err
	}
	return l.enrolled(id), nil
}

// enrolled returns the principal of an agent that enrolled itself, as long as it is active. It may
// submit tasks.
func (l *TCPListener) enrolled(agentID string) func(context.Context) (models.Principal, error) {
	p := tokenlessPrincipal(agentID)
	p.Scopes = []models.Scope{models.ScopeMessagesSend}
	return func(ctx context.Context) (models.Principal, error) {
		_, err := l.activeAgent(ctx, agentID)
		return p, err
	}
}

// tokenlessPrincipal returns the principal of an agent that has no token, without scopes.
func tokenlessPrincipal(agentID string) models.Principal {
	return models.Principal{TokenID: "line-of-" + agentID, Name: agentID, AgentID: &agentID}
}

// activeAgent returns an agent, errs.AgentInactive if it is deactivated.
func (l *TCPListener) activeAgent(ctx context.Context, agentID string) (models.Agent, error) {
	agent, err := l.server.core.Work.Agent(ctx, agentID)
	if err == nil && !agent.IsActive {
		err = errs.New(errs.AgentInactive, "the agent %q is deactivated", agentID).With("tokenless", true)
	}
	return agent, err
}

// maxPerRemotePrefix limits the unauthenticated connections from one subscriber on another machine.
const maxPerRemotePrefix = 8

// anonymousLimiter limits the connections whose agent is not known yet. They cost an attacker
// nothing, so each remote address gets only a few, and all of them together leave some for this
// machine.
type anonymousLimiter struct {
	max, maxRemote int

	mu            sync.Mutex
	count, remote int
	byPrefix      map[netip.Prefix]int // remote connections only
}

func newAnonymousLimiter(limit int) *anonymousLimiter {
	return &anonymousLimiter{max: limit, maxRemote: limit - limit/4, byPrefix: map[netip.Prefix]int{}}
}

// acquire reports whether another connection is allowed. If so, the caller must call release.
func (l *anonymousLimiter) acquire(from origin) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count >= l.max {
		return false
	}
	if from.conn.Remote {
		if l.remote >= l.maxRemote || l.byPrefix[from.prefix] >= maxPerRemotePrefix {
			return false
		}
		l.remote++
		l.byPrefix[from.prefix]++
	}
	l.count++
	return true
}

func (l *anonymousLimiter) release(from origin) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count--
	if !from.conn.Remote {
		return
	}
	l.remote--
	if l.byPrefix[from.prefix]--; l.byPrefix[from.prefix] == 0 {
		delete(l.byPrefix, from.prefix)
	}
}
