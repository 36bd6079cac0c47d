package transport

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"comet/internal/background"
	"comet/internal/errs"
	"comet/internal/httpkit"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	"comet/models"
)

// TCP is the transport of agents that are connected to the TCPListener.
const TCP = "tcp"

// TCPOptions configures NewTCPListener; nil is the zero value.
type TCPOptions struct {
	// Enroll registers an agent without a token under the name it proposes, "" for any name, and
	// returns its id. trusted is set for a process on a Unix socket that runs as the server's user or root.
	// By default such agents are refused.
	Enroll func(ctx context.Context, name string, trusted bool) (agentID string, err error)
	// SocketMode is the mode of a Unix socket, default 0600.
	SocketMode fs.FileMode
	// IsLocal reports whether an address belongs to this machine, whose agents need not sign;
	// default loopback addresses. Messages from other addresses must be signed.
	IsLocal func(netip.Addr) bool
	// IdleTimeout is how long an agent may send nothing, default 10 min. HandshakeTimeout is how
	// long it may take to identify itself, default 10 s. RemoteHandshakeTimeout is the same for an
	// agent on another machine, default 3 s.
	IdleTimeout, HandshakeTimeout, RemoteHandshakeTimeout time.Duration
	// MaxMessageRate is how many messages are read from a connection in a second, default 2,000.
	MaxMessageRate int
	// Setting is the name of the setting that has the address, for the error of Start.
	Setting string
	// MaxUnauthenticated limits the connections from this machine whose agent is not known yet,
	// default 256: a further one ends the oldest. Other machines have three quarters of it.
	MaxUnauthenticated int
}

// The rate at which agents may enroll themselves, in agents per second, and the burst.
const (
	enrollmentRate  = 10
	enrollmentBurst = 2000
)

// TCPListener accepts connections over TCP or on a Unix socket, with one message per line. The first line
// selects the protocol with a hello frame, or it is the first message of the protocol that can introduce
// agents. It implements background.Service. Stop it before its Server.
type TCPListener struct {
	server *Server
	// introducing is the protocol of connections that begin with a message, nil for none.
	introducing *describedProtocol
	address     string
	opts        TCPOptions

	listener        net.Listener
	unauthenticated *anonymousLimiter
	enrollments     *rate.Limiter
	ctx             context.Context
	cancel          context.CancelFunc
	running         sync.WaitGroup
}

// NewTCPListener returns a listener on an address such as 127.0.0.1:7005 or unix:/run/comet/agents.sock.
func NewTCPListener(s *Server, address string, opts *TCPOptions) *TCPListener {
	l := &TCPListener{server: s, address: address, opts: *cmp.Or(opts, &TCPOptions{})}
	l.introducing = s.protocols.find(func(i protocol.Info) bool { return i.Introduce != nil })
	l.opts.IdleTimeout = cmp.Or(l.opts.IdleTimeout, 10*time.Minute)
	l.opts.HandshakeTimeout = cmp.Or(l.opts.HandshakeTimeout, 10*time.Second)
	l.opts.RemoteHandshakeTimeout = cmp.Or(l.opts.RemoteHandshakeTimeout, 3*time.Second)
	l.opts.MaxMessageRate = cmp.Or(l.opts.MaxMessageRate, maxMessageRate)
	l.opts.SocketMode = cmp.Or(l.opts.SocketMode, 0o600)
	l.opts.MaxUnauthenticated = cmp.Or(l.opts.MaxUnauthenticated, 256)
	if l.opts.IsLocal == nil {
		l.opts.IsLocal = netip.Addr.IsLoopback
	}
	if l.opts.Enroll == nil {
		l.opts.Enroll = func(context.Context, string, bool) (string, error) {
			return "", errs.New(errs.Unauthenticated, "token= is missing").With("missing", "token")
		}
	}
	l.unauthenticated = &anonymousLimiter{
		limit:  l.opts.MaxUnauthenticated,
		remote: background.NewLimiter[netip.Prefix](l.opts.MaxUnauthenticated-l.opts.MaxUnauthenticated/4, maxPerRemotePrefix),
	}
	l.enrollments = rate.NewLimiter(enrollmentRate, enrollmentBurst)
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// Start implements background.Service. Its error names an address that is in use.
func (l *TCPListener) Start(ctx context.Context) (err error) {
	if path, ok := UnixPath(l.address); ok {
		l.listener, err = listenUnix(ctx, path, l.opts.SocketMode)
	} else {
		l.listener, err = new(net.ListenConfig).Listen(ctx, "tcp", l.address)
	}
	if err != nil {
		return fmt.Errorf("%w; choose another address with %s, port 0 picks a free one", err, l.opts.Setting)
	}
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
			_ = background.Sleep(l.ctx, 100*time.Millisecond)
			continue
		}
		from, err := l.originOf(conn)
		var release func()
		if err == nil {
			release = l.unauthenticated.acquire(from, conn)
		}
		if release == nil {
			_ = conn.Close()
			continue
		}
		l.running.Go(func() {
			defer release()
			l.handshake(conn, from)
		})
	}
}

