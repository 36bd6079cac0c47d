package agent

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"
)

// outbox keeps what the server has not acknowledged yet, in order. It holds a bounded
// number of messages and bytes; who wants to add to a full one waits.
type outbox struct {
	maxMessages, maxBytes int

	mu      sync.Mutex
	waiting []message
	sent    int // how many at the front were sent on the line that is open now
	bytes   int
	paused  bool          // nothing is sent until rewind
	space   chan struct{} // closed and replaced when something has been taken out
	// ready holds one token when there may be something to send.
	ready chan struct{}
}

// message is a message on its way.
type message struct {
	id      uuid.UUID
	request uuid.UUID
	data    []byte
	at      time.Time // when it was sent last
}

func newOutbox(maxMessages, maxBytes int) *outbox {
	return &outbox{maxMessages: maxMessages, maxBytes: maxBytes, space: make(chan struct{}), ready: make(chan struct{}, 1)}
}

// put adds a message behind the others. It waits for room as long as ctx lives, and
// then returns its cause; where there is room it does not ask ctx.
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
		room := o.space
		o.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// next returns the first message that was not sent on this line.
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

// overdue reports whether the first message was sent before a time and is still there.
func (o *outbox) overdue(since time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sent > 0 && o.waiting[0].at.Before(since)
}

// pause keeps everything back until rewind, so that it stays in order, where a message
// that was sent about a request is still there. It reports whether there is one. uuid.Nil
// is a message whose request the server could not read.
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

// resendAll begins a new line, or the same one anew: everything is sent once more.
func (o *outbox) resendAll() {
	o.mu.Lock()
	o.sent, o.paused = 0, false
	o.mu.Unlock()
	o.signal()
}

// acknowledge forgets messages. Ids that are not there were acknowledged before.
func (o *outbox) acknowledge(ids []uuid.UUID) {
	known := make(map[uuid.UUID]bool, len(ids))
	for _, id := range ids {
		known[id] = true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	kept, sent := o.waiting[:0], o.sent
	for i, p := range o.waiting {
		if !known[p.id] {
			kept = append(kept, p)
			continue
		}
		if o.bytes -= len(p.data); i < sent {
			o.sent--
		}
	}
	if len(kept) == len(o.waiting) {
		return
	}
	clear(o.waiting[len(kept):])
	o.waiting = kept
	close(o.space)
	o.space = make(chan struct{})
	o.signal()
}

// idle reports whether everything has been sent.
func (o *outbox) idle() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sent == len(o.waiting)
}

// emptied waits until everything has been acknowledged, or ctx ends.
func (o *outbox) emptied(ctx context.Context) bool {
	for {
		o.mu.Lock()
		n, room := len(o.waiting), o.space
		o.mu.Unlock()
		if n == 0 {
			return true
		}
		select {
		case <-room:
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

// seenMessages is how many messages are remembered, so that one that comes again after
// a line broke counts once.
const seenMessages = 8192

// seen remembers the newest ids it was asked about.
type seen struct {
	mu   sync.Mutex
	all  map[uuid.UUID]struct{}
	ring []uuid.UUID
	next int
}

func newSeen(n int) *seen {
	return &seen{all: make(map[uuid.UUID]struct{}), ring: make([]uuid.UUID, n)}
}

// add reports whether the id was asked about before.
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

// acks gathers what is to be acknowledged. What is lost with a line is asked for by the
// message coming again.
type acks struct {
	mu    sync.Mutex
	ids   []uuid.UUID
	ready chan struct{} // one token when there are some
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

// take returns what has gathered.
func (a *acks) take() []uuid.UUID {
	a.mu.Lock()
	defer a.mu.Unlock()
	ids := a.ids
	a.ids = nil
	return ids
}
