package transport

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"comet/internal/bus"
	"comet/internal/errs"
	"comet/models"
)

const (
	// queueGroup is the group of replicas of which one takes each message.
	queueGroup = "comet-links"
	// lanes is how many messages of the queue are taken side by side. Those of one agent
	// use the same lane, in their order.
	lanes = 16
	// laneRoom is how many messages may wait in a lane, and laneBytes how long they may be
	// altogether unless it is one.
	laneRoom  = 1024
	laneBytes = 8 << 20
)

// lane are the messages of some agents that wait.
type lane struct {
	waiting chan bus.Message
	bytes   atomic.Int64
}

// queue is the message-queue form: agents publish to their outbox, and what they are
// told is published to their inbox until they acknowledge it.
//
// There is no connection to hold. An agent is on the queue once it has said there that
// it takes work, and as long as it goes on saying so. The process that has heard it
// publishes; another one takes over when it hears the agent and sees that messages are
// left lying.
type queue struct {
	l     *Transports
	seed  maphash.Seed
	lanes [lanes]*lane
	group sync.WaitGroup
	// full is that a lane takes no more.
	full complaint
}

func newQueue(l *Transports) *queue {
	q := &queue{l: l, seed: maphash.MakeSeed()}
	for i := range q.lanes {
		q.lanes[i] = &lane{waiting: make(chan bus.Message, laneRoom)}
	}
	return q
}

// run takes messages until ctx ends.
func (q *queue) run(ctx context.Context) {
	if q.l.core.Bus == nil {
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
		takers.Go(func() { q.take(ctx, l) })
	}
	takers.Wait()
}

// subscribe tries until it works, or ctx ends: then it is nil.
func (q *queue) subscribe(ctx context.Context) *bus.Subscription {
	again := time.NewTicker(queueRetry)
	defer again.Stop()
	var failing complaint
	for {
		sub, err := q.l.core.Bus.QueueSubscribe(string(bus.AgentOutboxes), queueGroup, q.sort)
		if err == nil {
			return sub
		}
		if _, due := failing.due(q.l.opts.Clock()); due {
			q.l.log.Error("agents cannot be heard on the message bus, which is tried again every second", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
		}
	}
}

// sort puts a message into its agent's lane. It never waits, for the agents of the other
// lanes would too: what finds its lane full is refused, which whoever has sent it as a
// request is told.
func (q *queue) sort(m bus.Message) {
	_, agentID, _ := bus.Parse(m.Subject)
	l, size := q.lanes[maphash.String(q.seed, agentID)%lanes], int64(len(m.Data))
	if n := l.bytes.Add(size); n <= laneBytes || n == size {
		select {
		case l.waiting <- m:
			return
		default:
		}
	}
	l.bytes.Add(-size)
	if n, due := q.full.due(q.l.opts.Clock()); due {
		q.l.log.Warn("messages on the message bus come faster than they are taken, and are refused", "agent", agentID, "since_last", n)
	}
	var rest []byte
	if len(m.Data) <= maxEcho {
		_, rest = q.l.speech.Token(m.Data)
	}
	q.answer(m, q.l.speech.Refuse(errs.New(errs.Unavailable, "more messages wait than can be taken; send this one again later"), rest).Body)
}

func (q *queue) take(ctx context.Context, l *lane) {
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-l.waiting:
			q.hear(ctx, m)
			l.bytes.Add(-int64(len(m.Data)))
		}
	}
}

// receipt is what an agent says over the queue about messages it has.
type receipt struct {
	Ack   []string `json:"ack"`
	Token string   `json:"auth_token"`
}

// hear takes one message. Its token is taken out before anything else is done with it.
func (q *queue) hear(ctx context.Context, m bus.Message) {
	_, agentID, _ := bus.Parse(m.Subject)
	var ack receipt
	isAck := firstMember(m.Data, "ack", "auth_token") && json.Unmarshal(m.Data, &ack) == nil
	token, rest := ack.Token, []byte(nil)
	if !isAck {
		token, rest = q.l.speech.Token(m.Data)
	}
	// What was begun is not undone because the server stops.
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), bodyTimeout)
	defer cancel()
	who, err := q.verify(within, token, agentID)
	if err != nil {
		q.answer(m, q.l.speech.Refuse(err, rest).Body)
		return
	}
	if isAck {
		_, err := q.l.acknowledgeAll(within, agentID, ack.Ack)
		q.l.report("an acknowledgement was not noted", agentID, err)
		return
	}
	q.l.counts.heard(Queue)
	before := q.l.core.Work.CachedWorker(agentID)
	a := q.l.speech.Receive(within, who, rest, 0)
	if a.Joined && !a.IsError {
		err := q.welcome(ctx, agentID, before)
		q.l.report("an agent could not be put on the message bus", agentID, err)
		if errs.Is(err, errs.InvalidRequest) { // it cannot be spoken to
			a.Body = q.l.speech.Refuse(err, rest).Body
			q.l.report("an agent that cannot be spoken to takes work", agentID, q.l.core.Work.Leave(within, agentID, false))
		}
	}
	switch {
	case len(a.Body) > 0:
		q.answer(m, a.Body)
	case a.MessageID != "":
		q.answer(m, frame{Ack: []string{a.MessageID}}.bytes())
	}
}

// verify returns whose token it is, which must be the agent's whose outbox it came from.
func (q *queue) verify(ctx context.Context, token, agentID string) (models.Principal, error) {
	err := error(errs.New(errs.Unauthenticated, "the message carries no token"))
	var p models.Principal
	if token != "" && len(token) <= models.MaxTokenLength {
		p, err = q.l.core.Auth.Verify(ctx, token)
	}
	if err == nil && (p.AgentID == nil || *p.AgentID != agentID) {
		err = errs.New(errs.Unauthenticated, "the token is not that of the agent whose outbox it is")
	}
	if rejected(err) {
		q.l.counts.failures.Inc()
	}
	return p, err
}

// answer answers a request; a message that is none needs no answer.
func (q *queue) answer(m bus.Message, body []byte) {
	if err := m.Respond(body); err != nil && !errs.Is(err, errs.InvalidRequest) {
		q.l.log.Warn("an agent could not be answered", "subject", m.Subject, "error", err)
	}
}
