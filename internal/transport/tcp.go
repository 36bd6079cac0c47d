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

// TCP is the way to an agent that has connected to the Listener.
const TCP = "tcp"

// introducer is a dialect in which somebody says who he is with his first message.
type introducer interface {
	// Introduction returns the name that a message proposes for its sender, "" for none;
	// its error is for Refuse, of a message that is no introduction.
	Introduction(raw []byte) (name string, err error)
}

// TCPOptions configures NewListener; nil is the zero value.
type TCPOptions struct {
	// Enroll registers an agent that brings no token, under a name that it proposes, ""
	// for any, and returns its id. Default: it is refused.
	Enroll func(ctx context.Context, name string) (agentID string, err error)
	// IsEnrolled reports whether an agent is one that Enroll has registered. Default: none is.
	IsEnrolled func(models.Agent) bool
	// IsLocal tells the addresses of this machine, whose agents are believed; default the
	// loopback ones. What comes from another one has to be signed.
	IsLocal func(netip.Addr) bool
	// IdleTimeout is how long an agent may say nothing, default 10 min; HandshakeTimeout how long it may
	// take to say who it is, default 10 s, and RemoteHandshakeTimeout one on another machine, default
	// 3 s.
	IdleTimeout, HandshakeTimeout, RemoteHandshakeTimeout time.Duration
	// MaxMessageRate is how many lines a second are read of one connection, default 500.
	MaxMessageRate int
	// MaxUnauthenticated bounds how many connections there are that have not said who they are,
	// default 256. A quarter of them is for this machine.
	MaxUnauthenticated int
}

// How many agents may register themselves a second in the long run, and at once.
const (
	enrollmentRate  = 10
	enrollmentBurst = 2000
)

