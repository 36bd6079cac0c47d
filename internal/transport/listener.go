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

// ListenerOptions configures NewListener; nil is the zero value.
type ListenerOptions struct {
	// Enroll registers an agent that brings no token, under a name that it proposes, ""
	// for any, and returns its id. Default: it is refused.
	Enroll func(ctx context.Context, name string) (agentID string, err error)
	// Enrolled reports whether an agent is one that Enroll has registered. Default: none is.
	Enrolled func(models.Agent) bool
	// Local tells the addresses of this machine, whose agents are believed; default the
	// loopback ones. What comes from another one has to be signed.
	Local func(netip.Addr) bool
	// Idle is how long an agent may say nothing, default 10 min; Greeting how long it may
	// take to say who it is, default 10 s, and FarGreeting one on another machine, default
	// 3 s.
	Idle, Greeting, FarGreeting time.Duration
	// Pace is how many lines a second are read of one connection, default 500.
	Pace int
	// MaxStrangers bounds how many connections there are that have not said who they are,
	// default 256. A quarter of them is for this machine.
	MaxStrangers int
}

// How many agents may register themselves a second in the long run, and at once.
const (
	enrollments    = 10
	maxEnrollments = 2000
)

// Listener takes lines of text over TCP: the plain dialect of its links, without HTTP
// around it. It implements lifecycle.Service and is stopped before its Links.
type Listener struct {
	l       *Transports
	speech  protocol.Protocol
	address string
	opts    ListenerOptions

	listener  net.Listener
	strangers *strangers
	enrolling *rate.Limiter
	ctx       context.Context
	cancel    context.CancelFunc
	running   sync.WaitGroup
}

// NewListener returns a listener on an address such as 127.0.0.1:7005.
func NewListener(l *Transports, address string, opts *ListenerOptions) *Listener {
	s := &Listener{l: l, speech: l.plain(), address: address}
	if opts != nil {
		s.opts = *opts
	}
	s.opts.Idle = orElse(s.opts.Idle, 10*time.Minute)
	s.opts.Greeting = orElse(s.opts.Greeting, 10*time.Second)
	s.opts.FarGreeting = orElse(s.opts.FarGreeting, 3*time.Second)
	s.opts.Pace = orElse(s.opts.Pace, 500)
	s.opts.MaxStrangers = orElse(s.opts.MaxStrangers, 256)
	if s.opts.Local == nil {
		s.opts.Local = netip.Addr.IsLoopback
	}
	if s.opts.Enroll == nil {
		s.opts.Enroll = func(context.Context, string) (string, error) {
			return "", errs.New(errs.Unauthenticated, "token= is missing").With("missing", "token")
		}
	}
	if s.opts.Enrolled == nil {
		s.opts.Enrolled = func(models.Agent) bool { return false }
	}
	s.strangers = newStrangers(s.opts.MaxStrangers)
	s.enrolling = rate.NewLimiter(enrollments, maxEnrollments)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Start implements lifecycle.Service. The error names the address that is not free.
func (s *Listener) Start(ctx context.Context) error {
	if s.speech == nil {
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
func (s *Listener) Addr() net.Addr { return s.listener.Addr() }

// Stop implements lifecycle.Service: nobody is let in any more. The lines that there are
// end with their Links.
func (s *Listener) Stop(context.Context) error {
	s.cancel()
	if s.listener != nil {
		_ = s.listener.Close()
	}
	s.running.Wait()
	return nil
}

func (s *Listener) accept() {
	for {
		conn, err := s.listener.Accept()
		switch {
		case s.ctx.Err() != nil:
			if conn != nil {
				_ = conn.Close()
			}
			return
		case err != nil: // too many files are open, for instance
			s.l.log.Warn("a connection could not be taken", "error", err)
			select {
			case <-s.ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		from, err := s.from(conn)
		if err != nil || !s.strangers.enter(from) {
			_ = conn.Close()
			continue
		}
		s.running.Go(func() { s.greet(conn, from) })
	}
}

// greet hears who a connection is, and makes it a line.
func (s *Listener) greet(conn net.Conn, from origin) {
	defer s.strangers.leave(from)
	greeting := s.opts.Greeting
	if from.line.Remote {
		greeting = s.opts.FarGreeting
	}
	c := newTCPConn(conn, rate.NewLimiter(rate.Limit(s.opts.Pace), s.opts.Pace), greeting)
	// The time is for all that comes before it says who it is, empty lines too.
	soon, done := context.WithTimeout(s.ctx, greeting)
	defer done()
	first, err := c.read(soon)
	if err != nil {
		_ = conn.Close()
		return
	}
	line, err := s.line(c, from, first)
	if err != nil {
		answer := s.speech.Refuse(err, withoutToken(s.speech, first)).Body
		s.l.log.Warn("somebody was turned away", "remote", conn.RemoteAddr().String(), "answer", string(answer))
		ctx, cancel := context.WithTimeout(s.ctx, s.l.opts.WriteTimeout)
		defer cancel()
		_ = c.write(ctx, answer)
		_ = conn.Close()
		return
	}
	go line.run(s.l.ctx, "")
}

// withoutToken is a message as it may be answered and logged.
func withoutToken(speech protocol.Protocol, raw []byte) []byte {
	_, rest := speech.Token(raw)
	return rest
}

// line is the line of a connection whose first message has been read.
func (s *Listener) line(c *tcpConn, from origin, first []byte) (*socket, error) {
	ctx := protocol.WithConnection(s.ctx, from.line)
	who, err := s.who(ctx, from, first)
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
	agent, err := s.l.accepted(s.ctx, s.speech, *p.AgentID)
	if err != nil {
		return nil, err
	}
	c.first, c.idle = withoutToken(s.speech, first), s.opts.Idle
	line := &socket{held: newHeld(agent.ID, TCP, s.speech, 1, s.l.opts.Clock()), l: s.l, conn: c, who: who, agent: agent}
	line.far, line.vouched, line.from = from.line.Remote, true, from.subscriber
	c.lives = func() { line.shown.Store(true) }
	return line, s.l.lines.enter(line.held)
}

// who finds out whose connection it is (decisions: “on the TCP listener token= in the
// DATA of J (loopback only) binds the connection”).
func (s *Listener) who(ctx context.Context, from origin, first []byte) (func(context.Context) (models.Principal, error), error) {
	in, ok := s.speech.(introducer)
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
	if token, _ := s.speech.Token(first); token != "" {
		_, err := s.l.doorman.verify(ctx, token, from.subscriber)
		return s.l.verified(token), err
	}
	if err := s.l.lines.room(); err != nil {
		return nil, err
	}
	if !s.enrolling.Allow() {
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
func (s *Listener) enrolled(agentID string) func(context.Context) (models.Principal, error) {
	p := lineOf(agentID)
	p.Scopes = []models.Scope{models.ScopeMessagesSend}
	return func(ctx context.Context) (models.Principal, error) {
		_, err := s.active(ctx, agentID)
		return p, err
	}
}

// lineOf is an agent without a token, by its line, which may do what agents may.
func lineOf(agentID string) models.Principal {
	return models.Principal{TokenID: "line-of-" + agentID, Name: agentID, AgentID: &agentID}
}

// active returns an agent that is not deactivated.
func (s *Listener) active(ctx context.Context, agentID string) (models.Agent, error) {
	agent, err := s.l.core.Work.Agent(ctx, agentID)
	if err == nil && !agent.IsActive {
		err = errs.New(errs.AgentInactive, "the agent %q is deactivated", agentID).With("tokenless", true)
	}
	return agent, err
}
