package transport

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/time/rate"

	"comet/internal/background"
	"comet/internal/bus"
	"comet/internal/errs"
	"comet/internal/httpkit"
	"comet/internal/input"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	"comet/internal/requestid"
	"comet/models"
)

const (
	// queueGroup is the queue group of the replicas: one of them receives each message.
	queueGroup = "comet-transport"
	// lanes is how many messages are processed in parallel. The messages of one agent use the same
	// lane and stay in order.
	lanes = 16
	// laneLength limits the messages that wait in a lane. laneBytes limits their total length,
	// except for a single message.
	laneLength = 1024
	laneBytes  = 8 << 20
)

// lane is a queue of messages from some of the agents.
type lane struct {
	messages chan bus.Message
	bytes    atomic.Int64
}

// natsTransport serves agents over NATS: they publish to their outbox subject, and the messages for
// them are published to their inbox subject until they acknowledge them.
//
// There is no connection to hold. An agent is connected after it has announced on its outbox that
// it takes tasks, and for as long as it sends heartbeats. The process that received the
// announcement publishes. Another process takes over when it receives a heartbeat and sees messages
// that were left unacknowledged.
type natsTransport struct {
	server *Server
	seed   maphash.Seed
	lanes  [lanes]*lane
	group  sync.WaitGroup
	// fullLog throttles the log entry for a full lane.
	fullLog *rate.Limiter
}

func newNATSTransport(s *Server) *natsTransport {
	n := &natsTransport{server: s, seed: maphash.MakeSeed(), fullLog: newLogLimiter()}
	for i := range n.lanes {
		n.lanes[i] = &lane{messages: make(chan bus.Message, laneLength)}
	}
	return n
}

// run processes messages until ctx ends.
func (n *natsTransport) run(ctx context.Context) {
	if n.server.core.Bus == nil {
		return
	}
	sub := n.server.subscribeTo(ctx, "subscribing to the agents' outboxes", func() (*bus.Subscription, error) {
		return n.server.core.Bus.QueueSubscribe(string(bus.AgentOutboxes), queueGroup, n.dispatch)
	})
	if sub == nil {
		return
	}
	for _, l := range n.lanes {
		n.group.Go(func() { n.runLane(ctx, l) })
	}
	<-ctx.Done()
	sub.Unsubscribe()
	n.group.Wait()
}

// subscribeTo retries until it succeeds. It returns nil when ctx ends first.
func (s *Server) subscribeTo(ctx context.Context, task string, subscribe func() (*bus.Subscription, error)) *bus.Subscription {
	failures := background.NewFailureLog(s.log)
	for {
		sub, err := subscribe()
		if err == nil {
			return sub
		}
		failures.Report(ctx, task, err)
		if background.Sleep(ctx, busRetryInterval) != nil {
			return nil
		}
	}
}

// dispatch puts a message into the lane of its agent. It never blocks, because that would block the
// agents of other lanes. If the lane is full the message is refused, and a message sent as a
// request gets a reply that says so.
func (n *natsTransport) dispatch(msg bus.Message) {
	agentID, _ := bus.AgentOutboxes.NameIn(msg.Subject)
	l, size := n.lanes[maphash.String(n.seed, agentID)%lanes], int64(len(msg.Data))
	if total := l.bytes.Add(size); total <= laneBytes || total == size {
		select {
		case l.messages <- msg:
			return
		default:
		}
	}
	l.bytes.Add(-size)
	if n.fullLog.AllowN(n.server.opts.Clock(), 1) {
		n.server.log.Warn("messages on the message bus arrive faster than they are processed; some are refused", "agent", agentID)
	}
	proto, _ := n.protocolOf(msg, agentID)
	var body []byte
	if len(msg.Data) <= maxEchoBytes {
		_, body = proto.Token(msg.Data)
	}
	n.respond(msg, proto.Refuse(errs.New(errs.Unavailable, "too many messages are waiting; send this one again later"), body).Body)
}

func (n *natsTransport) runLane(ctx context.Context, l *lane) {
	for {
		select {
		case <-ctx.Done():
			return
		case msg := <-l.messages:
			n.receive(ctx, msg)
			l.bytes.Add(-int64(len(msg.Data)))
		}
	}
}

// natsAck is an acknowledgement from an agent.
type natsAck struct {
	Ack   []string `json:"ack"`
	Token string   `json:"auth_token"`
}

// protocolOf returns the protocol of a message: that of its Content-Type header, or the one in which
// the agent has registered on NATS. The error is errs.UnsupportedMediaType; the first protocol then
// refuses the message.
func (n *natsTransport) protocolOf(msg bus.Message, agentID string) (*describedProtocol, error) {
	if values := msg.Header[headerContentType]; len(values) > 0 {
		proto, err := n.server.protocols.forContentType(values[0])
		return cmp.Or(proto, n.server.protocols[0]), err
	}
	return n.server.protocols.ofWorker(n.server.core.Work.CachedWorker(agentID), NATS), nil
}

