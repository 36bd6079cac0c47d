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

// maxMissedHeartbeats is how many heartbeats a WebSocket may leave unanswered.
const maxMissedHeartbeats = 2

// socket is a line that is a connection of its own: a WebSocket, or TCP. Its own
// goroutine hands over what is in the inbox and looks after the line; another one reads.
type socket struct {
	*connection
	server *Server
	conn   messageConn
	agent  models.Agent
	// verify returns whose line it is, as long as that is so.
	verify func(context.Context) (models.Principal, error)
	signatureState
	// joinedAt is closed when the agent has said that it is there.
	joinedAt chan struct{}
	// group are the reader and the pings that are under way.
	group sync.WaitGroup

	mu sync.Mutex // is held while a message is written on a plain line
	// written are the messages that a plain line has taken whole and whose agent has not
	// spoken since, or whose acknowledgement is not noted yet.
	written map[string]bool
}

// tokenVerifier returns whose token it is, for as long as it is accepted.
func (l *Server) tokenVerifier(token string) func(context.Context) (models.Principal, error) {
	return func(ctx context.Context) (models.Principal, error) { return l.core.Auth.Verify(ctx, token) }
}

// run is the line, from its first to its last moment.
func (s *socket) run(ctx context.Context, version string) {
	ctx = s.signatureState.context(ctx)
	defer s.server.connections.remove(s.connection)
	defer s.conn.cut() // once what was under way is answered
	defer context.AfterFunc(ctx, s.conn.cut)()
	reading, cut := context.WithCancel(ctx)
	defer s.group.Wait()
	defer cut()
	if err := s.begin(ctx, version); err != nil {
		s.reject(err, websocket.StatusPolicyViolation)
		return
	}
	s.group.Go(func() { s.readLoop(reading) })
	s.serve(reading) // what waits for a pong ends with the line
	s.close(cut)
	if s.joined.Load() {
		s.server.disconnect(ctx, s.connection)
	}
}

// begin joins and says hello. On a plain line both are for the agent to begin.
func (s *socket) begin(ctx context.Context, version string) error {
	s.joinedAt = make(chan struct{})
	if s.protocol.Unframed() {
		return nil
	}
	if err := s.join(ctx); err != nil {
		return err
	}
	return s.write(helloFrame(s.server, s.connection, s.agent, version).encode())
}

// join makes the agent one that takes work on this line.
func (s *socket) join(ctx context.Context) error {
	if _, err := s.server.join(ctx, s.connection); err != nil {
		return err
	}
	if !s.joined.Swap(true) {
		close(s.joinedAt)
	}
	return nil
}

// serve hands over until the line is over.
func (s *socket) serve(ctx context.Context) {
	if !s.waitForJoin(ctx) {
		return
	}
	c := &deliverer{server: s.server, conn: s.connection, agent: s.agent}
	err := c.run(ctx, s.onHeartbeat, s.deliver)
	switch {
	case err == nil: // it knows why
	case errors.Is(err, context.Canceled):
		s.end(endDraining)
	default:
		s.end(endDisconnected)
	}
}

// waitForJoin waits until the agent has said that it is there, and looks after the line
// meanwhile. It reports false where the line is over before.
func (s *socket) waitForJoin(ctx context.Context) bool {
	beat := time.NewTicker(s.server.opts.Heartbeat)
	defer beat.Stop()
	for {
		select {
		case <-s.joinedAt:
			return true
		case <-s.done:
			return false
		case <-ctx.Done():
			s.end(endDraining)
			return false
		case <-beat.C:
			if s.alive.Swap(false) {
				s.missedHeartbeats.Store(0)
			} else {
				s.missedHeartbeats.Add(1)
			}
			_ = s.onHeartbeat(ctx) // which ends the line
		}
	}
}

// deliver writes one message. On a plain line nothing counts as said after it until it is
// written.
func (s *socket) deliver(p outbound) error {
	if s.protocol.Unframed() {
		s.mu.Lock()
		defer s.mu.Unlock()
	}
	for _, part := range p.parts {
		if err := s.write(part); err != nil {
			return err
		}
	}
	if !s.protocol.Unframed() {
		return nil
	}
	if s.written == nil {
		s.written = map[string]bool{}
	}
	s.written[p.id] = true
	return nil
}

// onHeartbeat is what a line does every heartbeat: its token is looked at, and its agent has
// to show that it is there.
func (s *socket) onHeartbeat(ctx context.Context) error {
	if _, err := s.verify(ctx); isRejected(err) {
		s.end(endTokenRejected)
		return nil
	}
	if s.missedHeartbeats.Load() >= maxMissedHeartbeats {
		s.end(endSilent)
		return nil
	}
	s.group.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, s.server.opts.WriteTimeout)
		defer cancel()
		_ = s.conn.ping(ctx) // the pong is noted when it comes
	})
	return nil
}

// write writes one text. An agent that does not take it in time is cut off.
func (s *socket) write(b []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.server.opts.WriteTimeout)
	defer cancel()
	return s.conn.write(ctx, b)
}

// close says good-bye, and cuts the line off where that takes too long.
func (s *socket) close(cut context.CancelFunc) {
	soon := time.AfterFunc(s.server.opts.CloseTimeout, cut)
	defer soon.Stop()
	code := websocket.StatusNormalClosure
	switch s.reason {
	case endDisconnected, endSilent:
		cut()
		return
	case endDraining:
		code = websocket.StatusGoingAway
	case endTokenRejected:
		code = websocket.StatusPolicyViolation
	}
	if s.protocol.Unframed() || s.write(frame{Bye: &bye{s.reason}}.encode()) == nil {
		s.conn.close(code, string(s.reason))
	}
}

