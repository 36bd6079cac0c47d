package agent

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"comet/internal/background"
)

// outbox holds the messages that the server has not acknowledged, in order. It is limited in
// messages and bytes; adding to a full one blocks.
type outbox struct {
	maxMessages, maxBytes int

	mu      sync.Mutex
	waiting []message
	sent    int // how many at the front were sent on the current connection
	bytes   int
	paused  bool              // nothing is sent until resendAll
	space   chan struct{}     // closed and replaced when messages are removed
	ready   background.Signal // is set if there may be a message to send
}

// message is an encoded message in the outbox.
type message struct {
	id      uuid.UUID
	request uuid.UUID
	data    []byte
	at      time.Time // when it was last sent
}

// put appends a message. It waits for space until ctx ends, and then returns its cause; if there
// is space it ignores ctx.
func (o *outbox) put(ctx context.Context, p message) error {
	return o.await(ctx, func() bool {
		if len(o.waiting) > 0 && (len(o.waiting) >= o.maxMessages || o.bytes+len(p.data) > o.maxBytes) {
			return false
		}
		o.waiting = append(o.waiting, p)
		o.bytes += len(p.data)
		o.ready.Set()
		return true
	})
}

// await calls try, with the lock held, until it succeeds: at once, and whenever messages were
// removed. It returns the cause of ctx if that ends before.
func (o *outbox) await(ctx context.Context, try func() bool) error {
	for {
		o.mu.Lock()
		done, space := try(), o.space
		o.mu.Unlock()
		if done {
			return nil
		}
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
	o.ready.Set()
}

// acknowledge removes messages. Unknown ids were acknowledged before.
func (o *outbox) acknowledge(ids []uuid.UUID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	left, sent := o.waiting[:0], o.sent
	for i, p := range o.waiting {
		if !slices.Contains(ids, p.id) {
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
	o.ready.Set()
}

// idle reports whether every message has been sent.
func (o *outbox) idle() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sent == len(o.waiting)
}

// emptied waits until every message is acknowledged; it is false if ctx ends before.
func (o *outbox) emptied(ctx context.Context) bool {
	return o.await(ctx, func() bool { return len(o.waiting) == 0 }) == nil
}