// TCPListener takes lines of text over TCP: the plain dialect of its links, without HTTP
// around it. It implements lifecycle.Service and is stopped before its Links.
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
func NewTCPListener(l *Server, address string, opts *TCPOptions) *TCPListener {
	s := &TCPListener{server: l, protocol: l.unframedProtocol(), address: address}
	if opts != nil {
		s.opts = *opts
	}
	s.opts.IdleTimeout = orElse(s.opts.IdleTimeout, 10*time.Minute)
	s.opts.HandshakeTimeout = orElse(s.opts.HandshakeTimeout, 10*time.Second)
	s.opts.RemoteHandshakeTimeout = orElse(s.opts.RemoteHandshakeTimeout, 3*time.Second)
	s.opts.MaxMessageRate = orElse(s.opts.MaxMessageRate, 500)
	s.opts.MaxUnauthenticated = orElse(s.opts.MaxUnauthenticated, 256)
	if s.opts.IsLocal == nil {
		s.opts.IsLocal = netip.Addr.IsLoopback
	}
	if s.opts.Enroll == nil {
		s.opts.Enroll = func(context.Context, string) (string, error) {
			return "", errs.New(errs.Unauthenticated, "token= is missing").With("missing", "token")
		}
	}
	if s.opts.IsEnrolled == nil {
		s.opts.IsEnrolled = func(models.Agent) bool { return false }
	}
	s.unauthenticated = newAnonymousLimiter(s.opts.MaxUnauthenticated)
	s.enrollments = rate.NewLimiter(enrollmentRate, enrollmentBurst)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Start implements lifecycle.Service. The error names the address that is not free.
func (s *TCPListener) Start(ctx context.Context) error {
	if s.protocol == nil {
		return errors.New("no plain dialect is spoken")
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", s.address)
	if err != nil {
		return fmt.Errorf("listen on %s: %w; choose another address with --v5-listen, port 0 picks a free one", s.address, err)
	}
	s.listener = listener
	s.running.Go(s.accept)
	return nil
}

// Addr is where it listens, once it is started.
func (s *TCPListener) Addr() net.Addr { return s.listener.Addr() }

// Stop implements lifecycle.Service: nobody is let in any more. The lines that there are
// end with their Links.
func (s *TCPListener) Stop(context.Context) error {
	s.cancel()
	if s.listener != nil {
		_ = s.listener.Close()
	}
	s.running.Wait()
	return nil
}

func (s *TCPListener) accept() {
	for {
		conn, err := s.listener.Accept()
		switch {
		case s.ctx.Err() != nil:
			if conn != nil {
				_ = conn.Close()
			}
			return
		case err != nil: // too many files are open, for instance
			s.server.log.Warn("a connection could not be taken", "error", err)
			select {
			case <-s.ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		from, err := s.originOf(conn)
		if err != nil || !s.unauthenticated.acquire(from) {
			_ = conn.Close()
			continue
		}
		s.running.Go(func() { s.handshake(conn, from) })
	}
}

// handshake hears who a connection is, and makes it a line.
func (s *TCPListener) handshake(conn net.Conn, from origin) {
	defer s.unauthenticated.release(from)
	greeting := s.opts.HandshakeTimeout
	if from.conn.Remote {
		greeting = s.opts.RemoteHandshakeTimeout
	}
	c := newTCPConn(conn, rate.NewLimiter(rate.Limit(s.opts.MaxMessageRate), s.opts.MaxMessageRate), greeting)
	// The time is for all that comes before it says who it is, empty lines too.
	soon, done := context.WithTimeout(s.ctx, greeting)
	defer done()
	first, err := c.read(soon)
	if err != nil {
		_ = conn.Close()
		return
	}
	line, err := s.newSocket(c, from, first)
	if err != nil {
		answer := s.protocol.Refuse(err, withoutToken(s.protocol, first)).Body
		s.server.log.Warn("somebody was turned away", "remote", conn.RemoteAddr().String(), "answer", string(answer))
		ctx, cancel := context.WithTimeout(s.ctx, s.server.opts.WriteTimeout)
		defer cancel()
		_ = c.write(ctx, answer)
		_ = conn.Close()
		return
	}
	go line.run(s.server.ctx, "")
}

// withoutToken is a message as it may be answered and logged.
func withoutToken(speech protocol.Protocol, raw []byte) []byte {
	_, rest := speech.Token(raw)
	return rest
}

// newSocket is the line of a connection whose first message has been read.
func (s *TCPListener) newSocket(c *tcpConn, from origin, first []byte) (*socket, error) {
	ctx := protocol.WithConnection(s.ctx, from.conn)
	who, err := s.identify(ctx, from, first)
	if err != nil {
		return nil, err
	}
	p, err := who(ctx)
	if err == nil && p.AgentID == nil {
		err = errs.New(errs.ForeignAgent, "the token %q is bound to no agent", p.Name)
	}
	if err == nil {
		err = s.authenticate(ctx, from, *p.AgentID, first)
	}
	if err != nil {
		return nil, err
	}
	agent, err := s.server.acceptedAgent(s.ctx, s.protocol, *p.AgentID)
	if err != nil {
		return nil, err
	}
	c.first, c.idleTimeout = withoutToken(s.protocol, first), s.opts.IdleTimeout
	line := &socket{connection: newConnection(agent.ID, TCP, s.protocol, 1, s.server.opts.Clock()), server: s.server, conn: c, verify: who, agent: agent}
	line.remote, line.firstVerified, line.from = from.conn.Remote, true, from.prefix
	c.onPing = func() { line.alive.Store(true) }
	return line, s.server.connections.add(line.connection)
}

// identify finds out whose connection it is (decisions: “on the TCP listener token= in the
// DATA of J (loopback only) binds the connection”).
func (s *TCPListener) identify(ctx context.Context, from origin, first []byte) (func(context.Context) (models.Principal, error), error) {
	in, ok := s.protocol.(introducer)
	if !ok {
		return nil, errs.New(errs.Unauthenticated, "nobody can introduce himself in this dialect")
	}
	name, err := in.Introduction(first)
	if err != nil {
		return nil, err
	}
	if who, err := s.signer(ctx, from, first); who != nil || err != nil {
		return who, err
	}
	if token, _ := s.protocol.Token(first); token != "" {
		_, err := s.server.authenticator.verifyToken(ctx, token, from.prefix)
		return s.server.tokenVerifier(token), err
	}
	if err := s.server.connections.checkCapacity(); err != nil {
		return nil, err
	}
	if !s.enrollments.Allow() {
		return nil, errs.New(errs.Busy, "too many agents register themselves; try again in a second")
	}
	id, err := s.opts.Enroll(s.ctx, name)
	if err != nil {
		return nil, err
	}
	return s.enrolled(id), nil
}

// enrolled is an agent that has registered itself, for as long as it is active. It may do
// what agents may, and ask for work.
func (s *TCPListener) enrolled(agentID string) func(context.Context) (models.Principal, error) {
	p := tokenlessPrincipal(agentID)
	p.Scopes = []models.Scope{models.ScopeMessagesSend}
	return func(ctx context.Context) (models.Principal, error) {
		_, err := s.activeAgent(ctx, agentID)
		return p, err
	}
}

// tokenlessPrincipal is an agent without a token, by its line, which may do what agents may.
func tokenlessPrincipal(agentID string) models.Principal {
	return models.Principal{TokenID: "line-of-" + agentID, Name: agentID, AgentID: &agentID}
}

// activeAgent returns an agent that is not deactivated.
func (s *TCPListener) activeAgent(ctx context.Context, agentID string) (models.Agent, error) {
	agent, err := s.server.core.Work.Agent(ctx, agentID)
	if err == nil && !agent.IsActive {
		err = errs.New(errs.AgentInactive, "the agent %q is deactivated", agentID).With("tokenless", true)
	}
	return agent, err
}

// maxPerRemotePrefix is how many strangers there may be of one address on another machine, that
// of a subscriber.
const maxPerRemotePrefix = 8

// anonymousLimiter counts the connections that have not said who they are. They cost nothing to
// make, so that whoever makes many must not keep the others out: each address on another
// machine has a few, and all of them together leave some for this one.
type anonymousLimiter struct {
	max, maxRemote int

	mu            sync.Mutex
	count, remote int
	byPrefix      map[netip.Prefix]int // those on other machines
}

func newAnonymousLimiter(most int) *anonymousLimiter {
	return &anonymousLimiter{max: most, maxRemote: most - most/4, byPrefix: map[netip.Prefix]int{}}
}

// acquire reports whether there is room for one more from somewhere, who leaves then.
func (s *anonymousLimiter) acquire(from origin) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count >= s.max {
		return false
	}
	if from.conn.Remote {
		if s.remote >= s.maxRemote || s.byPrefix[from.prefix] >= maxPerRemotePrefix {
			return false
		}
		s.remote++
		s.byPrefix[from.prefix]++
	}
	s.count++
	return true
}

func (s *anonymousLimiter) release(from origin) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count--
	if !from.conn.Remote {
		return
	}
	s.remote--
	if s.byPrefix[from.prefix]--; s.byPrefix[from.prefix] == 0 {
		delete(s.byPrefix, from.prefix)
	}
}
