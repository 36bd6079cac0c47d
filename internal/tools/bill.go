package tools

import (
	"context"
	"sync"
	"sync/atomic"

	"comet/internal/errs"
	"comet/internal/usage"
	"comet/models"
	"comet/store"
)

// Bill collects calls whose records and charges the caller stores in its own transaction, with RecordIn and Facts.
// They are stored if and only if the other changes of that transaction are. If it is not committed, the
// caller must call Service.SettleBill.
type Bill struct {
	allowance *Allowance

	mu    sync.Mutex
	calls []models.ToolCall
}

// Allowance limits the total tokens of the calls of several bills. When it is used up, code cannot call further tools; direct
// calls are not limited.
type Allowance struct{ left atomic.Int64 }

// NewAllowance returns an allowance of tokens.
func NewAllowance(tokens int64) *Allowance {
	a := &Allowance{}
	a.left.Store(tokens)
	return a
}

// Use subtracts tokens; negative tokens are added.
func (a *Allowance) Use(tokens int64) { a.left.Add(-tokens) }

// NewBill returns an empty bill.
func (a *Allowance) NewBill() *Bill { return &Bill{allowance: a} }

// admit holds tokens for a call.
func (b *Bill) admit(source string, tokens int64) error {
	if left := b.allowance.left.Add(-tokens); left < 0 && source == SourceCode {
		b.allowance.Use(-tokens)
		return errs.New(errs.BudgetExceeded, "the budget of the workflow does not cover %d tokens: %d are left", tokens, max(0, left+tokens))
	}
	return nil
}

// add adds a call that has ended, for which admit has held tokens.
func (b *Bill) add(c models.ToolCall, held int64) {
	b.allowance.Use(c.Tokens - held)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls = append(b.calls, c)
}

// Tokens returns the cost of the calls.
func (b *Bill) Tokens() (n int64) {
	if b == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.calls {
		n += c.Tokens
	}
	return n
}

// Facts returns the charge of the calls, none if they are free. The charge counts once, even if it is recorded repeatedly.
func (b *Bill) Facts() []usage.FactDraft {
	if n := b.Tokens(); n > 0 {
		return []usage.FactDraft{{Tokens: &n, FactLabels: models.FactLabels{Kind: factKind}, RequestID: &b.calls[0].ID}}
	}
	return nil
}

// RecordIn stores the records and the events of the calls.
func (b *Bill) RecordIn(tx *store.Tx) error {
	if b == nil || len(b.calls) == 0 {
		return nil
	}
	entries := make([]*auditEntry, len(b.calls))
	for i, c := range b.calls {
		entries[i] = &auditEntry{call: &callRecord{ToolCall: c}}
	}
	return writeRows(tx, entries)
}

// SettleBill stores the records and the charges of a bill unless its caller has stored them, because the outcome of
// the caller's commit may be unknown.
func (svc *Service) SettleBill(ctx context.Context, b *Bill) {
	if b == nil || len(b.calls) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	payer := b.calls[0].AgentID
	if err := svc.auditLog.ledger.Write(ctx, func(tx *store.Tx) error {
		recorded, err := tx.Tools().Calls(store.ToolCallQuery{ID: b.calls[0].ID, Limit: 1})
		if err != nil || len(recorded) > 0 {
			return err
		}
		err = b.RecordIn(tx)
		if facts := b.Facts(); err == nil && len(facts) > 0 {
			_, err = svc.auditLog.ledger.DrawIn(tx, payer, "", facts, 0)
		}
		return err
	}); err != nil {
		svc.log.Error("tool calls of a workflow are not charged and missing from the audit log", "agent", payer, "calls", len(b.calls), "tokens", b.Tokens(), "error", err)
	}
}

// EstimateTokens returns the approximate minimum cost of a call with arguments of n bytes, in tokens.
func EstimateTokens(bytes int) int64 { return estimateTokens(bytes) }
