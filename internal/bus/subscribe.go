package bus

import (
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/nats-io/nats.go"

	"comet/internal/errs"
	"comet/internal/words"
)

// Message is what was published. Its Data belongs to whoever gets it.
type Message struct {
	// Subject is the one it was published to.
	Subject string
	// Data is its content.
	Data []byte

	reply string
	bus   *Bus
}

// Respond answers a request; the errors are those of Publish. It is errs.InvalidRequest
// where the message is none, or names a subject of comet's for the answer that is not
// its sender's: an agent could have comet write to others that way.
func (m Message) Respond(data []byte) error {
	if m.reply == "" || !mayReply(m.Subject, m.reply) {
		return errs.New(errs.InvalidRequest, "the message on %s names no subject for an answer", words.Quote(m.Subject))
	}
	return m.bus.Publish(m.reply, data)
}

// Subscription is one handler's place on the bus. It outlives connections and servers.
type Subscription struct {
	bus *Bus

	mu   sync.Mutex
	nats *nats.Subscription
	loss loss
}

// Subscribe has fn called with each message on the subject, in which * stands for one
// word and a > at the end for one or more. The calls of one subscription come one after
// the other and, of one publisher, in the order of publishing. What waits for fn is
// bounded; see OnGap. A panic of fn is logged and costs the one message.
//
// The server may not know of the subscription yet when Subscribe returns: whoever looks
// at SQL afterwards calls Flush first, once for any number of subscriptions.
func (b *Bus) Subscribe(subject string, fn func(Message)) (*Subscription, error) {
	return b.subscribe(subject, "", fn)
}

// QueueSubscribe is Subscribe in a group: each message goes to one subscription of all
// those, on any replica, that name the same queue.
func (b *Bus) QueueSubscribe(subject, queue string, fn func(Message)) (*Subscription, error) {
	if !isSubject(queue) {
		return nil, errs.New(errs.InvalidRequest, "%s is no name of a queue", words.Quote(queue))
	}
	return b.subscribe(subject, queue, fn)
}

func (b *Bus) subscribe(subject, queue string, fn func(Message)) (*Subscription, error) {
	conn, err := b.running()
	if err != nil {
		return nil, err
	}
	if !isSubject(subject) {
		return nil, errs.New(errs.InvalidRequest, "%s is no subject to subscribe to", words.Quote(subject))
	}
	s := &Subscription{bus: b}
	s.mu.Lock() // a message may come before it is complete
	defer s.mu.Unlock()
	s.nats, err = conn.QueueSubscribe(subject, queue, func(m *nats.Msg) { s.handle(m, fn) })
	if err != nil {
		return nil, b.explain(err)
	}
	b.mu.Lock()
	b.subs[s.nats] = s
	b.mu.Unlock()
	if err := s.nats.SetPendingLimits(b.opts.PendingMessages, b.opts.PendingBytes); err != nil {
		return nil, b.explain(err) // the connection is closed, and the subscription with it
	}
	return s, nil
}

func (s *Subscription) handle(m *nats.Msg, fn func(Message)) {
	defer func() {
		if p := recover(); p != nil {
			s.bus.log.Error("a handler of the bus panicked", "subject", m.Subject, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	defer s.lookForDropped(true)
	fn(Message{Subject: m.Subject, Data: m.Data, reply: m.Reply, bus: s.bus})
}

// Unsubscribe ends the calls; the one under way may still run when it returns. What
// waited is not handled. It may be repeated.
func (s *Subscription) Unsubscribe() {
	s.lookForDropped(false)
	s.mu.Lock()
	sub := s.nats
	s.mu.Unlock()
	s.bus.mu.Lock()
	delete(s.bus.subs, sub)
	s.bus.mu.Unlock()
	_ = sub.Unsubscribe() // fails only where it is over already
}