// readLoop takes what the agent sends until the connection ends.
func (s *socket) readLoop(ctx context.Context) {
	messages := newPipeline()
	acks := &ackBatcher{acknowledge: func(ids []string) {
		_, err := s.server.acknowledgeAll(context.WithoutCancel(ctx), s.agentID, ids)
		s.server.logWarning("an acknowledgement was not noted", s.agentID, err)
	}}
	defer acks.running.Wait()
	defer messages.running.Wait()
	defer s.end(endDisconnected)
	for {
		raw, err := s.conn.read(ctx)
		if err != nil {
			return
		}
		s.alive.Store(true)
		got, isFrame := s.acknowledgedBy(raw)
		if isFrame {
			if len(got) > 0 {
				acks.add(got)
			}
			continue
		}
		within := s.nextContext(ctx)
		err = messages.add(ctx, s.protocol.OrderingKey(raw), len(raw), func() {
			heard, err := s.receive(within, raw)
			if heard && len(got) > 0 {
				acks.add(got)
			}
			if err != nil {
				s.end(endDisconnected)
			}
		})
		if err != nil {
			return
		}
	}
}

// acknowledgedBy returns what an agent has received by what it says, and whether that is
// all it says. On a plain line whoever says anything has what was written before, but for
// work: that it has to speak of.
func (s *socket) acknowledgedBy(raw []byte) (ids []string, isFrame bool) {
	if s.protocol.Unframed() {
		return s.receivedNotices(), false
	}
	f, ok := parseFrame(raw)
	return f.Ack, ok
}

// receivedNotices returns the messages that are no work and that an agent has which speaks now:
// those that were written, and not one that is still being written.
func (s *socket) receivedNotices() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	told := slices.DeleteFunc(s.inFlight.unackedNotices(), func(id string) bool { return !s.written[id] })
	clear(s.written)
	for _, id := range told { // until that is noted
		s.written[id] = true
	}
	return told
}

// receive takes one message, and reports whether its agent has said it. An error ends the
// line.
func (s *socket) receive(ctx context.Context, raw []byte) (heard bool, err error) {
	// What was read is done although the line broke, and all of it: nothing that follows may
	// be done without what came before.
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), bodyTimeout)
	defer cancel()
	who, err := s.verify(within)
	if isRejected(err) {
		_ = s.write(s.protocol.Refuse(err, raw).Body)
		s.end(endTokenRejected)
		return false, err
	}
	if err != nil {
		return false, s.write(s.protocol.Refuse(errs.Wrap(errs.Unavailable, err, "the token cannot be looked up"), raw).Body)
	}
	s.server.metrics.countReceived(s.transport)
	a := s.protocol.Receive(within, who, raw, 0)
	if a.BadSignature && s.server.authenticator.countBadSignature(s.from, s.agentID, s.token) {
		_ = s.write(a.Body)
		s.end(endTokenRejected)
		return false, errTooManyBadSignatures(0)
	}
	return !a.Unauthenticated, s.reply(within, a, raw)
}

// reply says what became of a message.
func (s *socket) reply(ctx context.Context, a protocol.Reply, raw []byte) error {
	if s.protocol.Unframed() {
		if _, work := s.inFlight.count(); s.joined.Load() && work >= s.concurrency {
			s.wake() // what it spoke of may make room for more
		}
		return s.replyUnframed(ctx, a, raw)
	}
	if a.IsError || a.SendBack && len(a.Body) > 0 {
		if err := s.write(a.Body); err != nil {
			return err
		}
	}
	if a.MessageID == "" || a.IsError && a.RetryAfter > 0 { // to come again
		return nil
	}
	return s.write(frame{Ack: []string{a.MessageID}}.encode())
}

// replyUnframed answers on a plain line. An agent that says that it is there is told so before
// it is given anything.
func (s *socket) replyUnframed(ctx context.Context, a protocol.Reply, raw []byte) error {
	comes := a.Joined && !a.IsError
	if comes && !s.joined.Load() && a.Concurrency > 0 {
		s.concurrency = a.Concurrency // nobody looks before the agent is there
	}
	if comes {
		s.setNegotiated(a)
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
		return s.write(s.protocol.Refuse(err, raw).Body)
	}
	return nil
}

// messageConn is what the texts of a line travel over. Reading and writing may go on at the same
// time.
type messageConn interface {
	// read returns the next text. It ends with ctx.
	read(ctx context.Context) ([]byte, error)
	// write sends a text. Where ctx ends first, the connection is of no use any more.
	write(ctx context.Context, text []byte) error
	// ping asks whether the other end is there.
	ping(ctx context.Context) error
	// close ends the connection, with a code and a word where it can carry them.
	close(code websocket.StatusCode, word string)
	// cut ends the connection without a word. It may be over already.
	cut()
}

// webSocketConn is a WebSocket.
type webSocketConn struct{ *websocket.Conn }

func (c webSocketConn) read(ctx context.Context) ([]byte, error) {
	_, text, err := c.Read(ctx)
	return text, err
}

func (c webSocketConn) write(ctx context.Context, text []byte) error {
	return c.Write(ctx, websocket.MessageText, text)
}

func (c webSocketConn) ping(ctx context.Context) error { return c.Ping(ctx) }

func (c webSocketConn) close(code websocket.StatusCode, word string) { _ = c.Close(code, word) }

func (c webSocketConn) cut() { _ = c.CloseNow() }
