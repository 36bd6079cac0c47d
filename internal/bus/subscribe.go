package bus

import (
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/nats-io/nats.go"

	"comet/internal/errs"
	"comet/internal/input"
)

// Message is a received message. Its Data belongs to the receiver.
type Message struct {
	// Subject is the subject it was published to.
	Subject string
	// Header contains its headers; their names are case-sensitive.
	Header map[string][]string
	// Data is its content.
	Data []byte

	reply string
	bus   *Bus
}

// Respond sends the response to a request. The errors are those of Publish, and errs.InvalidRequest if
// the message is not a request or its reply subject belongs to another agent: a request must not make
// comet write to other agents.
func (m Message) Respond(data []byte) error {
	if m.reply == "" || !mayReply(m.Subject, m.reply) {
		return errs.New(errs.InvalidRequest, "the message on %s has no valid reply subject", input.Quote(m.Subject))
	}
	return m.bus.Publish(m.reply, data)
}

// Subscription is a handler's subscription. It outlives connections and servers.
type Subscription struct {
	bus *Bus

	mu   sync.Mutex
	nats *nats.Subscription
	loss loss
}

// Subscribe calls fn with each message on the subject, in which * stands for one token and a
// final > for one or more. The calls of one subscription run one after the other and, for one
// publisher, in the order of publishing. The backlog of fn is limited; see OnGap. A panic of fn
// is logged and loses that message.
//
// The server may not know the subscription yet when Subscribe returns: callers that read SQL
// afterwards call Flush first, once for any number of subscriptions.
func (b *Bus) Subscribe(subject string, fn func(Message)) (*Subscription, error) {
	return b.subscribe(subject, "", fn)
}

// QueueSubscribe is Subscribe in a group: each message goes to one subscription of all those, on
// any replica, that name the same queue.
func (b *Bus) QueueSubscribe(subject, queue string, fn func(Message)) (*Subscription, error) {
	if !isSubject(queue) {
		return nil, errs.New(errs.InvalidRequest, "%s is not the name of a queue", input.Quote(queue))
	}
	return b.subscribe(subject, queue, fn)
}

func (b *Bus) subscribe(subject, queue string, fn func(Message)) (*Subscription, error) {
	conn, err := b.running()
	if err != nil {
		return nil, err
	}
	if !isSubject(subject) {
		return nil, errs.New(errs.InvalidRequest, "%s is not a subject to subscribe to", input.Quote(subject))
	}
	s := &Subscription{bus: b}
	s.mu.Lock() // a message may come before it is complete
	defer s.mu.Unlock()
	s.nats, err = conn.QueueSubscribe(subject, queue, func(m *nats.Msg) { s.handle(m, fn) })
	if err != nil {
		return nil, translate(conn, err)
	}
	b.mu.Lock()
	b.subs[s.nats] = s
	b.mu.Unlock()
	if err := s.nats.SetPendingLimits(b.opts.PendingMessages, b.opts.PendingBytes); err != nil {
		return nil, translate(conn, err) // the connection is closed, and the subscription with it
	}
	return s, nil
}

func (s *Subscription) handle(m *nats.Msg, fn func(Message)) {
	defer func() {
		if p := recover(); p != nil {
			s.bus.log.Error("a handler of the bus panicked", "subject", m.Subject, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	defer s.reportDropped(true)
	fn(Message{Subject: m.Subject, Header: m.Header, Data: m.Data, reply: m.Reply, bus: s.bus})
}

// reportDropped counts and reports the messages that were dropped since the last call. handled says
// that the handler has just returned.
func (s *Subscription) reportDropped(handled bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	dropped, err := s.nats.Dropped()
	if err != nil {
		return // the subscription has ended
	}
	waiting, _, err := s.nats.Pending()
	if err != nil {
		return
	}
	if handled { // it counts as waiting until this function returns
		waiting = max(0, waiting-1)
		s.loss.handled++
	}
	lost, isDue := s.loss.update(dropped, waiting, s.bus.opts.PendingMessages)
	s.bus.metrics.dropped.Add(float64(max(0, lost)))
	if isDue {
		s.bus.gaps.report()
	}
}

// Unsubscribe ends the calls; one in progress may still run when it returns. The backlog is not
// handled. It may be repeated.
func (s *Subscription) Unsubscribe() {
	s.reportDropped(false)
	s.mu.Lock()
	sub := s.nats
	s.mu.Unlock()
	s.bus.mu.Lock()
	delete(s.bus.subs, sub)
	s.bus.mu.Unlock()
	_ = sub.Unsubscribe() // fails only if it has ended already
}
