package usage

import (
	"time"

	"comet/models"
	"comet/store"
)

// account is a locked account with the agent it belongs to.
type account struct {
	store.Account
	spender store.Spender
	changed bool
}

func (a *account) countsSubtree() bool { return a.spender.BudgetScope == models.ScopeSubtree }

// budget returns what the agent may use today; limited is false for L0.
func (a *account) budget() (tokens int64, limited bool) {
	if a.spender.TokenBudget == nil {
		return 0, false
	}
	return *a.spender.TokenBudget + a.Extra, true
}

// extraEnded reports whether an additional budget that is part of the account has expired. An
// expired addition does not return when the clock goes back.
func (a *account) extraEnded(now time.Time) bool { return a.Extra > 0 && !now.Before(a.ExtraUntil) }

// use is a sum that is compared with a budget.
type use struct {
	scope          models.BudgetScope
	used, reserved int64
}

func (a *account) own() use { return use{models.ScopeOwn, a.Used - a.Forgiven, a.Reserved} }

func (a *account) subtree() use {
	return use{models.ScopeSubtree, a.SubtreeUsed - a.SubtreeForgiven, a.SubtreeReserved}
}

// uses returns all sums that the budget limits.
func (a *account) uses() []use {
	if a.countsSubtree() {
		return []use{a.own(), a.subtree()}
	}
	return []use{a.own()}
}

// covers reports whether the budget covers more tokens.
func (a *account) covers(u use, tokens int64) bool {
	budget, limited := a.budget()
	return !limited || budget-u.used-u.reserved >= tokens
}

func remaining(budget int64, u use) int64 { return max(0, budget-u.used-u.reserved) }

func (a *account) balance() Balance {
	u := a.own()
	out := Balance{UsedToday: u.used, Reserved: u.reserved, ResetAt: startOf(a.Day + 1)}
	if budget, limited := a.budget(); limited {
		out.Budget, out.Remaining = &budget, new(remaining(budget, u))
	}
	return out
}

// Change is the state of an account after a commit, the data of usage.changed. All sums are of the current day.
type Change struct {
	AgentID          string    `json:"agent_id"`
	UsedToday        int64     `json:"used_today"`                   // without what a reset wrote off
	SubtreeUsedToday *int64    `json:"subtree_used_today,omitempty"` // only if the budget limits the subtree
	Reserved         int64     `json:"reserved"`
	TokenBudget      *int64    `json:"token_budget"` // null is unlimited
	AdditionalBudget int64     `json:"additional_budget"`
	Version          int64     `json:"version"` // increases with each change of the account
	At               time.Time `json:"-"`
}

// save writes a batch, and reports its changes after the commit.
func (l *Ledger) save(b *batch) error {
	if err := b.save(); err != nil || l.onChange == nil {
		return err
	}
	var changes []Change
	for _, a := range b.accounts {
		if !a.changed {
			continue
		}
		c := Change{AgentID: a.AgentID, UsedToday: a.own().used, Reserved: a.Reserved, TokenBudget: a.spender.TokenBudget, AdditionalBudget: a.Extra, Version: a.Version, At: b.now}
		if a.countsSubtree() {
			c.SubtreeUsedToday = new(a.SubtreeUsed)
		}
		changes = append(changes, c)
	}
	b.tx.After(func() { l.onChange(changes) })
	return nil
}