// handshake identifies the agent of a connection and starts serving it.
func (l *TCPListener) handshake(conn net.Conn, from origin) {
	timeout := l.opts.HandshakeTimeout
	if from.remote {
		timeout = l.opts.RemoteHandshakeTimeout
	}
	tcp := &tcpConn{
		Conn: conn, reader: bufio.NewReaderSize(conn, 4<<10), maxBytes: maxFirstBytes, idleTimeout: timeout, onPing: func() {},
		rateLimit: rate.NewLimiter(rate.Limit(l.opts.MaxMessageRate), l.opts.MaxMessageRate),
	}
	// The timeout covers everything before the agent identifies itself, including empty lines.
	readCtx, cancel := context.WithTimeout(l.ctx, timeout)
	defer cancel()
	first, err := tcp.read(readCtx)
	if err != nil {
		_ = conn.Close()
		return
	}
	proto, raw := l.introducing, first
	var sock *socket
	var version string
	if hello, ok := parseClientHello(first); ok {
		raw = nil // it contains the token
		if proto, err = l.server.protocols.required(hello.Protocol); err == nil {
			sock, version, err = l.selectedSocket(from, proto, hello)
		}
	} else if proto == nil {
		err = errs.New(errs.InvalidRequest, "the first line must be a hello frame that selects a protocol")
	} else {
		sock, err = l.introducedSocket(from, first)
	}
	if err != nil {
		l.refuse(tcp, proto, err, raw, from)
		return
	}
	tcp.idleTimeout, tcp.maxBytes, tcp.onPing = l.opts.IdleTimeout, proto.maxBytes(), func() { sock.alive.Store(true) }
	if from.name != "" {
		l.server.log.Info("an agent connected to the Unix socket", "agent", sock.agentID, "peer", from.name)
	}
	sock.conn, sock.from = tcp, from.prefix
	sock.start(version, nil)
}

// refuse closes a connection with the refusal of its first line. proto is nil if it is unknown.
func (l *TCPListener) refuse(tcp *tcpConn, proto *describedProtocol, err error, raw []byte, from origin) {
	if proto == nil {
		proto, raw = l.server.protocols[0], nil
	}
	_, raw = proto.Token(raw)
	refusal := proto.Refuse(err, raw).Body
	l.server.log.Warn("a connection was refused", "remote", cmp.Or(from.name, tcp.RemoteAddr().String()), "refusal", string(refusal))
	ctx, cancel := context.WithTimeout(l.ctx, l.server.opts.WriteTimeout)
	defer cancel()
	_ = tcp.write(ctx, refusal)
	_ = tcp.Close()
}

// selectedSocket returns the socket of a connection that began with a hello frame. Its token must
// not cross the network, so the agent must be on this machine.
func (l *TCPListener) selectedSocket(from origin, proto *describedProtocol, hello clientHello) (*socket, string, error) {
	if from.remote {
		return nil, "", errs.New(errs.Unauthenticated, "a token must not cross the network; connect from this machine")
	}
	if hello.Concurrency < 1 || hello.Concurrency > orchestrator.MaxConcurrency {
		return nil, "", errs.New(errs.InvalidParameter, "concurrency must be an integer from 1 to %d, not %d", orchestrator.MaxConcurrency, hello.Concurrency)
	}
	p, err := l.server.authenticator.VerifyToken(l.ctx, hello.Token, from.prefix)
	if err != nil {
		return nil, "", err
	}
	version, err := proto.negotiate(hello.Versions)
	if err != nil {
		return nil, "", err
	}
	agent, err := l.agentOf(proto, p)
	if err != nil {
		return nil, "", err
	}
	sock := l.server.newSocket(l.server.newConnection(agent, TCP, proto, hello.Concurrency), l.server.tokenVerifier(hello.Token))
	sock.token, sock.tokenID = hello.Token, p.TokenID
	return sock, version, nil
}

// agentOf returns the agent of a principal, which the protocol must accept.
func (l *TCPListener) agentOf(proto *describedProtocol, p models.Principal) (models.Agent, error) {
	if p.AgentID == nil {
		return models.Agent{}, errs.New(errs.ForeignAgent, "the token %q is bound to no agent", p.Name)
	}
	return l.server.acceptedAgent(l.ctx, proto, *p.AgentID)
}

