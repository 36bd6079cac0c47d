package usage

import (
	"time"

	"comet/internal/events"
	"comet/models"
)

// warnPercent is the share of a budget at which its warning is sent (CHE·NU §9).
const warnPercent = 80

// alert is an event that the transaction will write.
type alert struct {
	kind models.EventType
	data BudgetAlert
}

// warn adds the events of an account that takes part in a decision: agent.budget_warning at 80%
// of the budget, agent.budget_exceeded above 100%, each once per day. requested is the
// reservation that is about to be refused, 0 for a charge.
func (b *batch) warn(a *account, requested int64) {
	budget, limited := a.budget()
	if !limited {
		return
	}
	for _, u := range a.uses() {
		if percent(u.used, budget) >= warnPercent && a.WarnedDay < a.Day {
			a.WarnedDay, a.changed = a.Day, true
			b.alert(events.BudgetWarning, a, u, 0)
		}
		if u.used > budget {
			b.exceed(a, u, requested)
		}
	}
}

// exceed adds agent.budget_exceeded, once per day. requested is the refused reservation, 0 if a
// fact exceeded the budget.
func (b *batch) exceed(a *account, u use, requested int64) {
	if a.ExceededDay < a.Day {
		a.ExceededDay, a.changed = a.Day, true
		b.alert(events.BudgetExceeded, a, u, requested)
	}
}

func (b *batch) alert(kind models.EventType, a *account, u use, requested int64) {
	budget, _ := a.budget()
	b.alerts = append(b.alerts, alert{kind, BudgetAlert{
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
