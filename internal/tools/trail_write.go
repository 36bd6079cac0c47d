package tools

import (
	"context"
	"errors"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
)

// isRejected reports whether what could not be written is to blame: the database answers.
func (t *auditLog) isRejected(ctx context.Context, err error) bool {
	return ctx.Err() == nil && !errs.Is(err, errs.Unavailable) && !errs.Is(err, errs.Timeout) && t.store.Ping(ctx) == nil
}

// write writes calls and events, and tells the ledger of accounts, in one transaction. For
// accounts of which too much was asked it is tried again with what they need.
func (t *auditLog) write(ctx context.Context, calls []models.ToolCall, news []models.EventDraft, accounts []*dueAccount) error {
	for range 2*len(accounts) + 1 {
		err := t.meter.ledger.Write(ctx, func(tx *store.Tx) error {
			if err := tx.AddToolCalls(calls); err != nil {
				return err
			}
			if err := tx.EmitAll(news); err != nil {
				return err
			}
			return t.meter.settleAll(tx, accounts)
		})
		var much *overReserved
		if !errors.As(err, &much) {
			return err
		}
		much.markScarce(t.meter.clock())
		if much.renewal > much.minimum {
			much.renewal = much.minimum
		} else {
			much.renewal = 0 // what is bound is more than there is
		}
	}
	return nil
}

// writeSeparately writes each call and each account for itself, so that one that no database takes, or
// that the ledger refuses, holds up no other. What cannot be written twice by a database that
// answers is said, and lost; where it does not answer, all that is left waits.
func (t *auditLog) writeSeparately(ctx context.Context, batch []callRecord, news []models.EventDraft, accounts []*dueAccount) (err error) {
	for i, d := range accounts {
		lost, err := t.writeOnce(ctx, func() error { return t.write(ctx, nil, nil, []*dueAccount{d}) })
		switch {
		case lost:
			t.log.Error("what an agent used is not in the ledger", "agent", d.agentID, "tokens", d.writeOff(d.statement), "error", err)
			<-d.ledgerAccess
		case err != nil:
			finishStatements(accounts[i:], false)
			t.requeue(batch, news)
			return err
		default:
			finishStatements([]*dueAccount{d}, true)
		}
	}
	for i, e := range batch {
		lost, err := t.writeOnce(ctx, func() error {
			return t.write(ctx, []models.ToolCall{e.ToolCall}, []models.EventDraft{eventOf(e.ToolCall)}, nil)
		})
		switch {
		case lost:
			t.log.Error("a call of a tool is not in the audit trail", "call", e.ID, "agent", e.AgentID, "error", err)
		case err != nil:
			t.requeue(batch[i:], news)
			return err
		}
		t.markWritten(1)
	}
	for i, e := range news {
		lost, err := t.writeOnce(ctx, func() error { return t.write(ctx, nil, []models.EventDraft{e}, nil) })
		switch {
		case lost:
			t.log.Error("an event is lost", "type", e.Type, "error", err)
		case err != nil:
			t.requeue(nil, news[i:])
			return err
		}
	}
	return nil
}

// writeOnce writes one thing, again where that fails, and reports whether it is lost: the database
// answers, and does not take it.
func (t *auditLog) writeOnce(ctx context.Context, write func() error) (lost bool, err error) {
	for range 2 {
		if err = write(); err == nil || !t.isRejected(ctx, err) {
			return false, err
		}
	}
	return true, err
}

// eventOf is a call as the event stream tells of it.
func eventOf(c models.ToolCall) models.EventDraft {
	kind := models.EventToolCalled
	if c.Outcome != models.ToolSucceeded {
		kind = models.EventToolFailed
	}
	id := toolID(c.Server, c.Tool)
	return models.EventDraft{Type: kind, Key: id, Data: models.ToolCalled{
		CallID: c.ID, Tool: id, Source: c.Door, Actor: c.Actor, AgentID: c.AgentID, Outcome: c.Outcome, Error: c.Error,
		DurationMS: float64(c.Duration.Microseconds()) / 1000, Tokens: c.Tokens, TaskID: c.TaskID, ParentID: c.ParentID, TraceID: c.TraceID,
	}}
}
