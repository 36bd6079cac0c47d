package transport

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"comet/internal/background"
	"comet/internal/errs"
	"comet/internal/httpkit"
	"comet/internal/protocol"
	"comet/internal/requestid"
	"comet/models"
)

// maxMissedHeartbeats is how many heartbeats an agent may leave unanswered.
const maxMissedHeartbeats = 2

// socket is a bidirectional connection: WebSocket or TCP. Its own goroutine delivers messages and
// sends pings; another one reads.
type socket struct {
	*connection
	server *Server
	conn   messageConn
	// verify returns the principal of the connection, or an error once it is no longer valid.
	verify func(context.Context) (models.Principal, error)
	// first is the first message if the handshake has read it, nil otherwise. firstVerified reports
	// that the handshake has verified its signature.
	first         []byte
	firstVerified bool
	// from is the address of the agent, and token its bearer token, "" for none; tokenID is the id of its principal.
	from           netip.Prefix
	token, tokenID string
	// rejected is set when the token or too many signatures were rejected.
	rejected atomic.Bool
	// group contains the reader and the pings in progress.
	group sync.WaitGroup
	// pipeline processes the received messages.
	pipeline *pipeline

	mu sync.Mutex // held while a message is written on an unframed connection
	// written holds the messages that were written completely on an unframed connection and that
	// the agent has not acknowledged by sending something, or whose acknowledgement is not
	// committed yet.
	written map[string]bool
}

// newSocket returns the socket of a connection. The caller sets conn and calls start.
func (s *Server) newSocket(c *connection, verify func(context.Context) (models.Principal, error)) *socket {
	return &socket{connection: c, server: s, verify: verify, pipeline: newPipeline(), written: map[string]bool{}}
}

// tokenVerifier returns a function that verifies a token again.
func (s *Server) tokenVerifier(token string) func(context.Context) (models.Principal, error) {
	return func(ctx context.Context) (models.Principal, error) { return s.core.Auth.Verify(ctx, token) }
}

// start begins to serve the connection, unless it is refused: for the reason of refusal, nil for
// none, because of its first message or because there are too many connections. A refused connection
// changes nothing: the agent's older connection continues.
func (s *socket) start(version string, refusal error) {
	switch {
	case refusal != nil:
		s.reject(refusal, websocket.StatusProtocolError)
		return
	case !s.checkFirstMessage():
		return
	}
	if err := s.server.connections.add(s.connection); err != nil {
		s.reject(err, websocket.StatusTryAgainLater)
		return
	}
	go s.run(s.server.ctx, version)
}

// checkFirstMessage reads the first message of an agent that must sign and verifies its signature,
// unless the handshake has done so. It reports false if it closed the connection.
func (s *socket) checkFirstMessage() bool {
	if s.protocol.info.KeyAlgorithm == "" || s.firstVerified {
		return true
	}
	key, err := s.server.signingKey(s.server.ctx, s.agentID, s.protocol)
	if err != nil {
		s.reject(err, websocket.StatusTryAgainLater)
		return false
	}
	if !key.Required {
		return true
	}
	ctx, cancel := context.WithTimeout(s.server.ctx, firstMessageTimeout)
	defer cancel()
	if s.first, err = s.conn.read(ctx); err != nil {
		s.conn.cut()
		return false
	}
	if err := s.server.verifySignature(ctx, s.protocol, s.peer, s.first, s.from, s.token); err != nil {
		_, s.first = s.protocol.Token(s.first)
		s.reject(err, websocket.StatusPolicyViolation)
		return false
	}
	s.firstVerified = true
	return true
}

// reject refuses a connection and closes it.
func (s *socket) reject(err error, code websocket.StatusCode) {
	_ = s.write(s.protocol.Refuse(err, s.first).Body)
	s.conn.close(code, "")
}

// run serves the connection from beginning to end.
func (s *socket) run(ctx context.Context, version string) {
	defer s.server.connections.remove(s.connection)
	defer s.conn.cut() // after the replies in progress were written
	defer context.AfterFunc(ctx, s.conn.cut)()
	reading, cut := context.WithCancel(ctx)
	defer s.group.Wait()
	defer cut()
	if err := aside(func() error { return s.begin(ctx, version) }); err != nil {
		s.reject(err, websocket.StatusPolicyViolation)
	} else {
		s.group.Go(func() { s.readLoop(reading) })
		s.serve(reading) // pings end with the connection
		s.close(cut)
	}
	if s.joined.Load() {
		s.server.disconnect(ctx, s.connection)
	}
}

