package orchestrator

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/google/uuid"

	"comet/internal/errs"
	"comet/internal/orchestrator/wakeups"
	"comet/models"
	"comet/store"
)

// Inbox returns a channel that receives when an agent may have new messages, and a function that
// ends it.
func (o *Orchestrator) Inbox(agentID string) (<-chan struct{}, func()) {
	return o.waiters.Subscribe(WakeInbox, agentID)
}

// Messages returns up to limit unacknowledged messages of an agent, the most urgent first, and then
// the progress of its tasks since the last call.
func (o *Orchestrator) Messages(ctx context.Context, agentID string, limit int) ([]models.InboxMessage, error) {
	acked := o.acks.Of(agentID) // before the read, so that acknowledgements that are being written hide their messages
	all, err := o.store.Inbox(ctx).List(agentID, limit+len(acked))
	all = slices.DeleteFunc(all, func(m models.InboxMessage) bool { return slices.Contains(acked, m.ID) })
	all = all[:min(limit, len(all))]
	for _, id := range o.waiters.TakeProgress(agentID) {
		all = append(all, models.InboxMessage{ID: uuid.NewString(), AgentID: agentID, Kind: models.MessageProgress, TaskID: id})
	}
	return all, err
}

// AcknowledgeLater removes messages from an agent's inbox in memory. The next change of their task,
// FlushAcknowledgements or the end of ackDelay removes them from the database; if the process fails before,
// they are redelivered. If more than wakeups.MaxPendingAcks are pending for the agent, it writes at once and may fail.
func (o *Orchestrator) AcknowledgeLater(ctx context.Context, agentID string, ids []string) error {
	if len(ids) == 0 || o.acks.Add(agentID, ids, o.store.Now()) <= wakeups.MaxPendingAcks {
		return nil
	}
	return o.FlushAcknowledgements(ctx, agentID)
}

