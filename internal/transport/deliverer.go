package transport

import (
	"context"
	"errors"
	"slices"
	"time"

	"comet/models"
)

// maxNotices is how many messages beside work may be handed over and not acknowledged.
const maxNotices = 100

// maxBackoffFactor is how many times its first pause passes at most before a message is handed
// over again.
const maxBackoffFactor = 16

// deliverer hands the messages of an agent over on one line. It is not safe for
// concurrent use.
type deliverer struct {
	server *Server
	conn   *connection
	agent  models.Agent
	// redeliverAfter is after what time a message is handed over again, 0 for never. Where it
	// grows, that is twice as long each time, up to maxPause.
	redeliverAfter time.Duration
	backoff        bool
	// maxBytes is the longest message in bytes, 0 for any.
	maxBytes int
}

// outbound is one message as it is handed over.
type outbound struct {
	id    string
	parts [][]byte
}

// size is how long it is, in bytes.
func (p outbound) size() (n int) {
	for _, part := range p.parts {
		n += len(part)
	}
	return n
}

// errDoesNotFit says of a message that it cannot be handed over on this line. It keeps its
// place, and is tried again like one that is not acknowledged.
var errDoesNotFit = errors.New("the message does not fit the line")

// run hands over what comes for the agent, as often as there is something, and has
// attend look after the line every heartbeat. It returns nil once the line is over,
// ctx.Err() once ctx is, and else the error of attend or of hand.
func (c *deliverer) run(ctx context.Context, attend func(context.Context) error, hand func(outbound) error) error {
	news, stop := c.server.core.Work.Inbox(c.agent.ID)
	defer stop()
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case <-news:
		case <-c.conn.wakeUp:
		case <-again.C:
		case <-c.conn.done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
		if c.conn.heartbeatDue.Swap(false) {
			if err := attend(ctx); err != nil {
				return err
			}
			if c.conn.ended() {
				return nil
			}
		}
		later, err := c.deliverPending(ctx, c.conn.concurrency+maxNotices, hand)
		if err != nil {
			return err
		}
		if later > 0 {
			again.Reset(later)
		}
	}
}

// deliverPending hands over what is in the inbox and was not handed over yet, at most so many
// messages: not more work than the agent takes at a time, and of the rest no more than
// the line keeps in mind. An error of hand ends it, unless it is errUnfit. later is when
// there will be something to hand over again, 0 for not.
func (c *deliverer) deliverPending(ctx context.Context, most int, hand func(outbound) error) (later time.Duration, err error) {
	window := c.conn.concurrency + maxNotices + c.conn.inFlight.removeAcked()
	all, err := c.server.core.Work.Messages(ctx, c.agent.ID, window)
	if err == nil {
		err = c.forgetRemoved(ctx, all, len(all) == window)
	}
	if err != nil {
		if ctx.Err() == nil {
			c.server.logInboxFailure(c.agent.ID, err)
		}
		return time.Second, nil // the database is away; the messages are not
	}
	out, work := c.conn.inFlight.count()
	now := c.server.opts.Clock()
	for _, m := range all {
		before, was := c.conn.inFlight.get(m.ID)
		if was && (before.acked || c.redeliverAfter == 0) {
			continue
		}
		if wait := c.redeliveryDelay(before.attempts) - now.Sub(before.at); was && wait > 0 {
			later = minPositive(later, wait)
			continue
		}
		if most == 0 || !was && !c.hasCapacity(m, out, work) {
			continue
		}
		done, err := c.deliver(ctx, m, before, hand)
		if err != nil {
			return 0, err
		}
		if !done {
			continue
		}
		most--
		later = minPositive(later, c.redeliveryDelay(before.attempts+1))
		if !was {
			out++
		}
		if m.Kind == models.MessageAssign && !was {
			work++
		}
	}
	return later, nil
}

// redeliveryDelay is how long a message that was handed over so many times is not handed over
// again, 0 where it never is.
func (c *deliverer) redeliveryDelay(times int) time.Duration {
	if !c.backoff || times < 1 {
		return c.redeliverAfter
	}
	return c.redeliverAfter * time.Duration(min(1<<min(times-1, 10), maxBackoffFactor))
}

// hasCapacity reports whether there is room for a message that was not handed over yet, beside
// those that are out and the work among them.
func (c *deliverer) hasCapacity(m models.InboxMessage, out, work int) bool {
	if m.Kind == models.MessageAssign && work >= c.conn.concurrency {
		return false
	}
	return out < c.conn.concurrency+maxNotices
}

// minPositive returns the smaller of two times of which one that is not positive is none.
func minPositive(a, b time.Duration) time.Duration {
	if a <= 0 || b > 0 && b < a {
		return b
	}
	return a
}

// forgetRemoved forgets what is not in the inbox any more. Where there may be more in the inbox
// than was read, it is asked for.
func (c *deliverer) forgetRemoved(ctx context.Context, all []models.InboxMessage, more bool) error {
	gone := c.conn.inFlight.missingFrom(all)
	if more && len(gone) > 0 {
		still, err := c.server.core.Work.MessagePending(ctx, c.agent.ID, gone)
		if err != nil {
			return err
		}
		there := make(map[string]bool, len(still))
		for _, id := range still {
			there[id] = true
		}
		gone = slices.DeleteFunc(gone, func(id string) bool { return there[id] })
	}
	c.conn.inFlight.remove(gone)
	return nil
}

// deliver hands one message over. One that is not true any more is acknowledged, and one
// that cannot be written is left for another time.
func (c *deliverer) deliver(ctx context.Context, m models.InboxMessage, before delivery, hand func(outbound) error) (bool, error) {
	parts, err := c.conn.protocol.Render(ctx, c.agent, m, c.maxBytes)
	if err != nil {
		c.server.logWarning("a message could not be written and waits", m.AgentID, err)
		return false, nil
	}
	if len(parts) == 0 {
		_, err := c.server.core.Work.Acknowledge(ctx, m.AgentID, []string{m.ID})
		c.server.logWarning("a message could not be taken back", m.AgentID, err)
		return false, nil
	}
	// It is noted first: its acknowledgement may be here before hand is back.
	now := delivery{at: c.server.opts.Clock(), isTask: m.Kind == models.MessageAssign, attempts: before.attempts + 1}
	c.conn.inFlight.put(m.ID, now)
	err = hand(outbound{m.ID, parts})
	switch {
	case errors.Is(err, errDoesNotFit):
		return true, nil
	case err != nil && before.attempts > 0:
		c.conn.inFlight.put(m.ID, before)
		return false, err
	case err != nil:
		c.conn.inFlight.remove([]string{m.ID})
		return false, err
	}
	c.server.metrics.countDelivered(c.conn.transport, before.attempts > 0)
	return true, nil
}
