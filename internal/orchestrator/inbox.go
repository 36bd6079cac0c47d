package orchestrator

import (
	"context"
	"encoding/json"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
)

// Inbox returns a channel that receives when there may be something new to tell an
// agent, and what ends it.
func (o *Orchestrator) Inbox(agentID string) (<-chan struct{}, func()) {
	return o.waiters.subscribe(WakeInbox, agentID)
}

// Messages returns up to limit messages that an agent has not acknowledged, the most
// urgent first.
func (o *Orchestrator) Messages(ctx context.Context, agentID string, limit int) ([]models.InboxMessage, error) {
	return o.store.Inbox(ctx, agentID, limit)
}

// Acknowledge notes that an agent has messages, which it is not told again, and returns
// how many of them were still in its inbox. An agent that has its assignment works on
// it.
func (o *Orchestrator) Acknowledge(ctx context.Context, agentID string, ids []string) (n int64, err error) {
	if len(ids) == 0 {
		return 0, nil
	}
	err = o.transact(ctx, func(op *operation) (err error) {
		n, err = op.tx.Acknowledge(agentID, ids)
		return err
	})
	return n, err
}

// MessagePending returns those of the messages that are in an agent's inbox.
func (o *Orchestrator) MessagePending(ctx context.Context, agentID string, ids []string) ([]string, error) {
	return o.store.MessagePending(ctx, agentID, ids)
}

// Broadcast is something that agents are told and that is about no task (PROTOCOL_V5
// §3.3, type B). It goes to those who are there: agents that are offline do not hear of it.
type Broadcast struct {
	// Protocol is what they speak.
	Protocol string
	// SphereID is whose agents are told, 0 for all; Agent is the one that is, "" for all.
	SphereID int
	AgentID  string
	// MessageID names it, "" for no name: what is announced again under one within 24 h is
	// told to nobody twice.
	MessageID string
	// Priority is 0 to 3.
	Priority int
	// Data is JSON for the dialect that writes it.
	Data json.RawMessage
}

const (
	// broadcastBatch is how many agents are told in one transaction.
	broadcastBatch = 500
	// maxNotices is how many announcements wait for an agent at most: of more the oldest
	// are gone.
	maxNotices = 100
)

// Broadcast tells agents something and returns how many it is for. Where it was announced
// before, those who were told then are not told again. One that is named and not there, or
// that speaks another dialect, is errs.NotFound.
func (o *Orchestrator) Broadcast(ctx context.Context, a Broadcast) (told int, err error) {
	if a.AgentID != "" {
		if w := o.workerCache.get(a.AgentID); w.Protocol != a.Protocol || w.State == models.WorkerOffline {
			return 0, errs.New(errs.NotFound, "the agent %q is not there", a.AgentID)
		}
		return 1, o.transact(ctx, func(op *operation) error { return op.sendBroadcast(a, []string{a.AgentID}) })
	}
	for after := ""; ; {
		var ids []string
		err = o.transact(ctx, func(op *operation) error {
			if ids, err = op.tx.Audience(a.Protocol, a.SphereID, after, broadcastBatch); err != nil {
				return err
			}
			return op.sendBroadcast(a, ids)
		})
		if told += len(ids); err != nil || len(ids) < broadcastBatch {
			return told, err
		}
		after = ids[len(ids)-1]
	}
}

// sendBroadcast puts an announcement into the inboxes of those of the agents who have not heard it.
func (op *operation) sendBroadcast(a Broadcast, ids []string) (err error) {
	if a.MessageID != "" {
		if ids, err = op.tx.MarkEachProcessed(ids, a.MessageID); err != nil {
			return err
		}
	}
	err = op.tx.EnqueueMessages(ids, models.InboxMessage{Kind: models.MessageNotice, Priority: a.Priority, Data: a.Data})
	if err == nil {
		err = op.tx.KeepNotices(ids, maxNotices)
	}
	for _, id := range ids {
		op.wakeAfterCommit(WakeInbox, id)
	}
	return err
}

// PushTargets returns where messages are pushed to, ordered by agent.
func (o *Orchestrator) PushTargets(ctx context.Context) ([]models.PushTarget, error) {
	return o.store.PushTargets(ctx)
}

// PushTarget returns where an agent's messages are pushed to, or errs.NotFound.
func (o *Orchestrator) PushTarget(ctx context.Context, agentID string) (models.PushTarget, error) {
	return o.store.PushTarget(ctx, agentID)
}

// SavePushTarget has an agent's messages pushed somewhere, and returns it with its
// times. It is errs.Conflict for an unknown agent.
func (o *Orchestrator) SavePushTarget(ctx context.Context, t models.PushTarget) (models.PushTarget, error) {
	err := o.store.Write(ctx, func(tx *store.Tx) error { return tx.SavePushTarget(&t) })
	return t, err
}

// DeletePushTarget ends the pushing to an agent and reports whether there was any. Unless
// secret is "", only a target that has it is dropped, and not one that has taken its
// place.
func (o *Orchestrator) DeletePushTarget(ctx context.Context, agentID, secret string) (dropped bool, err error) {
	err = o.store.Write(ctx, func(tx *store.Tx) error {
		dropped, err = tx.DeletePushTarget(agentID, secret)
		return err
	})
	return dropped, err
}
