package tools

import (
	"context"
	"errors"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
)

// itsOwnFault reports whether what could not be written is to blame: the database answers.
func (t *trail) itsOwnFault(ctx context.Context, err error) bool {
	return ctx.Err() == nil && !errs.Is(err, errs.Unavailable) && !errs.Is(err, errs.Timeout) && t.store.Ping(ctx) == nil
}

// write writes calls and events, and tells the ledger of accounts, in one transaction. For
// accounts of which too much was asked it is tried again with what they need.
func (t *trail) write(ctx context.Context, calls []models.ToolCall, news []models.EventDraft, accounts []*due) error {
	for range 2*len(accounts) + 1 {
		err := t.meter.ledger.Write(ctx, func(tx *store.Tx) error {
			if err := tx.AddToolCalls(calls); err != nil {
				return err
			}
			if err := tx.EmitAll(news); err != nil {
				return err
			}
			return t.meter.tellAll(tx, accounts)
		})
		var much *tooMuch
		if !errors.As(err, &much) {
			return err
		}
		much.lacks(t.meter.clock())
		if much.renew > much.least {
			much.renew = much.least
		} else {
			much.renew = 0 // what is bound is more than there is
		}
	}
	return nil
}

// apart writes each call and each account for itself, so that one that no database takes, or
// that the ledger refuses, holds up no other. What cannot be written twice by a database that
// answers is said, and lost; where it does not answer, all that is left waits.
func (t *trail) apart(ctx context.Context, batch []ended, news []models.EventDraft, accounts []*due) (err error) {
	for i, d := range accounts {
		lost, err := t.alone(ctx, func() error { return t.write(ctx, nil, nil, []*due{d}) })
		switch {
		case lost:
			t.log.Error("what an agent used is not in the ledger", "agent", d.agentID, "tokens", d.lost(d.statement), "error", err)
			<-d.asking
		case err != nil:
			release(accounts[i:], false)
			t.putBack(batch, news)
			return err
		default:
			release([]*due{d}, true)
		}
	}
	for i, e := range batch {
		lost, err := t.alone(ctx, func() error {
			return t.write(ctx, []models.ToolCall{e.ToolCall}, []models.EventDraft{eventOf(e.ToolCall)}, nil)
		})
		switch {
		case lost:
			t.log.Error("a call of a tool is not in the audit trail", "call", e.ID, "agent", e.AgentID, "error", err)
		case err != nil:
			t.putBack(batch[i:], news)
			return err
		}
		t.written(1)
	}
	for i, e := range news {
		lost, err := t.alone(ctx, func() error { return t.write(ctx, nil, []models.EventDraft{e}, nil) })
		switch {
		case lost:
			t.log.Error("an event is lost", "type", e.Type, "error", err)
		case err != nil:
			t.putBack(nil, news[i:])
			return err
		}
	}
	return nil
}

// alone writes one thing, again where that fails, and reports whether it is lost: the database
// answers, and does not take it.
func (t *trail) alone(ctx context.Context, write func() error) (lost bool, err error) {
	for range 2 {
		if err = write(); err == nil || !t.itsOwnFault(ctx, err) {
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
