package transport

import (
	"context"
	"errors"
	"slices"
	"time"

	"comet/internal/pubsub"
	"comet/models"
)

// maxNotices limits the unacknowledged messages that are not task assignments.
const maxNotices = 100

// maxBackoffFactor limits the delay before a message is delivered again, as a multiple of the first
// delay.
const maxBackoffFactor = 16

// deliverer sends the messages of an agent's inbox over one connection. It is not safe for
// concurrent use.
type deliverer struct {
	server *Server
	conn   *connection
	// redeliverAfter is the delay before an unacknowledged message is delivered again, 0 for never.
	// With backoff the delay doubles each time, up to maxBackoffFactor.
	redeliverAfter time.Duration
	backoff        bool
	// retryAfter is the delay after a message could not be sent, 0 to end the connection instead.
	retryAfter time.Duration
	// maxBytes returns the size limit of a message; nil for none.
	maxBytes func() int
}

// outbound is a message as it is sent. One message may have several parts.
type outbound struct {
	id    string
	parts [][]byte
}

// errDoesNotFit says that a message cannot be sent over this connection now. It counts as delivered
// and is tried again like an unacknowledged message.
var errDoesNotFit = errors.New("the message does not fit the connection")

// run delivers messages as they arrive, once the agent has joined, using send, and calls
// onHeartbeat every heartbeat. It returns nil when the connection ends, ctx.Err() when ctx ends,
// and otherwise the error of onHeartbeat or send.
func (d *deliverer) run(ctx context.Context, onHeartbeat func(context.Context) error, send func(outbound) error) error {
	inboxChanged, stop := d.server.core.Work.Inbox(d.conn.agentID)
	defer stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-inboxChanged:
		case <-d.conn.wakeUp:
		case <-timer.C:
		case <-d.conn.fleeting.arrived:
			if !d.conn.joined.Load() {
				continue
			}
			if err := aside(func() error { return d.deliverFleeting(ctx, send) }); err != nil && d.retryAfter == 0 {
				return err
			}
			continue
		case <-d.conn.done.Done():
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
		if d.conn.heartbeatDue.Swap(false) {
			if err := aside(func() error { return onHeartbeat(ctx) }); err != nil {
				return err
			}
			if d.conn.done.Err() != nil {
				return nil
			}
		}
		if !d.conn.joined.Load() {
			continue
		}
		var next time.Duration
		err := aside(func() (err error) {
			if err = d.deliverFleeting(ctx, send); err != nil {
				return err
			}
			next, err = d.deliverPending(ctx, d.conn.concurrency+maxNotices, send)
			return err
		})
		if err != nil && d.retryAfter == 0 {
			return err
		}
		if err != nil {
			next = d.retryAfter
		}
		if next > 0 {
			timer.Reset(next)
		}
	}
}

// aside calls do in a separate goroutine and waits for it. So the stack of the caller stays at 2 KB:
// each connection has such a caller, which waits for messages most of the time.
func aside(do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	return <-done
}

