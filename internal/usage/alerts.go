package usage

import (
	"time"

	"comet/models"
)

// warnPercent is how much of a budget is used when its warning fires (CHE·NU §9).
const warnPercent = 80

// alert is an event that the transaction will write.
type alert struct {
	kind models.EventType
	data models.BudgetAlert
}

// warn notes the events of an account that is decided on: agent.budget_warning at 80 %
// of the budget, agent.budget_exceeded above all of it, each once a day. requested is
// the reservation that is about to be refused then, 0 for a charge.
func (b *books) warn(a *account, requested int64) {
	budget, limited := a.budget()
	if !limited {
		return
	}
	for _, u := range a.uses() {
		if percent(u.used, budget) >= warnPercent && a.WarnedDay < a.Day {
			a.WarnedDay, a.changed = a.Day, true
			b.alert(models.EventBudgetWarning, a, u, 0)
		}
		if u.used > budget {
			b.exceed(a, u, requested)
		}
	}
}

// exceed notes agent.budget_exceeded, once a day. requested is the reservation that
// was refused, 0 where a fact passed the budget.
func (b *books) exceed(a *account, u use, requested int64) {
	if a.ExceededDay < a.Day {
		a.ExceededDay, a.changed = a.Day, true
		b.alert(models.EventBudgetExceeded, a, u, requested)
	}
}

func (b *books) alert(kind models.EventType, a *account, u use, requested int64) {
	budget, _ := a.budget()
	b.alerts = append(b.alerts, alert{kind, models.BudgetAlert{
		AgentID: a.AgentID, Day: startOf(a.Day).Format(time.DateOnly), Budget: budget, Scope: u.scope,
		Used: u.used, Reserved: u.reserved, Remaining: remaining(budget, u), Percent: percent(u.used, budget),
		Requested: requested, ResetAt: startOf(a.Day + 1),
	}})
}

// percent rounds down; a budget is at least 1,000 tokens.
func percent(used, budget int64) int64 {
	if budget <= 0 {
		return 0
	}
	return used/budget*100 + used%budget*100/budget
}

// tell writes the events, after the accounts they are about.
func (b *books) tell() error {
	for _, a := range b.alerts {
		if err := b.tx.Emit(a.kind, a.data.AgentID, a.data); err != nil {
			return err
		}
	}
	return nil
}
