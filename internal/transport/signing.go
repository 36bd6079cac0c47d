package transport

import (
	"context"
	"crypto/sha256"
	"math"
	"net"
	"net/netip"
	"time"

	"github.com/coder/websocket"

	"comet/internal/errs"
	"comet/internal/protocol"
	"comet/models"
)

// signingProtocol is a protocol whose messages may be signed. On a connection from another machine
// they must be signed.
type signingProtocol interface {
	// Signer returns the agent that a signed join message names, "" for a message that is not
	// signed. Its error is for Refuse.
	Signer(ctx context.Context, raw []byte) (agentID string, err error)
	// Authenticate verifies the signature of a join message, if it has one or must have one. Its
	// error is for Refuse, errs.Unauthenticated for an invalid signature.
	Authenticate(ctx context.Context, agentID string, raw []byte) error
	// MustSign reports whether an agent must sign every message, even on this machine.
	MustSign(ctx context.Context, agentID string) (bool, error)
	// HasKey returns errs.Unauthenticated for an agent without a signing key.
	HasKey(ctx context.Context, agentID string) error
}

// signatureState is what a connection knows about its signatures. The zero value is for a
// connection that does not use them.
type signatureState struct {
	// remote says that the agent is on another machine.
	remote bool
	// firstVerified says that the signature of the first message was verified during the handshake.
	firstVerified bool
	// from is the address of the agent, and token its bearer token, "" for none.
	from  netip.Prefix
	token string
}

// context returns the context for the messages of the connection.
func (s *signatureState) context(ctx context.Context) context.Context {
	return protocol.WithConnection(ctx, protocol.Connection{Remote: s.remote})
}

// nextContext returns the context for the next received message.
func (s *signatureState) nextContext(ctx context.Context) context.Context {
	if !s.firstVerified {
		return ctx
	}
	s.firstVerified = false
	return protocol.WithConnection(ctx, protocol.Connection{Remote: s.remote, Verified: true})
}

// firstMessageTimeout is how long an agent that must sign may take to send its first message.
const firstMessageTimeout = 10 * time.Second

// prefetchedConn is a connection whose first message was read before.
type prefetchedConn struct {
	messageConn
	first []byte
}

func (c *prefetchedConn) read(ctx context.Context) ([]byte, error) {
	if first := c.first; first != nil {
		c.first = nil
		return first, nil
	}
	return c.messageConn.read(ctx)
}

// checkFirstMessage reads the first message of an agent that must sign and verifies its signature.
// A refused message changes nothing: the agent's older connection continues. It reports false if it
// closed the connection.
func (s *socket) checkFirstMessage() bool {
	signing, ok := s.protocol.(signingProtocol)
	if !ok || !s.protocol.Unframed() {
		return true
	}
	mustSign, err := signing.MustSign(s.server.ctx, s.agentID)
	if err != nil {
		s.reject(err, websocket.StatusTryAgainLater)
		return false
	}
	if !mustSign {
		return true
	}
	ctx, cancel := context.WithTimeout(s.signatureState.context(s.server.ctx), firstMessageTimeout)
	defer cancel()
	first, err := s.conn.read(ctx)
	if err != nil {
		s.conn.cut()
		return false
	}
	if err := signing.Authenticate(ctx, s.agentID, first); err != nil {
		if errs.Is(err, errs.Unauthenticated) {
			s.server.authenticator.countBadSignature(s.from, s.agentID, s.token)
		}
		_ = s.write(s.protocol.Refuse(err, withoutToken(s.protocol, first)).Body)
		s.conn.close(websocket.StatusPolicyViolation, "")
		return false
	}
	s.conn, s.firstVerified = &prefetchedConn{s.conn, first}, true
	return true
}

// origin is where a connection comes from.
type origin struct {
	conn   protocol.Connection
	prefix netip.Prefix
}

func (l *TCPListener) originOf(c net.Conn) (origin, error) {
	at, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return origin{}, errs.New(errs.Unauthenticated, "the address of the connection is unknown")
	}
	addr := at.Addr().Unmap()
	return origin{protocol.Connection{Remote: !l.opts.IsLocal(addr)}, subscriberPrefix(addr)}, nil
}

