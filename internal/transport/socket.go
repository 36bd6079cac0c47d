package transport

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/coder/websocket"

	"comet/internal/errs"
	"comet/internal/protocol"
	"comet/models"
)

// patience is how many heartbeats a WebSocket may leave unanswered.
const patience = 2

// socket is a line that is a connection of its own: a WebSocket, or TCP. Its own
// goroutine hands over what is in the inbox and looks after the line; another one reads.
type socket struct {
	*held
	l     *Transports
	conn  conn
	agent models.Agent
	// who returns whose line it is, as long as that is so.
	who func(context.Context) (models.Principal, error)
	signing
	// here is closed when the agent has said that it is there.
	here chan struct{}
	// group are the reader and the pings that are under way.
	group sync.WaitGroup

	mu sync.Mutex // is held while a message is written on a plain line
	// written are the messages that a plain line has taken whole and whose agent has not
	// spoken since, or whose acknowledgement is not noted yet.
	written map[string]bool
}

// verified returns whose token it is, for as long as it is accepted.
func (l *Transports) verified(token string) func(context.Context) (models.Principal, error) {
	return func(ctx context.Context) (models.Principal, error) { return l.core.Auth.Verify(ctx, token) }
}

// run is the line, from its first to its last moment.
func (s *socket) run(ctx context.Context, version string) {
	ctx = s.signing.on(ctx)
	defer s.l.lines.leave(s.held)
	defer s.conn.cut() // once what was under way is answered
	defer context.AfterFunc(ctx, s.conn.cut)()
	reading, cut := context.WithCancel(ctx)
	defer s.group.Wait()
	defer cut()
	if err := s.begin(ctx, version); err != nil {
		s.turnAway(err, websocket.StatusPolicyViolation)
		return
	}
	s.group.Go(func() { s.read(reading) })
	s.serve(reading) // what waits for a pong ends with the line
	s.close(cut)
	if s.joined.Load() {
		s.l.hangup(ctx, s.held)
	}
}

// begin joins and says hello. On a plain line both are for the agent to begin.
func (s *socket) begin(ctx context.Context, version string) error {
	s.here = make(chan struct{})
	if s.speech.Unframed() {
		return nil
	}
	if err := s.join(ctx); err != nil {
		return err
	}
	return s.write(greeting(s.l, s.held, s.agent, version).bytes())
}

// join makes the agent one that takes work on this line.
func (s *socket) join(ctx context.Context) error {
	if _, err := s.l.join(ctx, s.held); err != nil {
		return err
	}
	if !s.joined.Swap(true) {
		close(s.here)
	}
	return nil
}

// serve hands over until the line is over.
func (s *socket) serve(ctx context.Context) {
	if !s.awaited(ctx) {
		return
	}
	c := &courier{l: s.l, line: s.held, agent: s.agent}
	err := c.carry(ctx, s.attend, s.hand)
	switch {
	case err == nil: // it knows why
	case errors.Is(err, context.Canceled):
		s.end(endDraining)
	default:
		s.end(endHungUp)
	}
}

// awaited waits until the agent has said that it is there, and looks after the line
// meanwhile. It reports false where the line is over before.
func (s *socket) awaited(ctx context.Context) bool {
	beat := time.NewTicker(s.l.opts.Heartbeat)
	defer beat.Stop()
	for {
		select {
		case <-s.here:
			return true
		case <-s.over:
			return false
		case <-ctx.Done():
			s.end(endDraining)
			return false
		case <-beat.C:
			if s.shown.Swap(false) {
				s.missed.Store(0)
			} else {
				s.missed.Add(1)
			}
			_ = s.attend(ctx) // which ends the line
		}
	}
}

// hand writes one message. On a plain line nothing counts as said after it until it is
// written.
func (s *socket) hand(p parcel) error {
	if s.speech.Unframed() {
		s.mu.Lock()
		defer s.mu.Unlock()
	}
	for _, part := range p.parts {
		if err := s.write(part); err != nil {
			return err
		}
	}
	if !s.speech.Unframed() {
		return nil
	}
	if s.written == nil {
		s.written = map[string]bool{}
	}
	s.written[p.id] = true
	return nil
}

// attend is what a line does every heartbeat: its token is looked at, and its agent has
// to show that it is there.
func (s *socket) attend(ctx context.Context) error {
	if _, err := s.who(ctx); rejected(err) {
		s.end(endRefused)
		return nil
	}
	if s.missed.Load() >= patience {
		s.end(endSilent)
		return nil
	}
	s.group.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, s.l.opts.WriteTimeout)
		defer cancel()
		_ = s.conn.ping(ctx) // the pong is noted when it comes
	})
	return nil
}

// write writes one text. An agent that does not take it in time is cut off.
func (s *socket) write(b []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.l.opts.WriteTimeout)
	defer cancel()
	return s.conn.write(ctx, b)
}

