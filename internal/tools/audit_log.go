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
	// flushInterval is the longest time until a finished call is written, and flushBatch the
	// number of calls that are written earlier.
	flushInterval, flushBatch = 100 * time.Millisecond, 500
	// maxPendingCalls is how many calls may be pending; further ones block until there is space.
	maxPendingCalls = 20_000
	// maxPendingEvents is how many other events may be pending; further ones are dropped.
	maxPendingEvents = 2000
	// maxPendingText is the longest text of pending calls together, in bytes. retryPause is the
	// pause after a failed write.
	maxPendingText = 64 << 20
	retryPause     = time.Second
	// flushTimeout limits one flush.
	flushTimeout = 10 * time.Second
)

// auditLog records tool calls and settles their costs with the ledger. Both are written in
// batches a moment after the call, so a call waits for no transaction. A process that is killed
// loses the calls of the last flush interval; the tokens reserved for them become free when the
// reservation expires.
type auditLog struct {
	store    *store.Store
	prepaid  *prepaid
	tokens   *tokenCounter
	log      *slog.Logger
	loop     *lifecycle.Loop
	mu       sync.Mutex
	roomFree *sync.Cond
	// open is the number of calls that are not written yet, and size the length of the text of
	// the pending ones in bytes.
	open, size int
	pending    []callRecord
	events     []models.EventDraft
	batchFull  chan struct{} // receives when a batch is full
	writing    chan struct{} // holds one during a flush
}

func newAuditLog(s *store.Store, p *prepaid, log *slog.Logger) *auditLog {
	l := &auditLog{store: s, prepaid: p, tokens: newTokenCounter(), log: log, batchFull: make(chan struct{}, 1), writing: make(chan struct{}, 1)}
	l.roomFree = sync.NewCond(&l.mu)
	l.loop = lifecycle.NewLoop(l.run)
	return l
}

// Start implements lifecycle.Service.
func (l *auditLog) Start(ctx context.Context) error { return l.loop.Start(ctx) }

// Stop implements lifecycle.Service: it writes pending calls and releases all reservations.
func (l *auditLog) Stop(ctx context.Context) error {
	if err := l.loop.Stop(ctx); err != nil {
		return err
	}
	if err := l.flush(ctx, true); err != nil {
		return err
	}
	return l.flush(ctx, true) // settles accounts whose last statement had to be repeated
}

// add queues a finished call. It blocks while too many calls are pending, so that none is lost.
func (l *auditLog) add(e callRecord) {
	l.mu.Lock()
	for l.open >= maxPendingCalls {
		l.roomFree.Wait()
	}
	l.open++
	size := e.textSize()
	if large := l.size+size > maxPendingText; large { // the caller counts the tokens of a large text itself
		l.mu.Unlock()
		l.countTokens(&e)
		l.mu.Lock()
		size = 0
	}
	l.pending, l.size = append(l.pending, e), l.size+size
	n := len(l.pending)
	l.mu.Unlock()
	if n == flushBatch {
		select {
		case l.batchFull <- struct{}{}:
		default:
		}
	}
}

func (l *auditLog) run(ctx context.Context) {
	tick := time.NewTicker(flushInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-l.batchFull:
		}
		if err := l.flush(context.WithoutCancel(ctx), false); err != nil {
			l.log.Warn("write tool calls; retrying", "error", err)
			rest := time.NewTimer(retryPause)
			select {
			case <-ctx.Done():
			case <-rest.C:
			}
			rest.Stop()
		}
	}
}

// Flush writes everything that is pending.
func (l *auditLog) Flush(ctx context.Context) error { return l.flush(ctx, false) }

// flush writes everything that is pending; all also releases all reservations.
func (l *auditLog) flush(ctx context.Context, all bool) error {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	select {
	case l.writing <- struct{}{}:
		defer func() { <-l.writing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	batch, events := l.drain()
	calls := make([]models.ToolCall, len(batch))
	for i := range batch {
		l.countTokens(&batch[i])
		calls[i] = batch[i].ToolCall
		events = append(events, eventOf(calls[i]))
	}
	accounts := l.prepaid.dueAccounts(ctx, all)
	if len(calls) == 0 && len(accounts) == 0 && len(events) == 0 {
		return nil
	}
	err := l.write(ctx, calls, events, accounts)
	switch {
	case err == nil:
		finishStatements(accounts, true)
		l.markWritten(len(batch))
		return nil
	case !l.isRejected(ctx, err):
		finishStatements(accounts, false)
		l.requeue(batch, events[:len(events)-len(batch)])
		return err
	}
	l.log.Warn("a batch of tool calls was rejected; writing each entry on its own", "error", err)
	return l.writeSeparately(ctx, batch, events[:len(events)-len(batch)], accounts)
}

// addEvent queues an event for the next flush. An event is dropped when too many are pending.
func (l *auditLog) addEvent(e models.EventDraft) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.events) < maxPendingEvents {
		l.events = append(l.events, e)
	}
}

// countTokens counts the tokens of a call and charges them to its payer.
func (l *auditLog) countTokens(e *callRecord) {
	if e.texts == nil {
		return
	}
	e.Tokens = l.tokens.count(e.texts...)
	if e.payer != nil {
		e.payer.recordUse(e.estimate, e.Tokens)
	}
	e.estimate, e.texts = e.Tokens, nil
}