// signer returns a function that returns the principal of an agent identified by its signature,
// which is still to be verified. It returns nil if the first message identifies the agent in
// another way, which a remote agent cannot do. If the address or the agent had too many invalid
// signatures, the error says so and the message is not verified.
func (l *TCPListener) signer(ctx context.Context, from origin, first []byte) (func(context.Context) (models.Principal, error), error) {
	signing, ok := l.protocol.(signingProtocol)
	if !ok {
		if from.conn.Remote {
			return nil, errs.New(errs.Unauthenticated, "connections are accepted from this machine only")
		}
		return nil, nil //nolint:nilnil // nil means: not identified by a signature
	}
	if wait := l.server.authenticator.addressThrottle(from.prefix); from.conn.Remote && wait > 0 {
		return nil, errTooManyBadSignatures(wait)
	}
	agentID, err := signing.Signer(ctx, first)
	if agentID == "" || err != nil {
		return nil, err
	}
	if wait := max(l.server.authenticator.addressThrottle(from.prefix), l.server.authenticator.agentThrottle(agentID)); wait > 0 {
		return nil, errTooManyBadSignatures(wait)
	}
	return l.keyHolder(signing, agentID, from.conn.Remote), nil
}

// keyHolder returns the principal of an agent that signs, as long as it is active and has a key.
// Such an agent may not submit tasks, because that needs a token; only a local agent that enrolled
// itself may, as it could without a signature.
func (l *TCPListener) keyHolder(signing signingProtocol, agentID string, remote bool) func(context.Context) (models.Principal, error) {
	return func(ctx context.Context) (models.Principal, error) {
		p := tokenlessPrincipal(agentID)
		agent, err := l.activeAgent(ctx, agentID)
		if err == nil {
			err = signing.HasKey(ctx, agentID)
		}
		if err == nil && !remote && l.opts.IsEnrolled(agent) {
			p.Scopes = []models.Scope{models.ScopeMessagesSend}
		}
		return p, err
	}
}

// authenticate verifies the signature of a first message. A refused message changes nothing: the
// agent's older connection continues.
func (l *TCPListener) authenticate(ctx context.Context, from origin, agentID string, first []byte) error {
	signing, ok := l.protocol.(signingProtocol)
	if !ok {
		return nil
	}
	err := signing.Authenticate(ctx, agentID, first)
	if errs.Is(err, errs.Unauthenticated) {
		l.server.authenticator.countBadSignature(from.prefix, agentID, "")
	}
	return err
}

// countBadSignature counts an invalid signature as a failure of the address and of the named agent,
// and reports whether either is throttled now. The token, if any, loses its exemption from
// throttling: it may be stolen.
func (a *authenticator) countBadSignature(client netip.Prefix, agentID, token string) (tooMany bool) {
	if token != "" {
		a.accepted.Remove(sha256.Sum256([]byte(token)))
	}
	a.countFailure(client)
	a.mu.Lock()
	addFailure(a.badSignatures, agentID, a.clock())
	a.mu.Unlock()
	return a.addressThrottle(client) > 0 || a.agentThrottle(agentID) > 0
}

// agentThrottle returns how long signatures for an agent without a token are not verified, 0 if
// they are. It stops an attacker with many addresses.
func (a *authenticator) agentThrottle(agentID string) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return throttleOf(a.badSignatures, agentID, a.maxFailures, a.clock())
}

// errTooManyBadSignatures is the error for a throttled address or agent.
func errTooManyBadSignatures(wait time.Duration) error {
	return errs.New(errs.RateLimited, "too many invalid signatures from this address").With(retryAfter, int(math.Ceil(wait.Seconds())))
}

// agentIDOf returns the agent id of a principal, "" for none.
func agentIDOf(p models.Principal) string {
	if p.AgentID == nil {
		return ""
	}
	return *p.AgentID
}

// messageReceiver returns a function that receives the messages of one request. It refuses the rest
// after too many invalid signatures.
func (s *Server) messageReceiver(proto protocol.Protocol, from caller, client netip.Prefix) func(ctx context.Context, raw []byte, wait time.Duration) protocol.Reply {
	throttled := false
	return func(ctx context.Context, raw []byte, wait time.Duration) protocol.Reply {
		if throttled {
			return proto.Refuse(errTooManyBadSignatures(s.authenticator.addressThrottle(client)), raw)
		}
		reply := proto.Receive(ctx, from.Principal, raw, wait)
		throttled = reply.BadSignature && s.authenticator.countBadSignature(client, agentIDOf(from.Principal), from.token)
		return reply
	}
}
