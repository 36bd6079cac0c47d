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

// signingProtocol is a dialect whose messages may be signed, and have to be on a line from
// another machine.
type signingProtocol interface {
	// Signer returns the agent that a signed introduction names, "" for another one; its
	// error is for Refuse.
	Signer(ctx context.Context, raw []byte) (agentID string, err error)
	// Authenticate looks at the signature of an introduction, where there is one or must be
	// one. Its error is for Refuse, errs.Unauthenticated for a signature that is wrong.
	Authenticate(ctx context.Context, agentID string, raw []byte) error
	// MustSign reports whether every message of an agent has to be signed, wherever it is.
	MustSign(ctx context.Context, agentID string) (bool, error)
	// HasKey returns errs.Unauthenticated for an agent that cannot sign.
	HasKey(ctx context.Context, agentID string) error
}

// signatureState is what a line knows of the signatures on it. The zero value is that of a line on
// which nothing of its own is signed.
type signatureState struct {
	// remote says that the agent is on another machine.
	remote bool
	// firstVerified says that the signature of the first message was looked at.
	firstVerified bool
	// from is where the agent is, and token what it showed, "" for none.
	from  netip.Prefix
	token string
}

// context returns the context of what is said on the line.
func (s *signatureState) context(ctx context.Context) context.Context {
	return protocol.WithConnection(ctx, protocol.Connection{Remote: s.remote})
}

// nextContext returns the context of the message that is read next.
func (s *signatureState) nextContext(ctx context.Context) context.Context {
	if !s.firstVerified {
		return ctx
	}
	s.firstVerified = false
	return protocol.WithConnection(ctx, protocol.Connection{Remote: s.remote, Verified: true})
}

// firstMessageTimeout is how long an agent that has to sign may take to say its first message.
const firstMessageTimeout = 10 * time.Second

// prefetchedConn is a connection whose first message has been read.
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

// checkFirstMessage hears the first message of an agent that has to sign, and looks at its signature
// before anything changes for the agent: not even its older line ends for one that is refused.
// It reports false for a connection that has been turned away.
func (s *socket) checkFirstMessage() bool {
	in, ok := s.protocol.(signingProtocol)
	if !ok || !s.protocol.Unframed() {
		return true
	}
	must, err := in.MustSign(s.server.ctx, s.agentID)
	if err != nil {
		s.reject(err, websocket.StatusTryAgainLater)
		return false
	}
	if !must {
		return true
	}
	ctx, done := context.WithTimeout(s.signatureState.context(s.server.ctx), firstMessageTimeout)
	defer done()
	first, err := s.conn.read(ctx)
	if err != nil {
		s.conn.cut()
		return false
	}
	if err := in.Authenticate(ctx, s.agentID, first); err != nil {
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

func (s *TCPListener) originOf(c net.Conn) (origin, error) {
	at, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return origin{}, errs.New(errs.Unauthenticated, "it cannot be told where the connection comes from")
	}
	addr := at.Addr().Unmap()
	return origin{protocol.Connection{Remote: !s.opts.IsLocal(addr)}, subscriberPrefix(addr)}, nil
}

// signer returns whose connection it is where that is said by a signature, which is still
// to be looked at, and nil where it is said in another way. From another machine there is
// no other. Where too many signatures from the address, or for the agent, were wrong, this
// one is not looked at.
func (s *TCPListener) signer(ctx context.Context, from origin, first []byte) (func(context.Context) (models.Principal, error), error) {
	in, ok := s.protocol.(signingProtocol)
	if !ok {
		if from.conn.Remote {
			return nil, errs.New(errs.Unauthenticated, "lines are taken from this machine only")
		}
		return nil, nil //nolint:nilnil // it is said in another way
	}
	if wait := s.server.authenticator.addressThrottle(from.prefix); from.conn.Remote && wait > 0 {
		return nil, errTooManyBadSignatures(wait)
	}
	id, err := in.Signer(ctx, first)
	if id == "" || err != nil {
		return nil, err
	}
	if wait := max(s.server.authenticator.addressThrottle(from.prefix), s.server.authenticator.agentThrottle(id)); wait > 0 {
		return nil, errTooManyBadSignatures(wait)
	}
	return s.keyHolder(in, id, from.conn.Remote), nil
}

// keyHolder is an agent that signs, for as long as it is active and has a key. It may not
// ask for work, which a token has to allow. Only one on this machine that has registered
// itself may, as it may without a signature too.
func (s *TCPListener) keyHolder(in signingProtocol, agentID string, far bool) func(context.Context) (models.Principal, error) {
	return func(ctx context.Context) (models.Principal, error) {
		p := tokenlessPrincipal(agentID)
		agent, err := s.activeAgent(ctx, agentID)
		if err == nil {
			err = in.HasKey(ctx, agentID)
		}
		if err == nil && !far && s.opts.IsEnrolled(agent) {
			p.Scopes = []models.Scope{models.ScopeMessagesSend}
		}
		return p, err
	}
}

// authenticate looks at the signature of a first message, before anything changes for the
// agent: not even its older line ends for one that is refused.
func (s *TCPListener) authenticate(ctx context.Context, from origin, agentID string, first []byte) error {
	in, ok := s.protocol.(signingProtocol)
	if !ok {
		return nil
	}
	err := in.Authenticate(ctx, agentID, first)
	if errs.Is(err, errs.Unauthenticated) {
		s.server.authenticator.countBadSignature(from.prefix, agentID, "")
	}
	return err
}

// countBadSignature counts a signature that was wrong like a token that was, for the address and for
// the agent whose it should be, and reports whether either has had too many of them. The
// token that it came with counts as one that was not accepted before: it may be in wrong
// hands.
func (d *authenticator) countBadSignature(from netip.Prefix, agentID, token string) (tooMany bool) {
	if token != "" {
		d.accepted.Remove(sha256.Sum256([]byte(token)))
	}
	d.countFailure(from)
	d.mu.Lock()
	addFailure(d.badSignatures, agentID, d.clock())
	d.mu.Unlock()
	return d.addressThrottle(from) > 0 || d.agentThrottle(agentID) > 0
}

// agentThrottle is how long an agent has to wait until a signature is looked at that comes
// without its token, 0 for not at all. Somebody with many addresses is so kept from trying
// at each of them.
func (d *authenticator) agentThrottle(agentID string) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return throttleOf(d.badSignatures, agentID, d.maxFailures, d.clock())
}

// errTooManyBadSignatures is told whoever has shown too many signatures that were wrong.
func errTooManyBadSignatures(wait time.Duration) error {
	return errs.New(errs.RateLimited, "too many signatures from here were wrong").With(retryAfter, int(math.Ceil(wait.Seconds())))
}

// agentIDOf is the agent that somebody is, "" for none.
func agentIDOf(p models.Principal) string {
	if p.AgentID == nil {
		return ""
	}
	return *p.AgentID
}

// messageReceiver returns what hears the messages of one request, and no more of them once too
// many signatures were wrong.
func (l *Server) messageReceiver(speech protocol.Protocol, who caller, from netip.Prefix) func(ctx context.Context, line []byte, wait time.Duration) protocol.Reply {
	shut := false
	return func(ctx context.Context, line []byte, wait time.Duration) protocol.Reply {
		if shut {
			return speech.Refuse(errTooManyBadSignatures(l.authenticator.addressThrottle(from)), line)
		}
		a := speech.Receive(ctx, who.Principal, line, wait)
		shut = a.BadSignature && l.authenticator.countBadSignature(from, agentIDOf(who.Principal), who.token)
		return a
	}
}