func (l *auditLog) drain() ([]callRecord, []models.EventDraft) {
	l.mu.Lock()
	defer l.mu.Unlock()
	out, events := l.pending, l.events
	l.pending, l.events, l.size = nil, nil, 0
	return out, events
}

// markWritten frees the space of n calls.
func (l *auditLog) markWritten(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open -= n
	l.roomFree.Broadcast()
}

// requeue puts a failed batch back in front of newer entries.
func (l *auditLog) requeue(batch []callRecord, events []models.EventDraft) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending, l.events = append(batch, l.pending...), append(events, l.events...)
}

// isRejected reports whether the database is available and rejected the data.
func (l *auditLog) isRejected(ctx context.Context, err error) bool {
	return ctx.Err() == nil && !errs.Is(err, errs.Unavailable) && !errs.Is(err, errs.Timeout) && l.store.Ping(ctx) == nil
}

// write writes calls and events and settles accounts in one transaction. When the ledger refuses
// a reservation, it retries with the minimum that the account needs.
func (l *auditLog) write(ctx context.Context, calls []models.ToolCall, events []models.EventDraft, accounts []*dueAccount) error {
	for range 2*len(accounts) + 1 {
		err := l.prepaid.ledger.Write(ctx, func(tx *store.Tx) error {
			if err := tx.AddToolCalls(calls); err != nil {
				return err
			}
			if err := tx.EmitAll(events); err != nil {
				return err
			}
			return l.prepaid.settleAll(tx, accounts)
		})
		var refused *overReserved
		if !errors.As(err, &refused) {
			return err
		}
		refused.markScarce(l.prepaid.clock())
		if refused.renewal > refused.minimum {
			refused.renewal = refused.minimum
		} else {
			refused.renewal = 0 // even the committed tokens exceed the budget
		}
	}
	return nil
}

// writeSeparately writes each account, call and event on its own, so that one that is rejected
// does not block the others. Data that is rejected twice is logged and dropped; when the database
// is unavailable, the rest stays pending.
func (l *auditLog) writeSeparately(ctx context.Context, batch []callRecord, events []models.EventDraft, accounts []*dueAccount) (err error) {
	for i, d := range accounts {
		lost, err := l.writeOnce(ctx, func() error { return l.write(ctx, nil, nil, []*dueAccount{d}) })
		switch {
		case lost:
			l.log.Error("tokens of tool calls were not charged", "agent", d.agentID, "tokens", d.writeOff(d.statement), "error", err)
			<-d.ledgerAccess
		case err != nil:
			finishStatements(accounts[i:], false)
			l.requeue(batch, events)
			return err
		default:
			finishStatements([]*dueAccount{d}, true)
		}
	}
	for i, e := range batch {
		lost, err := l.writeOnce(ctx, func() error {
			return l.write(ctx, []models.ToolCall{e.ToolCall}, []models.EventDraft{eventOf(e.ToolCall)}, nil)
		})
		switch {
		case lost:
			l.log.Error("a tool call is missing from the audit log", "call", e.ID, "agent", e.AgentID, "error", err)
		case err != nil:
			l.requeue(batch[i:], events)
			return err
		}
		l.markWritten(1)
	}
	for i, e := range events {
		lost, err := l.writeOnce(ctx, func() error { return l.write(ctx, nil, []models.EventDraft{e}, nil) })
		switch {
		case lost:
			l.log.Error("an event was dropped", "type", e.Type, "error", err)
		case err != nil:
			l.requeue(nil, events[i:])
			return err
		}
	}
	return nil
}

// writeOnce runs a write, once more after a rejection, and reports whether the data was rejected.
func (l *auditLog) writeOnce(ctx context.Context, write func() error) (lost bool, err error) {
	for range 2 {
		if err = write(); err == nil || !l.isRejected(ctx, err) {
			return false, err
		}
	}
	return true, err
}

// eventOf returns the event of a call.
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

// Calls returns audit records, the newest first. Only an admin sees those of other tokens.
func (svc *Service) Calls(ctx context.Context, by models.Principal, q models.ToolCallQuery) ([]models.ToolCall, error) {
	if !by.Has(models.ScopeAdmin) {
		if q.TokenID != "" && q.TokenID != by.TokenID {
			return nil, nil
		}
		q.TokenID = by.TokenID
	}
	if err := svc.auditLog.Flush(ctx); err != nil {
		if err = svc.auditLog.Flush(ctx); err != nil { // the second attempt uses a new connection
			svc.log.Debug("flush the audit log", "error", err)
		}
	}
	return svc.store.ToolCalls(ctx, q)
}

// Purge deletes audit records older than Options.Retention.
func (svc *Service) Purge(ctx context.Context) error {
	const each = 1000
	before := svc.store.Now().Add(-svc.opts.Retention)
	for {
		var n int64
		err := svc.store.Write(ctx, func(tx *store.Tx) (err error) {
			n, err = tx.PurgeToolCalls(before, each)
			return err
		})
		if err != nil || n < each {
			return err
		}
	}
}
