package tools

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"comet/internal/errs"
	"comet/internal/lifecycle"
	"comet/models"
	"comet/store"
)

const (
	// flushInterval is how long the end of a call waits to be written at most, writeMany how
	// many are written without waiting for that.
	flushInterval, flushBatch = 100 * time.Millisecond, 500
	// maxPendingCalls is how many may wait; who ends a call then waits too.
	maxPendingCalls = 20_000
	// maxPendingEvents is how many other events may wait; further ones are lost.
	maxPendingEvents = 2000
	// maxPendingText is how long what was said in calls that wait may be together, in bytes, and
	// writeAgain the rest after a failure.
	maxPendingText = 64 << 20
	retryPause     = time.Second
	// flushTimeout is how long the last calls may take to be written.
	flushTimeout = 10 * time.Second
)

// auditLog keeps who called what, and tells the ledger what it cost. Both are written together
// with those of other calls, a moment after the call: a call waits for no transaction. A
// process that is killed loses what it still held, some tenths of a second of it; what the
// ledger had reserved for them stays reserved until that expires.
type auditLog struct {
	store    *store.Store
	meter    *prepaid
	tokens   *tokenCounter
	log      *slog.Logger
	loop     *lifecycle.Loop
	mu       sync.Mutex
	roomFree *sync.Cond
	// open is how many calls are not written yet, those that are being written too, and size
	// how long what was said in those that wait is, in bytes.
	open, size int
	waiting    []callRecord
	events     []models.EventDraft
	batchFull  chan struct{} // has one when a batch is there
	writing    chan struct{} // has one from who writes
}

func newAuditLog(s *store.Store, m *prepaid, log *slog.Logger) *auditLog {
	t := &auditLog{store: s, meter: m, tokens: newTokenCounter(), log: log, batchFull: make(chan struct{}, 1), writing: make(chan struct{}, 1)}
	t.roomFree = sync.NewCond(&t.mu)
	t.loop = lifecycle.NewLoop(t.run)
	return t
}

// Start implements lifecycle.Service.
func (t *auditLog) Start(ctx context.Context) error { return t.loop.Start(ctx) }

// Stop implements lifecycle.Service: what waits is written first, and what the ledger holds
// is given back.
func (t *auditLog) Stop(ctx context.Context) error {
	if err := t.loop.Stop(ctx); err != nil {
		return err
	}
	if err := t.flush(ctx, true); err != nil {
		return err
	}
	return t.flush(ctx, true) // what an account had to keep back while it repeated itself
}

// add has a call written soon. Where too many wait already it waits for room: no call is
// lost.
func (t *auditLog) add(e callRecord) {
	t.mu.Lock()
	for t.open >= maxPendingCalls {
		t.roomFree.Wait()
	}
	t.open++
	size := e.textSize()
	if large := t.size+size > maxPendingText; large { // who said so much counts it himself
		t.mu.Unlock()
		t.countTokens(&e)
		t.mu.Lock()
		size = 0
	}
	t.waiting, t.size = append(t.waiting, e), t.size+size
	n := len(t.waiting)
	t.mu.Unlock()
	if n == flushBatch {
		select {
		case t.batchFull <- struct{}{}:
		default:
		}
	}
}

func (t *auditLog) run(ctx context.Context) {
	tick := time.NewTicker(flushInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-t.batchFull:
		}
		if err := t.flush(context.WithoutCancel(ctx), false); err != nil {
			t.log.Warn("calls of tools could not be written; they are kept", "error", err)
			rest := time.NewTimer(retryPause)
			select {
			case <-ctx.Done():
			case <-rest.C:
			}
			rest.Stop()
		}
	}
}

// Flush writes what waits, so that who reads finds it.
func (t *auditLog) Flush(ctx context.Context) error { return t.flush(ctx, false) }

// flush writes what waits; all is also to give back what the ledger holds.
func (t *auditLog) flush(ctx context.Context, all bool) error {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	select {
	case t.writing <- struct{}{}:
		defer func() { <-t.writing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	batch, news := t.drain()
	calls := make([]models.ToolCall, len(batch))
	for i := range batch {
		t.countTokens(&batch[i])
		calls[i] = batch[i].ToolCall
		news = append(news, eventOf(calls[i]))
	}
	accounts := t.meter.dueAccounts(ctx, all)
	if len(calls) == 0 && len(accounts) == 0 && len(news) == 0 {
		return nil
	}
	err := t.write(ctx, calls, news, accounts)
	switch {
	case err == nil:
		finishStatements(accounts, true)
		t.markWritten(len(batch))
		return nil
	case !t.isRejected(ctx, err):
		finishStatements(accounts, false)
		t.requeue(batch, news[:len(news)-len(batch)])
		return err
	}
	t.log.Warn("one of the calls or accounts cannot be written; each is written for itself", "error", err)
	return t.writeSeparately(ctx, batch, news[:len(news)-len(batch)], accounts)
}

// addEvent has an event written with the next calls. It is for news that nobody waits for: where
// too many wait already, it is left out.
func (t *auditLog) addEvent(e models.EventDraft) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.events) < maxPendingEvents {
		t.events = append(t.events, e)
	}
}

// countTokens counts what was said in a call, and has its payer pay that.
func (t *auditLog) countTokens(e *callRecord) {
	if e.texts == nil {
		return
	}
	e.Tokens = t.tokens.count(e.texts...)
	if e.payer != nil {
		e.payer.recordUse(e.estimate, e.Tokens)
	}
	e.estimate, e.texts = e.Tokens, nil
}

func (t *auditLog) drain() ([]callRecord, []models.EventDraft) {
	t.mu.Lock()
	defer t.mu.Unlock()
	out, news := t.waiting, t.events
	t.waiting, t.events, t.size = nil, nil, 0
	return out, news
}

// markWritten makes room for as many calls as are written.
func (t *auditLog) markWritten(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open -= n
	t.roomFree.Broadcast()
}

// requeue has what could not be written wait again, before what came since.
func (t *auditLog) requeue(batch []callRecord, news []models.EventDraft) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting, t.events = append(batch, t.waiting...), append(news, t.events...)
}

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

// Calls returns lines of the audit trail, the newest first. Only an admin sees those of
// others.
func (h *Service) Calls(ctx context.Context, by models.Principal, q models.ToolCallQuery) ([]models.ToolCall, error) {
	if !by.Has(models.ScopeAdmin) {
		if q.TokenID != "" && q.TokenID != by.TokenID {
			return nil, nil
		}
		q.TokenID = by.TokenID
	}
	if err := h.auditLog.Flush(ctx); err != nil {
		if err = h.auditLog.Flush(ctx); err != nil { // a connection that was cut is one no longer
			h.log.Debug("the newest calls are not shown yet", "error", err)
		}
	}
	return h.store.ToolCalls(ctx, q)
}

// Purge deletes what the audit trail need not keep any longer.
func (h *Service) Purge(ctx context.Context) error {
	const each = 1000
	before := h.store.Now().Add(-h.opts.Retention)
	for {
		var n int64
		err := h.store.Write(ctx, func(tx *store.Tx) (err error) {
			n, err = tx.PurgeToolCalls(before, each)
			return err
		})
		if err != nil || n < each {
			return err
		}
	}
}