// The headers of messages on NATS. A token is in the header Authorization or in the message. A
// message of a text protocol has its id in a header, for its acknowledgement.
const (
	headerAuthorization = "Authorization"
	headerContentType   = "Content-Type"
	headerMessageID     = "Message-Id"
	// maxHeaderBytes is the length of the headers of a message to an agent.
	maxHeaderBytes = 512
)

// receive processes one message. It removes the token from the message first.
func (n *natsTransport) receive(ctx context.Context, msg bus.Message) {
	agentID, _ := bus.AgentOutboxes.NameIn(msg.Subject)
	var acks natsAck
	isAck := hasFirstMember(msg.Data, "ack", "auth_token") && json.Unmarshal(msg.Data, &acks) == nil
	proto, unsupported := n.protocolOf(msg, agentID)
	token, body := acks.Token, []byte(nil)
	if !isAck {
		token, body = proto.Token(msg.Data)
	}
	if values := msg.Header[headerAuthorization]; len(values) > 0 {
		token, _ = httpkit.BearerToken(values) // an invalid value is no token
	}
	// A message that was started is finished although the server stops.
	msgCtx, cancel := context.WithTimeout(requestid.With(context.WithoutCancel(ctx), ""), bodyTimeout)
	defer cancel()
	verify := proto.info.Sender
	if isAck { // a signature may not cover the member ack, and may be old
		verify = nil
	}
	principal, err := n.senderOf(msgCtx, verify, token, agentID, msg.Data)
	if err == nil && !isAck {
		err = unsupported
	}
	if err != nil {
		n.respond(msg, proto.Refuse(err, body).Body)
		return
	}
	if isAck {
		_, err := n.server.acknowledgeAll(msgCtx, agentID, acks.Ack)
		n.server.logWarning("cannot record an acknowledgement", agentID, err)
		return
	}
	n.server.metrics.countReceived(NATS)
	prev := n.server.core.Work.CachedWorker(agentID)
	reply := proto.Receive(msgCtx, protocol.Peer{Principal: principal, Transport: NATS}, body, 0)
	if reply.BadSignature {
		n.server.authenticator.CountBadSignature(netip.Prefix{}, agentID, token)
	}
	if reply.Joined && !reply.IsError {
		err := n.attachAgent(ctx, proto, agentID, prev, reply)
		n.server.logWarning("cannot attach an agent to the message bus", agentID, err)
		if errs.Is(err, errs.InvalidRequest) { // the protocol cannot address it
			reply.Body = proto.Refuse(err, body).Body
			n.server.logWarning("cannot take an unsupported agent offline", agentID, n.server.core.Work.Leave(msgCtx, agentID, false))
		}
	}
	switch {
	case len(reply.Body) > 0:
		n.respond(msg, reply.Body)
	case reply.MessageID != "":
		n.respond(msg, frame{Ack: []string{reply.MessageID}}.encode())
	}
}

// senderOf returns the principal of a token or, without one, of a message's signature, unless verify is nil. It must be the
// agent of the outbox.
func (n *natsTransport) senderOf(ctx context.Context, verify func(context.Context, []byte) (models.Principal, error), token, agentID string, raw []byte) (models.Principal, error) {
	err := error(errs.New(errs.Unauthenticated, "the message contains no token"))
	var out models.Principal
	if token == "" && verify != nil {
		out, err = verify(ctx, raw)
	}
	if token != "" && len(token) <= input.MaxTokenLength {
		// Messages have no address, so the limit of wrong tokens applies to all of NATS.
		if out, err = n.server.authenticator.VerifyToken(ctx, token, netip.Prefix{}); err != nil {
			return out, err
		}
	}
	if err == nil && (out.AgentID == nil || *out.AgentID != agentID) {
		err = errs.New(errs.Unauthenticated, "the token does not belong to the agent of the outbox")
	}
	if err != nil {
		n.server.metrics.failures.Inc()
	}
	return out, err
}

// respond replies to a request. A message that is not a request gets no reply.
func (n *natsTransport) respond(msg bus.Message, body []byte) {
	if err := msg.Respond(body); err != nil && !errs.Is(err, errs.InvalidRequest) {
		n.server.log.Warn("cannot reply to an agent", "subject", msg.Subject, "error", err)
	}
}

// busRetryInterval is the pause before subscribing or publishing is tried again while the bus is
// unavailable.
const busRetryInterval = time.Second

