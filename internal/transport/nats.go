package transport

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"comet/internal/bus"
	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/models"
)

const (
	// queueGroup is the group of replicas of which one takes each message.
	queueGroup = "comet-links"
	// lanes is how many messages of the queue are taken side by side. Those of one agent
	// use the same lane, in their order.
	lanes = 16
	// laneLength is how many messages may wait in a lane, and laneBytes how long they may be
	// altogether unless it is one.
	laneLength = 1024
	laneBytes  = 8 << 20
)

// lane are the messages of some agents that wait.
type lane struct {
	messages chan bus.Message
	bytes    atomic.Int64
}

// natsTransport is the message-queue form: agents publish to their outbox, and what they are
// told is published to their inbox until they acknowledge it.
//
// There is no connection to hold. An agent is on the queue once it has said there that
// it takes work, and as long as it goes on saying so. The process that has heard it
// publishes; another one takes over when it hears the agent and sees that messages are
// left lying.
type natsTransport struct {
	server *Server
	seed   maphash.Seed
	lanes  [lanes]*lane
	group  sync.WaitGroup
	// fullLog is that a lane takes no more.
	fullLog logThrottle
}

func newNATSTransport(l *Server) *natsTransport {
	q := &natsTransport{server: l, seed: maphash.MakeSeed()}
	for i := range q.lanes {
		q.lanes[i] = &lane{messages: make(chan bus.Message, laneLength)}
	}
	return q
}

// run takes messages until ctx ends.
func (q *natsTransport) run(ctx context.Context) {
	if q.server.core.Bus == nil {
		return
	}
	sub := q.subscribe(ctx)
	if sub == nil {
		return
	}
	defer q.group.Wait()
	defer sub.Unsubscribe()
	var takers sync.WaitGroup
	for _, l := range q.lanes {
		takers.Go(func() { q.runLane(ctx, l) })
	}
	takers.Wait()
}

// subscribe tries until it works, or ctx ends: then it is nil.
func (q *natsTransport) subscribe(ctx context.Context) *bus.Subscription {
	again := time.NewTicker(busRetryInterval)
	defer again.Stop()
	var failing logThrottle
	for {
		sub, err := q.server.core.Bus.QueueSubscribe(string(bus.AgentOutboxes), queueGroup, q.dispatch)
		if err == nil {
			return sub
		}
		if _, due := failing.allow(q.server.opts.Clock()); due {
			q.server.log.Error("agents cannot be heard on the message bus, which is tried again every second", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
		}
	}
}

// dispatch puts a message into its agent's lane. It never waits, for the agents of the other
// lanes would too: what finds its lane full is refused, which whoever has sent it as a
// request is told.
func (q *natsTransport) dispatch(m bus.Message) {
	_, agentID, _ := bus.Parse(m.Subject)
	l, size := q.lanes[maphash.String(q.seed, agentID)%lanes], int64(len(m.Data))
	if n := l.bytes.Add(size); n <= laneBytes || n == size {
		select {
		case l.messages <- m:
			return
		default:
		}
	}
	l.bytes.Add(-size)
	if n, due := q.fullLog.allow(q.server.opts.Clock()); due {
		q.server.log.Warn("messages on the message bus come faster than they are taken, and are refused", "agent", agentID, "since_last", n)
	}
	var rest []byte
	if len(m.Data) <= maxEchoBytes {
		_, rest = q.server.defaultProtocol.Token(m.Data)
	}
	q.respond(m, q.server.defaultProtocol.Refuse(errs.New(errs.Unavailable, "more messages wait than can be taken; send this one again later"), rest).Body)
}

func (q *natsTransport) runLane(ctx context.Context, l *lane) {
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-l.messages:
			q.receive(ctx, m)
			l.bytes.Add(-int64(len(m.Data)))
		}
	}
}

// natsAck is what an agent says over the queue about messages it has.
type natsAck struct {
	Ack   []string `json:"ack"`
	Token string   `json:"auth_token"`
}

// receive takes one message. Its token is taken out before anything else is done with it.
func (q *natsTransport) receive(ctx context.Context, m bus.Message) {
	_, agentID, _ := bus.Parse(m.Subject)
	var ack natsAck
	isAck := hasFirstMember(m.Data, "ack", "auth_token") && json.Unmarshal(m.Data, &ack) == nil
	token, rest := ack.Token, []byte(nil)
	if !isAck {
		token, rest = q.server.defaultProtocol.Token(m.Data)
	}
	// What was begun is not undone because the server stops.
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), bodyTimeout)
	defer cancel()
	who, err := q.verifyToken(within, token, agentID)
	if err != nil {
		q.respond(m, q.server.defaultProtocol.Refuse(err, rest).Body)
		return
	}
	if isAck {
		_, err := q.server.acknowledgeAll(within, agentID, ack.Ack)
		q.server.logWarning("an acknowledgement was not noted", agentID, err)
		return
	}
	q.server.metrics.countReceived(NATS)
	before := q.server.core.Work.CachedWorker(agentID)
	a := q.server.defaultProtocol.Receive(within, who, rest, 0)
	if a.Joined && !a.IsError {
		err := q.attachAgent(ctx, agentID, before)
		q.server.logWarning("an agent could not be put on the message bus", agentID, err)
		if errs.Is(err, errs.InvalidRequest) { // it cannot be spoken to
			a.Body = q.server.defaultProtocol.Refuse(err, rest).Body
			q.server.logWarning("an agent that cannot be spoken to takes work", agentID, q.server.core.Work.Leave(within, agentID, false))
		}
	}
	switch {
	case len(a.Body) > 0:
		q.respond(m, a.Body)
	case a.MessageID != "":
		q.respond(m, frame{Ack: []string{a.MessageID}}.encode())
	}
}

