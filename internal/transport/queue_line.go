package transport

import (
	"context"
	"slices"
	"time"

	"comet/internal/bus"
	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/models"
)

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