// deliverPending delivers up to limit messages of the inbox that were not delivered yet, within the
// agent's concurrency and maxNotices. It stops at an error of send other than errDoesNotFit. next
// is the time until a message is due again, 0 for none.
func (d *deliverer) deliverPending(ctx context.Context, limit int, send func(outbound) error) (next time.Duration, err error) {
	window := d.conn.concurrency + maxNotices + d.conn.inFlight.removeAcked()
	inbox, err := d.server.core.Work.Messages(ctx, d.conn.agentID, window)
	if err == nil {
		err = d.forgetRemoved(ctx, inbox, len(inbox) == window)
	}
	if err != nil {
		// Every connection tries again every second.
		if ctx.Err() == nil && d.server.ctx.Err() == nil && d.server.inboxFailures.AllowN(d.server.opts.Clock(), 1) {
			d.server.log.Warn("cannot read inboxes; trying again every second", "agent", d.conn.agentID, "error", err)
		}
		return time.Second, nil // the database is unavailable; the messages are kept
	}
	total, tasks := d.conn.inFlight.count()
	now := d.server.opts.Clock()
	var publications []models.InboxMessage
	defer func() { d.recordSent(ctx, publications) }()
	for _, m := range inbox {
		prev, delivered := d.conn.inFlight.get(m.ID)
		if prev.acked || !delivered && !d.hasCapacity(m, total, tasks) {
			continue
		}
		m, wait, due := d.due(ctx, m, prev, delivered, now)
		next = minPositive(next, wait)
		if !due || limit == 0 {
			continue
		}
		sent, err := d.deliver(ctx, m, prev, send)
		if err != nil {
			return 0, err
		}
		if !sent {
			continue
		}
		limit--
		if m.Publication != nil {
			publications = append(publications, m)
		} else {
			next = minPositive(next, d.redeliveryDelay(prev.attempts+1))
		}
		if !delivered {
			total++
		}
		if m.Kind == models.MessageAssign && !delivered {
			tasks++
		}
	}
	return minPositive(next, d.conn.inFlight.untilDue(now)), nil
}

// due reports whether a message may be delivered now, and otherwise after which time, 0 for never. It returns a
// publication with its content.
func (d *deliverer) due(ctx context.Context, m models.InboxMessage, prev delivery, delivered bool, now time.Time) (models.InboxMessage, time.Duration, bool) {
	switch {
	case m.Kind == pubsub.Kind:
		return d.open(ctx, m, prev, now)
	case !delivered:
		return m, 0, true
	case d.redeliverAfter == 0:
		return m, 0, false
	}
	wait := max(d.redeliveryDelay(prev.attempts)-now.Sub(prev.at), 0)
	return m, wait, wait == 0
}

// redeliveryDelay returns the delay before a message that was delivered attempts times is delivered
// again, 0 for never.
func (d *deliverer) redeliveryDelay(attempts int) time.Duration {
	if !d.backoff || attempts < 1 {
		return d.redeliverAfter
	}
	return d.redeliverAfter * time.Duration(min(1<<min(attempts-1, 10), maxBackoffFactor))
}

// hasCapacity reports whether a new message may be delivered, given total messages and tasks
// assignments in flight.
func (d *deliverer) hasCapacity(m models.InboxMessage, total, tasks int) bool {
	if m.Kind == models.MessageAssign && tasks >= d.conn.concurrency {
		return false
	}
	return total < d.conn.concurrency+maxNotices
}

// minPositive returns the smaller duration, ignoring values that are not positive.
func minPositive(a, b time.Duration) time.Duration {
	if a <= 0 || b > 0 && b < a {
		return b
	}
	return a
}

// forgetRemoved forgets messages that are no longer in the inbox. If the inbox may hold more than
// inbox (more is set), it asks the database.
func (d *deliverer) forgetRemoved(ctx context.Context, inbox []models.InboxMessage, more bool) error {
	removed := d.conn.inFlight.missingFrom(inbox)
	if more && len(removed) > 0 {
		pending, err := d.server.core.Work.MessagePending(ctx, d.conn.agentID, removed)
		if err != nil {
			return err
		}
		removed = slices.DeleteFunc(removed, func(id string) bool { return slices.Contains(pending, id) })
	}
	d.conn.inFlight.remove(removed)
	return nil
}