// verifyToken returns whose token it is, which must be the agent's whose outbox it came from.
func (q *natsTransport) verifyToken(ctx context.Context, token, agentID string) (models.Principal, error) {
	err := error(errs.New(errs.Unauthenticated, "the message carries no token"))
	var p models.Principal
	if token != "" && len(token) <= models.MaxTokenLength {
		p, err = q.server.core.Auth.Verify(ctx, token)
	}
	if err == nil && (p.AgentID == nil || *p.AgentID != agentID) {
		err = errs.New(errs.Unauthenticated, "the token is not that of the agent whose outbox it is")
	}
	if isRejected(err) {
		q.server.metrics.failures.Inc()
	}
	return p, err
}

// respond answers a request; a message that is none needs no answer.
func (q *natsTransport) respond(m bus.Message, body []byte) {
	if err := m.Respond(body); err != nil && !errs.Is(err, errs.InvalidRequest) {
		q.server.log.Warn("an agent could not be answered", "subject", m.Subject, "error", err)
	}
}

// busRetryInterval is after what time is tried again to publish where the bus is away.
const busRetryInterval = time.Second

// attachAgent puts an agent that has said over the queue that it is there on a line of this
// process, unless it was on one before that hands its messages over.
func (q *natsTransport) attachAgent(ctx context.Context, agentID string, before models.Worker) error {
	if before.Transport == NATS && before.State != models.WorkerOffline {
		served, err := q.isServed(ctx, before)
		if err != nil || served {
			return err
		}
	}
	agent, err := q.server.acceptedAgent(ctx, q.server.defaultProtocol, agentID)
	if err != nil {
		return err
	}
	w := q.server.core.Work.CachedWorker(agentID)
	h := newConnection(agentID, NATS, q.server.defaultProtocol, max(before.Concurrency, 1), q.server.opts.Clock())
	h.alive.Store(false) // what it says is noted as it says it
	if err := q.server.connections.add(h); err != nil {
		return err
	}
	if _, err := q.server.join(ctx, h); err != nil {
		q.server.connections.remove(h)
		return err
	}
	if w.State == models.WorkerBusy { // which joining has undone
		_, err = q.server.core.Work.Heartbeat(ctx, agentID, orchestrator.Heartbeat{State: w.State})
	}
	h.joined.Store(true)
	q.group.Go(func() {
		defer q.server.connections.remove(h)
		q.publishLoop(ctx, h, agent)
	})
	return err
}

// isServed reports whether somebody hands over what an agent on the queue is to be told.
// Another process that does not is found out by what should be acknowledged by now.
func (q *natsTransport) isServed(ctx context.Context, w models.Worker) (bool, error) {
	if h := q.server.connections.get(w.AgentID); h != nil && h.id == w.ConnectionID {
		return true, nil
	}
	if q.server.opts.SingleProcess || w.ConnectionID == "" {
		return false, nil
	}
	all, err := q.server.core.Work.Messages(ctx, w.AgentID, maxInboxMessages)
	long := q.server.opts.Clock().Add(-2 * q.server.opts.Republish)
	return !slices.ContainsFunc(all, func(m models.InboxMessage) bool { return m.CreatedAt.Before(long) }), err
}

// publishLoop publishes what the agent is to be told until it is off the queue.
func (q *natsTransport) publishLoop(ctx context.Context, h *connection, agent models.Agent) {
	news, stop := q.server.core.Work.Inbox(agent.ID)
	defer stop()
	c := &deliverer{server: q.server, conn: h, agent: agent, redeliverAfter: q.server.opts.Republish, backoff: true}
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case <-news:
		case <-h.wakeUp:
		case <-again.C:
		case <-h.done:
			if h.reason == endDraining { // another process has the agent when it hears it next
				q.server.disconnect(ctx, h)
			}
			return
		case <-ctx.Done():
			return
		}
		if h.heartbeatDue.Swap(false) && q.server.core.Work.CachedWorker(agent.ID).State == models.WorkerOffline {
			return // it has said so, or says nothing any more
		}
		c.maxBytes = q.server.core.Bus.MaxPayload() // another server may allow less
		later, err := c.deliverPending(ctx, h.concurrency+maxNotices, func(p outbound) error { return q.publish(agent.ID, p, c.maxBytes) })
		if err != nil {
			later = busRetryInterval
		}
		if later > 0 {
			again.Reset(later)
		}
	}
}

// publish publishes a message, whole or not at all: it is errUnfit where a part is over
// what the bus takes.
func (q *natsTransport) publish(agentID string, p outbound, limit int) error {
	for _, part := range p.parts {
		if len(part) > limit {
			q.server.logWarning("a message is too long for the bus and waits", agentID,
				errs.New(errs.BodyTooLarge, "the message %s has a part of %d bytes, and the bus takes %d", p.id, len(part), limit))
			return errDoesNotFit
		}
	}
	for _, part := range p.parts {
		err := q.server.core.Bus.Publish(bus.AgentInbox(agentID), part)
		if errs.Is(err, errs.BodyTooLarge) { // it takes less than a moment ago
			q.server.logWarning("a message is too long for the bus and waits", agentID, err)
			return errDoesNotFit
		}
		if err != nil {
			return err
		}
	}
	return nil
}