// introducedSocket returns the socket of a connection whose first message identifies the agent.
func (l *TCPListener) introducedSocket(from origin, first []byte) (*socket, error) {
	proto := l.introducing
	token, verify, err := l.identify(from, first)
	if err != nil {
		return nil, err
	}
	p, err := verify(l.ctx)
	if err != nil {
		return nil, err
	}
	peer := protocol.Peer{Principal: p, Transport: TCP, Remote: from.remote}
	if p.AgentID != nil {
		if err := l.server.verifySignature(l.ctx, proto, peer, first, from.prefix, token); err != nil {
			return nil, err
		}
	}
	agent, err := l.agentOf(proto, p)
	if err != nil {
		return nil, err
	}
	sock := l.server.newSocket(l.server.newConnection(agent, TCP, proto, 1), verify)
	_, sock.first = proto.Token(first)
	sock.firstVerified, sock.peer.Remote, sock.token, sock.tokenID = true, from.remote, token, p.TokenID
	return sock, nil
}

// identify returns the token of a connection, "" for none, and a function that returns its
// principal. After too many invalid signatures of the address or the agent it verifies nothing.
func (l *TCPListener) identify(from origin, first []byte) (token string, verify func(context.Context) (models.Principal, error), err error) {
	a := l.server.authenticator
	wait := a.AddressWait(from.prefix)
	if wait > 0 && from.remote {
		return "", nil, errTooManyBadSignatures(wait)
	}
	intro, err := l.introducing.info.Introduce(l.ctx, protocol.Peer{Transport: TCP, Remote: from.remote}, first)
	if wait > 0 && intro.SignedBy != "" {
		return "", nil, errTooManyBadSignatures(wait)
	}
	if err != nil {
		return "", nil, err
	}
	if from.remote && intro.SignedBy == "" {
		return "", nil, errs.New(errs.Unauthenticated, "connections are accepted from this machine only")
	}
	if intro.SignedBy != "" {
		if wait := a.AgentWait(intro.SignedBy); wait > 0 {
			return "", nil, errTooManyBadSignatures(wait)
		}
		return "", l.keyHolder(intro.SignedBy, from), nil
	}
	if token, _ := l.introducing.Token(first); token != "" {
		_, err := a.VerifyToken(l.ctx, token, from.prefix)
		return token, l.server.tokenVerifier(token), err
	}
	if err := l.server.connections.checkCapacity(); err != nil {
		return "", nil, err
	}
	if !l.enrollments.Allow() {
		return "", nil, errs.New(errs.Busy, "too many agents are registering themselves at the same time; try again in a second")
	}
	id, err := l.opts.Enroll(l.ctx, intro.Name, from.trusted)
	if err != nil {
		return "", nil, err
	}
	return "", l.enrolled(id, from.trusted), nil
}

// keyHolder returns the principal of an agent that signs, as long as it is active and has a key.
// Such an agent may not submit tasks, because that needs a token, unless it is a local agent that could
// do so without a signature.
func (l *TCPListener) keyHolder(agentID string, from origin) func(context.Context) (models.Principal, error) {
	return func(ctx context.Context) (models.Principal, error) {
		p := tokenlessPrincipal(agentID)
		agent, err := l.activeAgent(ctx, agentID)
		if err != nil {
			return p, err
		}
		key, err := l.server.signingKey(ctx, agentID, l.introducing)
		if err == nil && key == (models.AgentKey{}) {
			err = errs.New(errs.Unauthenticated, "the agent %q has no key", agentID).With("tokenless", true)
		}
		if err == nil && !from.remote && (from.trusted || agent.SelfRegistered) {
			p.Scopes = []models.Scope{models.ScopeMessagesSend}
		}
		return p, err
	}
}

// enrolled returns the principal of an agent that enrolled itself, as long as it is active and, unless its
// connection is trusted, needs no token. It may submit tasks.
func (l *TCPListener) enrolled(agentID string, trusted bool) func(context.Context) (models.Principal, error) {
	p := tokenlessPrincipal(agentID)
	p.Scopes = []models.Scope{models.ScopeMessagesSend}
	return func(ctx context.Context) (models.Principal, error) {
		agent, err := l.activeAgent(ctx, agentID)
		if err == nil && !trusted && !agent.SelfRegistered {
			err = errs.New(errs.Unauthenticated, "the agent %q needs a token now", agentID).With("tokenless", true)
		}
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

func (l *TCPListener) originOf(c net.Conn) (origin, error) {
	if conn, ok := c.(*net.UnixConn); ok {
		return unixOrigin(conn), nil
	}
	at, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return origin{}, errs.New(errs.Unauthenticated, "the address of the connection is unknown")
	}
	addr := at.Addr().Unmap()
	return origin{remote: !l.opts.IsLocal(addr), prefix: httpkit.AddressPrefix(addr)}, nil
}
