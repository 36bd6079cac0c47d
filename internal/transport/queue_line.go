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

// queueRetry is after what time is tried again to publish where the bus is away.
const queueRetry = time.Second

// welcome puts an agent that has said over the queue that it is there on a line of this
// process, unless it was on one before that hands its messages over.
func (q *queue) welcome(ctx context.Context, agentID string, before models.Worker) error {
	if before.Transport == Queue && before.State != models.WorkerOffline {
		served, err := q.isServed(ctx, before)
		if err != nil || served {
			return err
		}
	}
	agent, err := q.l.accepted(ctx, q.l.speech, agentID)
	if err != nil {
		return err
	}
	w := q.l.core.Work.CachedWorker(agentID)
	h := newHeld(agentID, Queue, q.l.speech, max(before.Concurrency, 1), q.l.opts.Clock())
	h.shown.Store(false) // what it says is noted as it says it
	if err := q.l.lines.enter(h); err != nil {
		return err
	}
	if _, err := q.l.join(ctx, h); err != nil {
		q.l.lines.leave(h)
		return err
	}
	if w.State == models.WorkerBusy { // which joining has undone
		_, err = q.l.core.Work.Heartbeat(ctx, agentID, orchestrator.Heartbeat{State: w.State})
	}
	h.joined.Store(true)
	q.group.Go(func() {
		defer q.l.lines.leave(h)
		q.serve(ctx, h, agent)
	})
	return err
}

// isServed reports whether somebody hands over what an agent on the queue is to be told.
// Another process that does not is found out by what should be acknowledged by now.
func (q *queue) isServed(ctx context.Context, w models.Worker) (bool, error) {
	if h := q.l.lines.of(w.AgentID); h != nil && h.id == w.ConnectionID {
		return true, nil
	}
	if q.l.opts.Alone || w.ConnectionID == "" {
		return false, nil
	}
	all, err := q.l.core.Work.Messages(ctx, w.AgentID, maxInbox)
	long := q.l.opts.Clock().Add(-2 * q.l.opts.Republish)
	return !slices.ContainsFunc(all, func(m models.InboxMessage) bool { return m.CreatedAt.Before(long) }), err
}

// serve publishes what the agent is to be told until it is off the queue.
func (q *queue) serve(ctx context.Context, h *held, agent models.Agent) {
	news, stop := q.l.core.Work.Inbox(agent.ID)
	defer stop()
	c := &courier{l: q.l, line: h, agent: agent, again: q.l.opts.Republish, grows: true}
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case <-news:
		case <-h.kick:
		case <-again.C:
		case <-h.over:
			if h.why == endDraining { // another process has the agent when it hears it next
				q.l.hangup(ctx, h)
			}
			return
		case <-ctx.Done():
			return
		}
		if h.due.Swap(false) && q.l.core.Work.CachedWorker(agent.ID).State == models.WorkerOffline {
			return // it has said so, or says nothing any more
		}
		c.limit = q.l.core.Bus.MaxPayload() // another server may allow less
		later, err := c.round(ctx, h.places+spare, func(p parcel) error { return q.publish(agent.ID, p, c.limit) })
		if err != nil {
			later = queueRetry
		}
		if later > 0 {
			again.Reset(later)
		}
	}
}

// publish publishes a message, whole or not at all: it is errUnfit where a part is over
// what the bus takes.
func (q *queue) publish(agentID string, p parcel, limit int) error {
	for _, part := range p.parts {
		if len(part) > limit {
			q.l.report("a message is too long for the bus and waits", agentID,
				errs.New(errs.BodyTooLarge, "the message %s has a part of %d bytes, and the bus takes %d", p.id, len(part), limit))
			return errUnfit
		}
	}
	for _, part := range p.parts {
		err := q.l.core.Bus.Publish(bus.AgentInbox(agentID), part)
		if errs.Is(err, errs.BodyTooLarge) { // it takes less than a moment ago
			q.l.report("a message is too long for the bus and waits", agentID, err)
			return errUnfit
		}
		if err != nil {
			return err
		}
	}
	return nil
}