// close says good-bye, and cuts the line off where that takes too long.
func (s *socket) close(cut context.CancelFunc) {
	soon := time.AfterFunc(s.l.opts.CloseTimeout, cut)
	defer soon.Stop()
	code := websocket.StatusNormalClosure
	switch s.why {
	case endHungUp, endSilent:
		cut()
		return
	case endDraining:
		code = websocket.StatusGoingAway
	case endRefused:
		code = websocket.StatusPolicyViolation
	}
	if s.speech.Unframed() || s.write(frame{Bye: &bye{s.why}}.bytes()) == nil {
		s.conn.close(code, string(s.why))
	}
}

// read takes what the agent sends until the connection ends.
func (s *socket) read(ctx context.Context) {
	messages := newPipeline()
	acks := &receipts{note: func(ids []string) {
		_, err := s.l.acknowledgeAll(context.WithoutCancel(ctx), s.agentID, ids)
		s.l.report("an acknowledgement was not noted", s.agentID, err)
	}}
	defer acks.running.Wait()
	defer messages.running.Wait()
	defer s.end(endHungUp)
	for {
		raw, err := s.conn.read(ctx)
		if err != nil {
			return
		}
		s.shown.Store(true)
		got, isFrame := s.acknowledged(raw)
		if isFrame {
			if len(got) > 0 {
				acks.add(got)
			}
			continue
		}
		within := s.first(ctx)
		err = messages.add(ctx, s.speech.OrderingKey(raw), len(raw), func() {
			heard, err := s.take(within, raw)
			if heard && len(got) > 0 {
				acks.add(got)
			}
			if err != nil {
				s.end(endHungUp)
			}
		})
		if err != nil {
			return
		}
	}
}

// acknowledged returns what an agent has received by what it says, and whether that is
// all it says. On a plain line whoever says anything has what was written before, but for
// work: that it has to speak of.
func (s *socket) acknowledged(raw []byte) (ids []string, isFrame bool) {
	if s.speech.Unframed() {
		return s.received(), false
	}
	f, ok := parseFrame(raw)
	return f.Ack, ok
}

// received returns the messages that are no work and that an agent has which speaks now:
// those that were written, and not one that is still being written.
func (s *socket) received() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	told := slices.DeleteFunc(s.sent.toldOnly(), func(id string) bool { return !s.written[id] })
	clear(s.written)
	for _, id := range told { // until that is noted
		s.written[id] = true
	}
	return told
}

// take takes one message, and reports whether its agent has said it. An error ends the
// line.
func (s *socket) take(ctx context.Context, raw []byte) (heard bool, err error) {
	// What was read is done although the line broke, and all of it: nothing that follows may
	// be done without what came before.
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), bodyTimeout)
	defer cancel()
	who, err := s.who(within)
	if rejected(err) {
		_ = s.write(s.speech.Refuse(err, raw).Body)
		s.end(endRefused)
		return false, err
	}
	if err != nil {
		return false, s.write(s.speech.Refuse(errs.Wrap(errs.Unavailable, err, "the token cannot be looked up"), raw).Body)
	}
	s.l.counts.heard(s.link)
	a := s.speech.Receive(within, who, raw, 0)
	if a.BadSignature && s.l.doorman.forged(s.from, s.agentID, s.token) {
		_ = s.write(a.Body)
		s.end(endRefused)
		return false, errTooForged(0)
	}
	return !a.Unauthenticated, s.reply(within, a, raw)
}

// reply says what became of a message.
func (s *socket) reply(ctx context.Context, a protocol.Reply, raw []byte) error {
	if s.speech.Unframed() {
		if _, work := s.sent.count(); s.joined.Load() && work >= s.places {
			s.wake() // what it spoke of may make room for more
		}
		return s.answer(ctx, a, raw)
	}
	if a.IsError || a.SendBack && len(a.Body) > 0 {
		if err := s.write(a.Body); err != nil {
			return err
		}
	}
	if a.MessageID == "" || a.IsError && a.RetryAfter > 0 { // to come again
		return nil
	}
	return s.write(frame{Ack: []string{a.MessageID}}.bytes())
}

// answer answers on a plain line. An agent that says that it is there is told so before
// it is given anything.
func (s *socket) answer(ctx context.Context, a protocol.Reply, raw []byte) error {
	comes := a.Joined && !a.IsError
	if comes && !s.joined.Load() && a.Concurrency > 0 {
		s.places = a.Concurrency // nobody looks before the agent is there
	}
	if comes {
		s.agrees(a)
	}
	if a.IsError || a.SendBack {
		if err := s.write(a.Body); err != nil || !comes {
			return err
		}
	}
	if !comes {
		return nil
	}
	if err := s.join(ctx); err != nil {
		return s.write(s.speech.Refuse(err, raw).Body)
	}
	return nil
}
