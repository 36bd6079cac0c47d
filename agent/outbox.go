package agent

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"
)

// outbox holds the messages that the server has not acknowledged, in order. It is limited in
// messages and bytes; adding to a full one blocks.
type outbox struct {
	maxMessages, maxBytes int

	mu      sync.Mutex
	waiting []message
	sent    int // how many at the front were sent on the current connection
	bytes   int
	paused  bool          // nothing is sent until resendAll
	space   chan struct{} // closed and replaced when messages are removed
	// ready holds one token if there may be a message to send.
	ready chan struct{}
}

// message is an encoded message in the outbox.
type message struct {
	id      uuid.UUID
	request uuid.UUID
	data    []byte
	at      time.Time // when it was last sent
}

func newOutbox(maxMessages, maxBytes int) *outbox {
	return &outbox{maxMessages: maxMessages, maxBytes: maxBytes, space: make(chan struct{}), ready: make(chan struct{}, 1)}
}

// put appends a message. It waits for space until ctx ends, and then returns its cause; if there
// is space it ignores ctx.
func (o *outbox) put(ctx context.Context, p message) error {
	for {
		o.mu.Lock()
		if len(o.waiting) == 0 || len(o.waiting) < o.maxMessages && o.bytes+len(p.data) <= o.maxBytes {
			o.waiting = append(o.waiting, p)
			o.bytes += len(p.data)
			o.mu.Unlock()
			o.signal()
			return nil
		}
		space := o.space
		o.mu.Unlock()
		select {
		case <-space:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// next returns the first message that was not sent on this connection.
func (o *outbox) next(now time.Time) (message, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.paused || o.sent == len(o.waiting) {
		return message{}, false
	}
	o.waiting[o.sent].at = now
	o.sent++
	return o.waiting[o.sent-1], true
}

// overdue reports whether the first message was sent before a time and is not acknowledged.
func (o *outbox) overdue(since time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sent > 0 && o.waiting[0].at.Before(since)
}

// pause stops sending until resendAll, so that the order is kept, if a message about the request
// was sent and is not acknowledged. It reports whether there is one. uuid.Nil stands for any
// request.
func (o *outbox) pause(request uuid.UUID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range o.waiting[:o.sent] {
		if p.request == request || request == uuid.Nil {
			o.paused = true
			return true
		}
	}
	return false
}

// resendAll makes every message be sent again, for a new connection or after a failure of the
// server.
func (o *outbox) resendAll() {
	o.mu.Lock()
	o.sent, o.paused = 0, false
	o.mu.Unlock()
	o.signal()
}

// acknowledge removes messages. Unknown ids were acknowledged before.
func (o *outbox) acknowledge(ids []uuid.UUID) {
	known := make(map[uuid.UUID]bool, len(ids))
	for _, id := range ids {
		known[id] = true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	left, sent := o.waiting[:0], o.sent
	for i, p := range o.waiting {
		if !known[p.id] {
			left = append(left, p)
			continue
		}
		if o.bytes -= len(p.data); i < sent {
			o.sent--
		}
	}
	if len(left) == len(o.waiting) {
		return
	}
	clear(o.waiting[len(left):])
	o.waiting = left
	close(o.space)
	o.space = make(chan struct{})
	o.signal()
}

// idle reports whether every message has been sent.
func (o *outbox) idle() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sent == len(o.waiting)
}

// emptied waits until every message is acknowledged; it is false if ctx ends before.
func (o *outbox) emptied(ctx context.Context) bool {
	for {
		o.mu.Lock()
		n, space := len(o.waiting), o.space
		o.mu.Unlock()
		if n == 0 {
			return true
		}
		select {
		case <-space:
		case <-ctx.Done():
			return false
		}
	}
}

func (o *outbox) signal() {
	select {
	case o.ready <- struct{}{}:
	default:
	}
}

// seenMessages is how many message ids are remembered, so that a message that is redelivered on a
// new connection counts once.
const seenMessages = 8192

// seen is a set of the newest message ids.
type seen struct {
	mu   sync.Mutex
	all  map[uuid.UUID]struct{}
	ring []uuid.UUID
	next int
}

func newSeen(n int) *seen {
	return &seen{all: make(map[uuid.UUID]struct{}), ring: make([]uuid.UUID, n)}
}

// add adds an id and reports whether it was there already.
func (s *seen) add(id uuid.UUID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.all[id]; ok {
		return true
	}
	delete(s.all, s.ring[s.next])
	s.ring[s.next] = id
	s.all[id] = struct{}{}
	s.next = (s.next + 1) % len(s.ring)
	return false
}

// acks are the ids to acknowledge. If acknowledgements are lost with a connection, the server
// redelivers the messages.
type acks struct {
	mu    sync.Mutex
	ids   []uuid.UUID
	ready chan struct{} // holds one token if there are ids
}

func newAcks() *acks { return &acks{ready: make(chan struct{}, 1)} }

func (a *acks) add(ids ...uuid.UUID) {
	if len(ids) == 0 {
		return
	}
	a.mu.Lock()
	a.ids = append(a.ids, ids...)
	a.mu.Unlock()
	select {
	case a.ready <- struct{}{}:
	default:
	}
}

// take returns the ids and empties the list.
func (a *acks) take() []uuid.UUID {
	a.mu.Lock()
	defer a.mu.Unlock()
	ids := a.ids
	a.ids = nil
	return ids
}