// begin joins and sends hello. On an unframed connection the agent joins by its first message.
func (s *socket) begin(ctx context.Context, version string) error {
	if !s.protocol.info.Framed {
		return nil
	}
	if err := s.join(ctx); err != nil {
		return err
	}
	return s.write(helloFrame(s.server, s.connection, version).encode())
}

// join makes the agent available for tasks on this connection.
func (s *socket) join(ctx context.Context) error {
	if err := s.server.join(ctx, s.connection); err != nil {
		return err
	}
	s.wakeUp.Set()
	return nil
}

// serve delivers messages until the connection ends.
func (s *socket) serve(ctx context.Context) {
	d := &deliverer{server: s.server, conn: s.connection}
	err := d.run(ctx, s.onHeartbeat, s.deliver)
	switch {
	case err == nil: // the reason is set
	case errors.Is(err, context.Canceled):
		s.end(endDraining)
	default:
		s.end(endDisconnected)
	}
}

// deliver writes one message, after the replies to the messages that the agent sent before, because the
// message may be about a task that such a reply names. On an unframed connection nothing that the agent sends
// acknowledges the message until it is written completely.
func (s *socket) deliver(out outbound) error {
	s.pipeline.waitForReplies(s.done)
	if !s.protocol.info.Framed {
		s.mu.Lock()
		defer s.mu.Unlock()
	}
	for _, part := range out.parts {
		if err := s.write(part); err != nil {
			return err
		}
	}
	if s.protocol.info.Framed {
		return nil
	}
	s.written[out.id] = true
	return nil
}

// onHeartbeat verifies the token, ends the connection of a silent agent and sends a ping.
func (s *socket) onHeartbeat(ctx context.Context) error {
	if _, err := s.verify(ctx); httpkit.IsRejected(err) {
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
		_ = s.conn.ping(ctx) // the pong is recorded when it arrives
	})
	return nil
}

// write writes one message. An agent that does not read it in time is disconnected.
func (s *socket) write(data []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.server.opts.WriteTimeout)
	defer cancel()
	return s.conn.write(ctx, data)
}

// close sends bye and closes the connection. It cuts the connection if that takes too long.
func (s *socket) close(cut context.CancelFunc) {
	timer := time.AfterFunc(s.server.opts.CloseTimeout, cut)
	defer timer.Stop()
	code := websocket.StatusNormalClosure
	switch s.reason() {
	case endDisconnected, endSilent:
		cut()
		return
	case endDraining:
		code = websocket.StatusGoingAway
	case endTokenRejected:
		code = websocket.StatusPolicyViolation
	}
	if !s.protocol.info.Framed || s.write(frame{Bye: &bye{s.reason()}}.encode()) == nil {
		s.conn.close(code, string(s.reason()))
	}
}

// readLoop receives messages until the connection ends.
func (s *socket) readLoop(ctx context.Context) {
	defer func() { // acknowledgements in memory: the next connection may be to another process
		err := s.server.core.Work.FlushAcknowledgements(context.WithoutCancel(ctx), s.agentID)
		s.server.logWarning("cannot record an acknowledgement", s.agentID, err)
	}()
	defer s.pipeline.running.Wait()
	defer s.end(endDisconnected)
	for {
		raw, verified := s.first, s.firstVerified
		s.first, s.firstVerified = nil, false
		if raw == nil {
			var err error
			if raw, err = s.conn.read(ctx); err != nil {
				return
			}
		}
		s.alive.Store(true)
		acked, isFrame, err := s.acknowledgedBy(raw)
		if err != nil {
			_ = s.write(s.protocol.Refuse(err, nil).Body) // reading fails, too, if the connection is broken
		}
		if isFrame {
			s.acknowledge(ctx, acked)
			continue
		}
		release := s.server.opts.Limits.Bytes.Hold(ctx, len(raw), s.tokenID)
		err = s.pipeline.add(ctx, s.protocol.Order(raw), len(raw), func(placed func(bool)) func() {
			// A message that was read is processed completely even if the connection has broken: a
			// later message must not take effect without it.
			msgCtx, cancel := context.WithTimeout(requestid.With(context.WithoutCancel(ctx), ""), bodyTimeout)
			reply, err := s.receive(background.WithPlacement(msgCtx, placed), raw, verified)
			if !reply.Unauthenticated {
				s.acknowledge(msgCtx, acked)
			}
			return func() {
				defer cancel()
				defer release()
				if failed := s.reply(msgCtx, reply, raw); failed != nil {
					s.end(endDisconnected)
				}
				if err != nil {
					s.end(err)
				}
			}
		})
		if err != nil {
			release()
			return
		}
	}
}

