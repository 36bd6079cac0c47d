package orchestrator

import (
	"slices"

	"comet/models"
)

// checkOverrun validates Override.Overrun.
func (sub *Submission) checkOverrun(wrong func(at, rule, format string, args ...any)) {
	o := sub.Override.Overrun
	if o == nil {
		return
	}
	if !slices.Contains(OverrunActions(), o.Action) {
		wrong("/overrun/action", "oneof", "overrun.action must be give_up, raise or simplify, not %q", o.Action)
	}
	if o.MaxBudget < 0 || o.MaxBudget > MaxBudget {
		wrong("/overrun/max_budget", "range", "overrun.max_budget must be 1 to %d tokens", int64(MaxBudget))
	}
	if o.Action == OverrunRaise && sub.Budget == nil {
		wrong("/overrun", "conflict", "a task without a budget has none to raise")
	}
	if o.Action == OverrunRaise && o.MaxBudget > 0 && sub.Budget != nil && o.MaxBudget < *sub.Budget {
		wrong("/overrun/max_budget", "min", "overrun.max_budget must not be less than the budget, %d", *sub.Budget)
	}
	if o.MaxBudget != 0 && o.Action != OverrunRaise {
		wrong("/overrun/max_budget", "conflict", "overrun.max_budget is for the action raise")
	}
}

// handleOverrun applies the overrun policy after an attempt that the budget did not cover, and
// reports whether another attempt follows (PROTOCOL_V5 §9.2).
func (op *operation) handleOverrun(t *models.Task, r attemptEnd, p Policy) (again bool, err error) {
	if r.failure != FailureBudget || p.Overrun == nil || t.Attempt > p.Retries {
		return false, nil
	}
	switch p.Overrun.Action {
	case OverrunRaise:
		again = raiseBudget(t, r.needed, p.Overrun.MaxBudget)
	case OverrunSimplify:
		var earlier []models.Attempt
		earlier, err = op.tx.Tasks().EarlierAttempts(t.ID)
		again = countOverruns(earlier) == 0
	}
	if err != nil || !again {
		return false, err
	}
	p.Backoff = nil // waiting does not help
	op.scheduleRetry(t, p, r.failure)
	return true, nil
}

// countOverruns returns the number of attempts that the budget did not cover.
func countOverruns(attempts []models.Attempt) (n int) {
	for _, a := range attempts {
		if Failure(a.ErrorCode) == FailureBudget {
			n++
		}
	}
	return n
}

// WantsSimplerResult reports whether the agent is asked for a simpler result because the budget
// did not cover an earlier attempt.
func WantsSimplerResult(in models.TaskInput, attempts []models.Attempt) (bool, error) {
	o, err := overrideOf(in)
	return o.Overrun != nil && o.Overrun.Action == OverrunSimplify && countOverruns(attempts) > 0, err
}

// raiseBudget raises the budget to what the agent needs plus the tokens used before; if the agent
// does not state a need above the present budget, it doubles the budget. ok is false if that is
// not allowed.
func raiseBudget(t *models.Task, needed, most int64) (ok bool) {
	if t.Budget == nil {
		return false
	}
	want := 2 * *t.Budget
	if needed > *t.Budget-t.Tokens {
		want = t.Tokens + needed
	} else if most != 0 {
		want = min(want, most)
	}
	if want <= *t.Budget || want > MaxBudget || most != 0 && want > most {
		return false
	}
	t.Budget = &want
	return true
}

// OverrunAction is what happens if a worker reports that the budget does not cover a task.
type OverrunAction string

// The actions.
const (
	// OverrunGiveUp fails the task.
	OverrunGiveUp OverrunAction = "give_up"
	// OverrunRaise raises the budget and tries again.
	OverrunRaise OverrunAction = "raise"
	// OverrunSimplify tries once more and asks the worker for a simpler result.
	OverrunSimplify OverrunAction = "simplify"
)

// OverrunActions returns the actions.
func OverrunActions() []OverrunAction {
	return []OverrunAction{OverrunGiveUp, OverrunRaise, OverrunSimplify}
}

// Overrun specifies what happens if the budget does not cover a task.
type Overrun struct {
	Action OverrunAction `json:"action" swaggertype:"string" enums:"give_up,raise,simplify" example:"raise"` // What happens.
	// Upper limit of a raised budget in tokens; absent for none. The budget becomes what the worker
	// requires, or twice as much if the worker does not specify it.
	MaxBudget int64 `json:"max_budget,omitempty" example:"8000"`
} // @name BudgetOverrun
