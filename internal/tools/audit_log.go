package tools

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"comet/internal/background"
	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/usage"
	"comet/models"
	"comet/store"
)

const (
	// flushInterval is the longest time until a finished call is written, and flushBatch the
	// number of calls that are written earlier.
	flushInterval, flushBatch = 100 * time.Millisecond, 500
	// maxPending limits the pending calls and events; then a call waits, and an event is dropped.
	maxPending = 20_000
	// maxPendingText is the longest text of pending calls together, in bytes.
	maxPendingText = 64 << 20
	// flushTimeout limits the wait of a call for its record.
	flushTimeout = 10 * time.Second
)

// auditLog records tool calls and settles their costs with the ledger, in batches a moment after
// the call, so a call waits for no transaction. A process that is killed loses the calls of the
// last flush interval; the tokens reserved for them become free when the reservation expires.
type auditLog struct {
	*background.Batcher[*auditEntry]
	store   *store.Store
	ledger  *usage.Ledger
	prepaid *usage.Prepaid
	tokens  *tokenCounter
	log     *slog.Logger
	// pendingText is the length of the text of pending calls, in bytes.
	pendingText atomic.Int64
	closing     atomic.Bool
}

// auditEntry is a call or another event that waits to be written.
type auditEntry struct {
	call  *callRecord
	event *store.EventDraft
}

func newAuditLog(s *store.Store, ledger *usage.Ledger, clock func() time.Time, log *slog.Logger) *auditLog {
	l := &auditLog{store: s, ledger: ledger, tokens: newTokenCounter(), log: log}
	l.Batcher = background.NewBatcher(background.BatcherOptions{
		Task: "writing tool calls", Logger: log, Interval: flushInterval, Size: flushBatch, MaxBatch: maxPending, MaxPending: maxPending,
	}, l.write)
	l.prepaid = usage.NewPrepaid(ledger, &usage.PrepaidOptions{Kind: factKind, Count: l.Flush, Logger: log, Clock: clock})
	return l
}

// Stop implements background.Service: it writes pending calls and releases all reservations.
func (l *auditLog) Stop(ctx context.Context) error {
	l.closing.Store(true)
	if err := l.Batcher.Stop(ctx); err != nil {
		return err
	}
	return l.Flush(context.WithoutCancel(ctx)) // settles accounts whose last statement had to be repeated
}

// add queues a finished call. It waits while too many calls are pending, so that none is lost. After
// Stop it writes the call itself, and logs a call that cannot be written.
func (l *auditLog) add(e callRecord) {
	if l.pendingText.Add(e.textSize()) > maxPendingText { // the caller counts the tokens of a large text itself
		l.countTokens(&e)
	}
	entry := &auditEntry{call: &e}
	if l.AddWait(entry) == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	if _, err := l.write(ctx, []*auditEntry{entry}); err != nil {
		l.log.Error("a tool call that ended after the shutdown is missing from the audit log", "call", e.ID, "agent", e.AgentID, "error", err)
	}
}

// addEvent queues an event. An event is dropped and logged when too many entries are pending. It is
// dropped silently after Stop: then only the shutdown itself ends upstreams.
func (l *auditLog) addEvent(e store.EventDraft) {
	if !l.closing.Load() && !l.Add(&auditEntry{event: &e}) {
		l.log.Warn("an event was dropped", "type", e.Type)
	}
}

// write writes a batch and settles the accounts, in one transaction.
func (l *auditLog) write(ctx context.Context, batch []*auditEntry) (written int, err error) {
	for _, e := range batch {
		if e.call != nil {
			l.countTokens(e.call)
		}
	}
	settle, rows := l.prepaid.Settle, func(tx *store.Tx) error { return writeRows(tx, batch) }
	if l.closing.Load() {
		settle = l.prepaid.Close
	}
	if len(batch) == 0 {
		rows = nil
	}
	err = settle(ctx, rows)
	if err != nil && l.isRejected(ctx, err) {
		l.log.Warn("a batch of tool calls was rejected; writing each entry on its own", "error", err)
		return l.writeSeparately(ctx, batch)
	}
	return 0, err
}

// countTokens counts the tokens of a call and charges them to its payer.
func (l *auditLog) countTokens(e *callRecord) {
	if e.texts == nil {
		return
	}
	l.pendingText.Add(-e.textSize())
	e.Tokens, e.texts = l.tokens.count(e.texts...), nil
	if e.hold != nil {
		e.hold.Charge(e.Tokens)
	}
}

// isRejected reports whether the database is available and rejected the data.
func (l *auditLog) isRejected(ctx context.Context, err error) bool {
	return ctx.Err() == nil && !errs.Is(err, errs.Unavailable) && !errs.Is(err, errs.Timeout) && l.store.Ping(ctx) == nil
}