// acknowledge removes messages from the agent's inbox, in memory first.
func (s *socket) acknowledge(ctx context.Context, ids []string) {
	if len(ids) == 0 {
		return
	}
	err := s.server.core.Work.AcknowledgeLater(context.WithoutCancel(ctx), s.agentID, ids)
	s.server.logWarning("cannot record an acknowledgement", s.agentID, err)
	s.server.forgetAcked(s.agentID, ids)
}

// acknowledgedBy returns the ids of the messages that raw acknowledges, and whether raw is a
// control frame. On an unframed connection any message acknowledges what was written before it,
// except task assignments, which the agent must answer. The error is that of a malformed frame.
func (s *socket) acknowledgedBy(raw []byte) (ids []string, isFrame bool, err error) {
	if !s.protocol.info.Framed {
		return s.receivedNotices(), false, nil
	}
	return parseFrame(raw)
}

// receivedNotices returns the written messages that are not task assignments: an agent that sends
// something has received them.
func (s *socket) receivedNotices() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	notices := slices.DeleteFunc(s.inFlight.unackedNotices(), func(id string) bool { return !s.written[id] })
	clear(s.written)
	for _, id := range notices { // until the acknowledgement is committed
		s.written[id] = true
	}
	return notices
}

// receive processes one message and returns the reply. An error ends the connection after it; later
// messages are then ignored.
func (s *socket) receive(ctx context.Context, raw []byte, verified bool) (reply protocol.Reply, err error) {
	principal, err := s.verify(ctx)
	switch {
	case s.rejected.Load():
		return protocol.Reply{Unauthenticated: true}, nil
	case httpkit.IsRejected(err):
		reply = s.protocol.Refuse(err, raw)
		err = endTokenRejected
	case err != nil:
		reply, err = s.protocol.Refuse(errs.Wrap(errs.Unavailable, err, "the token cannot be verified at the moment"), raw), nil
	default:
		s.server.metrics.countReceived(s.peer.Transport)
		from := s.peer
		from.Principal, from.Verified = principal, verified
		reply = s.protocol.Receive(ctx, from, raw, 0)
		if !reply.BadSignature || !s.server.authenticator.CountBadSignature(s.from, s.agentID, s.token) {
			return reply, nil
		}
		err = endTokenRejected
	}
	s.rejected.CompareAndSwap(false, err != nil)
	reply.MessageID, reply.Unauthenticated = "", true
	return reply, err
}

// reply writes the reply to a message.
func (s *socket) reply(ctx context.Context, reply protocol.Reply, raw []byte) error {
	if !s.protocol.info.Framed {
		if _, tasks := s.inFlight.count(); s.joined.Load() && tasks >= s.concurrency {
			s.wakeUp.Set() // the message may have freed a slot
		}
		return s.replyUnframed(ctx, reply, raw)
	}
	if reply.IsError || reply.SendBack && len(reply.Body) > 0 {
		if err := s.write(reply.Body); err != nil {
			return err
		}
	}
	if reply.MessageID == "" || reply.IsError && reply.RetryAfter > 0 { // the agent must send it again
		return nil
	}
	return s.write(frame{Ack: []string{reply.MessageID}}.encode())
}

// replyUnframed writes the reply on an unframed connection. An agent has joined before the reply to
// its join message is sent, and gets no task before the reply.
func (s *socket) replyUnframed(ctx context.Context, reply protocol.Reply, raw []byte) error {
	joins := reply.Joined && !reply.IsError
	if joins && !s.joined.Load() && reply.Concurrency > 0 {
		s.concurrency = reply.Concurrency // unused until the agent has joined
	}
	if joins {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.setNegotiated(reply)
		if err := s.join(ctx); err != nil {
			return s.write(s.protocol.Refuse(err, raw).Body)
		}
	}
	if reply.IsError || reply.SendBack {
		return s.write(reply.Body)
	}
	return nil
}

// messageConn carries the messages of a socket. Reading and writing may happen at the same time.
type messageConn interface {
	// read returns the next message. It ends with ctx.
	read(ctx context.Context) ([]byte, error)
	// write sends a message. If ctx ends first, the connection is unusable.
	write(ctx context.Context, msg []byte) error
	// ping asks whether the agent is alive.
	ping(ctx context.Context) error
	// close closes the connection, with a status code and a reason if the transport supports them.
	close(code websocket.StatusCode, reason string)
	// cut closes the connection without a close handshake. It may be closed already.
	cut()
}