// FlushAcknowledgements writes the acknowledgements of agents that AcknowledgeLater keeps in memory.
func (o *Orchestrator) FlushAcknowledgements(ctx context.Context, agentIDs ...string) error {
	for some := range slices.Chunk(agentIDs, agentBatch) {
		pending := map[string][]string{}
		for _, id := range some {
			if ids := o.acks.Of(id); len(ids) > 0 {
				pending[id] = ids
			}
		}
		if len(pending) == 0 {
			continue
		}
		err := o.transact(ctx, func(op *operation) error {
			for _, id := range some {
				if _, err := op.acknowledge(id, pending[id]); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		for id, ids := range pending {
			o.acks.Remove(id, ids...)
		}
	}
	return nil
}

// Acknowledge removes messages from an agent's inbox and returns how many were still there.
func (o *Orchestrator) Acknowledge(ctx context.Context, agentID string, ids []string) (n int64, err error) {
	if len(ids) == 0 {
		return 0, nil
	}
	err = o.transact(ctx, func(op *operation) (err error) {
		n, err = op.acknowledge(agentID, ids)
		return err
	})
	return n, err
}

// MessageReceived is the kind of the message to an agent whose task another agent has received (Override.Receipts).
const MessageReceived = "received"

// acknowledge removes messages from an agent's inbox, returns how many were still there, and reports assignments among them.
func (op *operation) acknowledge(agentID string, ids []string) (int64, error) {
	n, assigned, err := op.tx.Inbox().Acknowledge(agentID, ids)
	for _, t := range assigned {
		if err == nil {
			err = op.reportReceipt(t)
		}
	}
	return n, err
}

// reportReceipt notifies those who wait for a task in this process that an agent has received it, and the agent that submitted it,
// if it asked for that.
func (op *operation) reportReceipt(r store.Received) error {
	op.tx.After(func() { op.waiters.Wake(wakeups.Wake{Kind: WakeTask, ID: r.TaskID}) })
	if r.OwnerAgent == "" || !op.opts.Classes[r.Class].Receipts {
		return nil
	}
	t, err := op.tx.Tasks().Get(r.TaskID)
	if err != nil {
		return err
	}
	if _, p, err := op.loadPolicy(t); err != nil || !p.Receipts {
		return err
	}
	return op.send(t.OwnerAgent, MessageReceived, t, nil)
}

// MessagePending returns those of the messages that are still in an agent's inbox.
func (o *Orchestrator) MessagePending(ctx context.Context, agentID string, ids []string) ([]string, error) {
	acked := o.acks.Of(agentID) // before the read, as in Messages
	pending, err := o.store.Inbox(ctx).Pending(agentID, ids)
	return slices.DeleteFunc(pending, func(id string) bool { return slices.Contains(acked, id) }), err
}

// Broadcast is a message to several agents that is about no task (PROTOCOL_V5 §3.3, type B).
// Offline agents do not receive it.
type Broadcast struct {
	// Protocol is the protocol of the recipients.
	Protocol string
	// SphereID selects the agents of a sphere, 0 for all; AgentID selects one agent, "" for all.
	SphereID int
	AgentID  string
	// MessageID prevents that an agent receives the message twice within 24 h; "" does not.
	MessageID string
	// Priority is 0 to 3.
	Priority int
	// Data is JSON that the protocol writes and reads.
	Data json.RawMessage
}

const (
	// agentBatch is the number of agents whose inboxes one transaction changes.
	agentBatch = 500
	// maxNotices is the maximum number of pending broadcasts of an agent; the oldest are dropped.
	maxNotices = 100
)

// Broadcast sends a message to agents and returns the number of recipients. An agent that has
// received it before does not get it again. A requested agent that is offline, or that uses
// another protocol, is errs.NotFound.
func (o *Orchestrator) Broadcast(ctx context.Context, a Broadcast) (recipients int, err error) {
	if a.AgentID != "" {
		if w := o.index.Worker(a.AgentID); w.Protocol != a.Protocol || w.State == models.WorkerOffline {
			return 0, errs.New(errs.NotFound, "the agent %q is not online", a.AgentID)
		}
		return 1, o.transact(ctx, func(op *operation) error { return op.sendBroadcast(a, []string{a.AgentID}) })
	}
	for after := ""; ; {
		var ids []string
		err = o.transact(ctx, func(op *operation) error {
			if ids, err = op.tx.Workers().Audience(a.Protocol, a.SphereID, after, agentBatch); err != nil {
				return err
			}
			return op.sendBroadcast(a, ids)
		})
		if recipients += len(ids); err != nil || len(ids) < agentBatch {
			return recipients, err
		}
		after = ids[len(ids)-1]
	}
}

// sendBroadcast puts a message into the inboxes of the agents that have not received it before.
func (op *operation) sendBroadcast(a Broadcast, ids []string) (err error) {
	if a.MessageID != "" {
		if ids, err = op.tx.Inbox().MarkEachProcessed(ids, a.MessageID); err != nil {
			return err
		}
	}
	err = op.tx.Inbox().EnqueueAll(ids, models.InboxMessage{Kind: models.MessageNotice, Priority: a.Priority, Data: a.Data})
	if err == nil {
		err = op.tx.Inbox().KeepNotices(ids, maxNotices)
	}
	for _, id := range ids {
		op.wakeAfterCommit(WakeInbox, id)
	}
	return err
}

// PushTargets returns all push targets, ordered by agent.
func (o *Orchestrator) PushTargets(ctx context.Context) ([]models.PushTarget, error) {
	return o.store.Workers(ctx).PushTargets()
}

// PushTarget returns the push target of an agent, or errs.NotFound.
func (o *Orchestrator) PushTarget(ctx context.Context, agentID string) (models.PushTarget, error) {
	return o.store.Workers(ctx).PushTarget(agentID)
}

// SavePushTarget sets the push target of an agent and returns it with its timestamps. An unknown
// agent is errs.Conflict.
func (o *Orchestrator) SavePushTarget(ctx context.Context, t models.PushTarget) (models.PushTarget, error) {
	err := o.store.Write(ctx, func(tx *store.Tx) error { return tx.Workers().SavePushTarget(&t) })
	return t, err
}

// DeletePushTarget deletes the push target of an agent and reports whether there was one. Unless
// secret is "", it deletes only the target with that secret, and not a newer one.
func (o *Orchestrator) DeletePushTarget(ctx context.Context, agentID, secret string) (dropped bool, err error) {
	err = o.store.Write(ctx, func(tx *store.Tx) error {
		dropped, err = tx.Workers().DeletePushTarget(agentID, secret)
		return err
	})
	return dropped, err
}