// writeRows writes calls with their events, and other events.
func writeRows(tx *store.Tx, batch []*auditEntry) error {
	var calls []models.ToolCall
	var all []store.EventDraft
	for _, e := range batch {
		if e.call == nil {
			all = append(all, *e.event)
			continue
		}
		calls, all = append(calls, e.call.ToolCall), append(all, eventOf(e.call.ToolCall))
	}
	if err := tx.Tools().AddCalls(calls); err != nil {
		return err
	}
	return tx.Events().EmitAll(all)
}

// writeSeparately writes each entry on its own, so that one that is rejected does not block the
// others. An entry that is rejected twice is logged and dropped. It returns how many entries were
// written or dropped before the database became unavailable.
func (l *auditLog) writeSeparately(ctx context.Context, batch []*auditEntry) (done int, err error) {
	for i, e := range batch {
		rejected, err := l.writeOnce(ctx, batch[i:i+1])
		switch {
		case rejected && e.call != nil:
			l.log.Error("a tool call is missing from the audit log", "call", e.call.ID, "agent", e.call.AgentID, "error", err)
		case rejected:
			l.log.Error("an event was dropped", "type", e.event.Type, "error", err)
		case err != nil:
			return i, err
		}
	}
	return len(batch), nil
}

// writeOnce writes an entry, once more after a rejection, and reports whether it was rejected.
func (l *auditLog) writeOnce(ctx context.Context, entry []*auditEntry) (rejected bool, err error) {
	for range 2 {
		err = l.store.Write(ctx, func(tx *store.Tx) error { return writeRows(tx, entry) })
		if err == nil || !l.isRejected(ctx, err) {
			return false, err
		}
	}
	return true, err
}

// callRecord is a finished call that waits to be written.
type callRecord struct {
	models.ToolCall
	// texts are the arguments and the result, whose tokens are not counted yet.
	texts []string
	// hold pays for the call; nil for a call without a charge, or with a bill, which has admitted tokens for it.
	hold     *usage.Hold
	admitted int64
}

func (e *callRecord) textSize() (n int64) {
	for _, text := range e.texts {
		n += int64(len(text))
	}
	return n
}

func eventOf(c models.ToolCall) store.EventDraft {
	kind := events.ToolCalled
	if c.Outcome != outcomeSuccess {
		kind = events.ToolFailed
	}
	id := toolID(c.Server, c.Tool)
	return store.EventDraft{Type: kind, Key: id, Data: toolCalled{
		CallID: c.ID, Tool: id, Source: c.Source, Actor: c.Actor, AgentID: c.AgentID, Outcome: c.Outcome, Error: c.Error,
		DurationMS: float64(c.Duration.Microseconds()) / 1000, Tokens: c.Tokens, TaskID: c.TaskID, ParentID: c.ParentID, TraceID: c.TraceID,
	}}
}

// Calls returns audit records, the newest first. Only an administrator of the whole system sees those of
// other tokens.
func (svc *Service) Calls(ctx context.Context, by models.Principal, q store.ToolCallQuery) ([]models.ToolCall, error) {
	if !by.Administers() {
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
	return svc.store.Tools(ctx).Calls(q)
}

// Purge deletes audit records older than Options.Retention.
func (svc *Service) Purge(ctx context.Context) error {
	before := svc.store.Now().Add(-svc.opts.Retention)
	return svc.store.InBatches(ctx, func(tx *store.Tx, limit int) (int64, error) { return tx.Tools().PurgeCalls(before, limit) })
}

// ToolCallQuery is the parameter of Calls.
type ToolCallQuery = store.ToolCallQuery

type toolChanged struct {
	Server        string `json:"server"`
	Tool          string `json:"tool"`
	Digest        string `json:"digest"`
	PendingDigest string `json:"pending_digest,omitempty"`
	// Class is the new class, "" for that of the annotations.
	Class models.ToolClass `json:"class,omitempty"`
	Actor string           `json:"actor,omitempty"`
}

type toolCalled struct {
	CallID     string  `json:"call_id"`
	Tool       string  `json:"tool"`
	Source     string  `json:"source"`
	Actor      string  `json:"actor"`
	AgentID    string  `json:"agent_id"`
	Outcome    string  `json:"outcome"`
	Error      string  `json:"error,omitempty"`
	DurationMS float64 `json:"duration_ms"`
	Tokens     int64   `json:"tokens"`
	TaskID     string  `json:"task_id,omitempty"`
	ParentID   string  `json:"parent_id,omitempty"`
	TraceID    string  `json:"trace_id,omitempty"`
}

type upstreamChanged struct {
	ID     string `json:"id"`
	Actor  string `json:"actor,omitempty"`
	Reason string `json:"reason,omitempty"`
	Tools  int    `json:"tools,omitempty"`
}

// The outcomes of a call.
const (
	outcomeSuccess  = "success"
	outcomeError    = "error"
	outcomeRejected = "refused" // the call did not reach the tool
)