// attachAgent creates a connection in this process for an agent that announced itself on NATS,
// unless another process serves it already.
func (n *natsTransport) attachAgent(ctx context.Context, proto *describedProtocol, agentID string, prev models.Worker, joined protocol.Reply) error {
	if prev.Transport == NATS && prev.Protocol == proto.info.Name && prev.State != models.WorkerOffline {
		served, err := n.isServed(ctx, prev)
		declaresSame := joined.Version == prev.ProtocolVersion && joined.MaxDepth == prev.MaxDepth && cmp.Or(joined.Concurrency, prev.Concurrency) == prev.Concurrency
		if err != nil || served && (proto.info.Framed || declaresSame) {
			return err
		}
	}
	agent, err := n.server.acceptedAgent(ctx, proto, agentID)
	if err != nil {
		return err
	}
	w := n.server.core.Work.CachedWorker(agentID)
	c := n.server.newConnection(agent, NATS, proto, max(cmp.Or(joined.Concurrency, prev.Concurrency), 1))
	c.setNegotiated(joined)
	c.alive.Store(false) // its messages record that it is alive
	if err := n.server.connections.add(c); err != nil {
		return err
	}
	if err := n.server.join(ctx, c); err != nil {
		n.server.connections.remove(c)
		return err
	}
	if w.State == models.WorkerBusy { // joining has reset the state
		_, err = n.server.core.Work.Heartbeat(ctx, agentID, orchestrator.Heartbeat{State: w.State})
	}
	n.group.Go(func() {
		defer n.server.connections.remove(c)
		n.publishLoop(ctx, c)
	})
	return err
}

// isServed reports whether a process publishes the messages of an agent. A process that no longer
// does is detected by messages that should have been acknowledged by now.
func (n *natsTransport) isServed(ctx context.Context, w models.Worker) (bool, error) {
	if c := n.server.connections.get(w.AgentID); c != nil && c.id == w.ConnectionID {
		return true, nil
	}
	if n.server.opts.SingleProcess || w.ConnectionID == "" {
		return false, nil
	}
	inbox, err := n.server.core.Work.Messages(ctx, w.AgentID, maxInboxMessages)
	overdue := n.server.opts.Clock().Add(-2 * n.server.opts.Republish)
	return !slices.ContainsFunc(inbox, func(msg models.InboxMessage) bool {
		return msg.CreatedAt.Before(overdue) && msg.NotBefore.Before(overdue)
	}), err
}

// publishLoop publishes the messages of the agent until its connection ends.
func (n *natsTransport) publishLoop(ctx context.Context, c *connection) {
	d := &deliverer{server: n.server, conn: c, redeliverAfter: n.server.opts.Republish, backoff: true, retryAfter: busRetryInterval}
	d.maxBytes = func() int { // it may differ after a reconnect
		if c.protocol.isText() {
			return n.server.core.Bus.MaxPayload() - maxHeaderBytes
		}
		return n.server.core.Bus.MaxPayload()
	}
	onHeartbeat := func(context.Context) error {
		if n.server.core.Work.CachedWorker(c.agentID).State == models.WorkerOffline {
			return errOffline
		}
		return nil
	}
	err := d.run(ctx, onHeartbeat, func(out outbound) error { return n.publish(c, out, d.maxBytes()) })
	if err == nil && c.reason() == endDraining { // the next process that receives from the agent serves it
		n.server.disconnect(ctx, c)
	}
}

// errOffline says that an agent declared itself offline or timed out.
var errOffline = errors.New("the agent is offline")

// publish publishes all parts of a message or none. It returns errDoesNotFit if a part exceeds the
// limit of the bus.
func (n *natsTransport) publish(c *connection, out outbound, maxBytes int) error {
	for _, part := range out.parts {
		if len(part) > maxBytes {
			n.server.logWarning("a message is too long for the message bus; it stays in the inbox", c.agentID,
				errs.New(errs.BodyTooLarge, "the message %s has a part of %d bytes; the limit of the bus is %d", out.id, len(part), maxBytes))
			return errDoesNotFit
		}
	}
	var header map[string][]string
	if c.protocol.isText() {
		header = map[string][]string{headerContentType: c.protocol.info.ContentTypes[:1], headerMessageID: {out.id}}
	}
	for _, part := range out.parts {
		err := n.server.core.Bus.PublishWithHeader(bus.AgentInboxes.Of(c.agentID), header, part)
		if errs.Is(err, errs.BodyTooLarge) { // the limit has changed since the check
			n.server.logWarning("a message is too long for the message bus; it stays in the inbox", c.agentID, err)
			return errDoesNotFit
		}
		if err != nil {
			return err
		}
	}
	return nil
}
