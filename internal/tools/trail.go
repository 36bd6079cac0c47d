package tools

import (
	"context"
	"log/slog"
	"sync"
	"time"

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
