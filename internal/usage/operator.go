package usage

import (
	"context"
	"time"

	"github.com/google/uuid"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/requestid"
	"comet/models"
	"comet/store"
)

const (
	// maxAdditions is how many additional budgets of one agent are active at a time.
	maxAdditions = 100
	// maxAdditionTerm is the longest duration of an additional budget.
	maxAdditionTerm = 366 * day
)

// AddBudget raises an agent's daily budget until the addition expires; if it expires on a later
// day, it is added to each day's budget. The agent's audit log records it with its reason. It
// returns errs.InvalidRequest, also for L0, whose budget is unlimited, errs.LimitReached for the
// 101st active addition, and errs.NotFound.
func (l *Ledger) AddBudget(ctx context.Context, by models.Principal, agentID string, d BudgetAdditionDraft, once *models.Idempotency) (models.BudgetAddition, error) {
	v, now := input.Validate(d), l.store.Now()
	switch {
	case (d.ExpiresAt == nil) == (d.TTLSeconds == nil):
		v.Add(errs.InvalidRequest, "/expires_at", "required", "exactly one of expires_at and ttl_seconds is required")
	case d.TTLSeconds != nil:
		d.ExpiresAt = new(now.Add(time.Duration(*d.TTLSeconds) * time.Second))
	case !d.ExpiresAt.After(now):
		v.Add(errs.InvalidRequest, "/expires_at", "future", "expires_at must be in the future")
	case d.ExpiresAt.After(now.Add(maxAdditionTerm)):
		v.Add(errs.InvalidRequest, "/expires_at", "max", "expires_at must be within the next %d days", maxAdditionTerm/day)
	}
	if err := v.Err(); err != nil {
		return models.BudgetAddition{}, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return models.BudgetAddition{}, err
	}
	out := models.BudgetAddition{
		ID: id.String(), AgentID: agentID, Tokens: *d.Tokens, Reason: *d.Reason,
		ExpiresAt: d.ExpiresAt.UTC().Truncate(time.Microsecond), CreatedBy: by.Name, Active: true,
	}
	err = l.operate(ctx, agentID, once, func(b *batch, a *account) (any, error) {
		if _, limited := a.budget(); !limited {
			return nil, errs.New(errs.InvalidRequest, "the budget of %q is unlimited", agentID)
		}
		list, err := b.tx.Ledger().Additions(agentID, false)
		if err != nil {
			return nil, err
		}
		if len(list) >= maxAdditions {
			return nil, errs.New(errs.LimitReached, "%q already has %d active additional budgets", agentID, len(list))
		}
		out.CreatedAt = b.now
		if err := b.tx.Ledger().InsertAddition(out); err != nil {
			return nil, err
		}
		return out, b.changeExtra(ctx, by, a, models.AuditBudgetAdded, out.Reason)
	})
	return out, err
}

// RemoveBudget ends an additional budget at once, or returns errs.NotFound if it is not active.
func (l *Ledger) RemoveBudget(ctx context.Context, by models.Principal, agentID, id string) error {
	return l.operate(ctx, agentID, nil, func(b *batch, a *account) (any, error) {
		if err := b.tx.Ledger().EndAddition(agentID, id); err != nil {
			return nil, err
		}
		return nil, b.changeExtra(ctx, by, a, models.AuditBudgetRemoved, "")
	})
}

// Budgets returns at most 1,000 additional budgets of an agent, newest first: the active ones, or
// all. It returns errs.NotFound.
func (l *Ledger) Budgets(ctx context.Context, agentID string, all bool) ([]models.BudgetAddition, error) {
	if _, err := l.store.Agents(ctx).Get(agentID); err != nil {
		return nil, err
	}
	return l.store.Ledger(ctx).Additions(agentID, all)
}

// Reset writes off what an agent used today, so that its whole budget except reserved tokens is
// available again; if its budget limits the subtree, the subtree's usage, too. Facts and the sums
// of its ancestors do not change: the tokens were spent. The events of the budget are sent again
// when it is used up again. The
// audit log records the reset with its reason. It returns errs.InvalidRequest and errs.NotFound.
func (l *Ledger) Reset(ctx context.Context, by models.Principal, agentID string, d ResetDraft, once *models.Idempotency) (Balance, error) {
	v := input.Validate(d)
	if err := v.Err(); err != nil {
		return Balance{}, err
	}
	var out Balance
	err := l.operate(ctx, agentID, once, func(b *batch, a *account) (any, error) {
		own, subtree := a.own().used, int64(0)
		if a.countsSubtree() {
			subtree = a.subtree().used
		}
		if out = a.balance(); own == 0 && subtree == 0 {
			return out, nil
		}
		if err := b.tx.Ledger().InsertReset(agentID, a.Day, own, subtree); err != nil {
			return nil, err
		}
		a.Forgiven, a.SubtreeForgiven = a.Forgiven+own, a.SubtreeForgiven+subtree
		a.rearm()
		var changes []models.Change
		if own > 0 {
			changes = append(changes, models.Change{Field: "used_today", From: own, To: 0})
		}
		if subtree > 0 {
			changes = append(changes, models.Change{Field: "subtree_used_today", From: subtree, To: 0})
		}
		out = a.balance()
		return out, b.audit(ctx, by, agentID, models.AuditUsageReset, *d.Reason, changes)
	})
	return out, err
}

// changeExtra sums the additional budgets again and writes an audit record.
func (b *batch) changeExtra(ctx context.Context, by models.Principal, a *account, action models.AuditAction, reason string) error {
	before := a.Extra
	var err error
	if a.Extra, a.ExtraUntil, err = b.tx.Ledger().ActiveAdditions(a.AgentID, b.now); err != nil {
		return err
	}
	if a.changed = true; action == models.AuditBudgetAdded {
		a.rearm()
	}
	return b.audit(ctx, by, a.AgentID, action, reason, []models.Change{{Field: "additional_budget", From: before, To: a.Extra}})
}

// rearm lets the events of a budget be sent again today.
func (a *account) rearm() { a.WarnedDay, a.ExceededDay, a.changed = a.Day-1, a.Day-1, true }

func (b *batch) audit(ctx context.Context, by models.Principal, agentID string, action models.AuditAction, reason string, changes []models.Change) error {
	return b.tx.Agents().Audit(models.AuditEntry{
		AgentID: agentID, Actor: by.Name, ActorID: by.TokenID, Action: action, RequestID: requestid.From(ctx),
		Version: b.spenders[agentID].Version, Changes: changes, Reason: reason,
	})
}

// operate opens a batch for one account for an operator's action.
func (l *Ledger) operate(ctx context.Context, agentID string, once *models.Idempotency, act func(*batch, *account) (any, error)) error {
	ops := []operation{&lockAccount{request{agentID: agentID}}}
	return l.Write(ctx, func(tx *store.Tx) error {
		return tx.Idempotent(once, func() (any, error) {
			b, err := openBatch(tx, ops)
			if err != nil {
				return nil, err
			}
			a, err := b.find(agentID)
			if err != nil {
				return nil, err
			}
			out, err := act(b, a)
			if err != nil {
				return nil, err
			}
			return out, l.save(b)
		})
	})
}

// lockAccount is an operation that only locks and reads the account.
type lockAccount struct{ request }

func (op *lockAccount) decide(*batch) {}