// deliver sends one message and reports whether it was sent. An obsolete message is acknowledged
// instead, and one that cannot be rendered is left in the inbox.
func (d *deliverer) deliver(ctx context.Context, m models.InboxMessage, prev delivery, send func(outbound) error) (bool, error) {
	parts, err := d.render(ctx, m)
	if err != nil {
		d.server.logWarning("cannot render a message; it stays in the inbox", m.AgentID, err)
		return false, nil
	}
	if len(parts) == 0 && m.Publication != nil {
		d.endUnsupported(ctx, m)
		return false, nil
	}
	if len(parts) == 0 {
		_, err := d.server.core.Work.Acknowledge(ctx, m.AgentID, []string{m.ID})
		d.server.logWarning("cannot acknowledge an obsolete message", m.AgentID, err)
		return false, nil
	}
	// Record the delivery first: the acknowledgement may arrive before send returns.
	state := delivery{at: d.server.opts.Clock(), isTask: m.Kind == models.MessageAssign, attempts: prev.attempts + 1}
	if m.Publication != nil {
		state.due = state.at.Add(m.Publication.Wait(m.Attempt))
	}
	d.conn.inFlight.put(m.ID, state)
	err = send(outbound{m.ID, parts})
	switch {
	case errors.Is(err, errDoesNotFit):
		return true, nil
	case err != nil && prev.attempts > 0:
		d.conn.inFlight.put(m.ID, prev)
		return false, err
	case err != nil:
		d.conn.inFlight.remove([]string{m.ID})
		return false, err
	}
	d.server.metrics.messages.WithLabelValues(d.conn.peer.Transport, "out").Inc()
	if prev.attempts > 0 {
		d.server.metrics.redelivered.WithLabelValues(d.conn.peer.Transport).Inc()
	}
	return true, nil
}

// render formats a message for the agent.
func (d *deliverer) render(ctx context.Context, m models.InboxMessage) ([][]byte, error) {
	limit := 0
	if d.maxBytes != nil {
		limit = d.maxBytes()
	}
	return d.conn.protocol.Render(ctx, d.conn.peer, m, limit)
}

// deliverFleeting sends the publications that the connection gets at most once. One that cannot be rendered is dropped.
func (d *deliverer) deliverFleeting(ctx context.Context, send func(outbound) error) error {
	for p := d.conn.fleeting.next(nil); p != nil; p = d.conn.fleeting.next(p) {
		parts, err := d.render(ctx, models.InboxMessage{AgentID: d.conn.agentID, ID: p.ID, Kind: pubsub.Kind, Priority: 1, Attempt: 1, CreatedAt: p.CreatedAt, Publication: p})
		if err != nil || len(parts) == 0 {
			d.server.logWarning("cannot render a publication; it is dropped", d.conn.agentID, err)
			continue
		}
		if err := send(outbound{p.ID, parts}); err != nil {
			return err
		}
		d.server.metrics.messages.WithLabelValues(d.conn.peer.Transport, "out").Inc()
	}
	return nil
}

// open returns a publication that is due with its content, and the time until it is due otherwise. ok is false if it must
// not be delivered now.
func (d *deliverer) open(ctx context.Context, m models.InboxMessage, prev delivery, now time.Time) (out models.InboxMessage, wait time.Duration, ok bool) {
	if wait = max(m.NotBefore.Sub(now), prev.due.Sub(now)); wait > 0 || d.server.core.PubSub == nil {
		return m, wait, false
	}
	out, ok, err := d.server.core.PubSub.Open(ctx, m)
	if err != nil {
		d.server.logWarning("cannot read a publication; it stays in the inbox", m.AgentID, err)
		return m, time.Second, false
	}
	return out, 0, ok
}

// recordSent records the deliveries of publications that were not acknowledged meanwhile.
func (d *deliverer) recordSent(ctx context.Context, sent []models.InboxMessage) {
	var open []models.InboxMessage
	for _, m := range sent {
		if state, inFlight := d.conn.inFlight.get(m.ID); inFlight && !state.acked {
			open = append(open, m)
		}
	}
	if len(open) > 0 {
		err := d.server.core.PubSub.Sent(context.WithoutCancel(ctx), d.conn.agentID, open)
		d.server.logWarning("cannot record the delivery of publications", d.conn.agentID, err)
	}
}

// endUnsupported ends a publication for which the protocol of the agent has no form.
func (d *deliverer) endUnsupported(ctx context.Context, m models.InboxMessage) {
	d.server.logWarning("cannot end an unsupported publication", m.AgentID, d.server.core.PubSub.End(ctx, m, pubsub.Unsupported))
}
