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
	if !slices.Contains(models.OverrunActions(), o.Action) {
		wrong("/overrun/action", "oneof", "overrun.action must be give_up, raise or simplify, not %q", o.Action)
	}
	if o.MaxBudget < 0 || o.MaxBudget > models.MaxTokens {
		wrong("/overrun/max_budget", "range", "overrun.max_budget must be 1 to %d tokens", int64(models.MaxTokens))
	}
	if o.Action == models.OverrunRaise && sub.Budget == nil {
		wrong("/overrun", "conflict", "a task without a budget has none to raise")
	}
	if o.Action == models.OverrunRaise && o.MaxBudget > 0 && sub.Budget != nil && o.MaxBudget < *sub.Budget {
		wrong("/overrun/max_budget", "min", "overrun.max_budget must not be less than the budget, %d", *sub.Budget)
	}
	if o.MaxBudget != 0 && o.Action != models.OverrunRaise {
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
	case models.OverrunRaise:
		again, err = op.raiseBudget(t, r.needed, p.Overrun.MaxBudget)
	case models.OverrunSimplify:
		var all []models.Attempt
		all, err = op.tx.Attempts(t.ID)
		again = countOverruns(all) == 1
	}
	if err != nil || !again {
		return false, err
	}
	p.Backoff = nil // waiting does not help
	return true, op.scheduleRetry(t, p, r.failure)
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
	return o.Overrun != nil && o.Overrun.Action == models.OverrunSimplify && countOverruns(attempts) > 0, err
}

// raiseBudget raises the budget to what the agent needs plus the tokens used before; if the agent
// does not state a need above the present budget, it doubles the budget. ok is false if that is
// not allowed.
func (op *operation) raiseBudget(t *models.Task, needed, most int64) (ok bool, err error) {
	if t.Budget == nil {
		return false, nil
	}
	want := 2 * *t.Budget
	if needed > *t.Budget-t.Tokens {
		want = t.Tokens + needed
	} else if most != 0 {
		want = min(want, most)
	}
	if want <= *t.Budget || want > models.MaxTokens || most != 0 && want > most {
		return false, nil
	}
	t.Budget = &want
	return true, op.tx.SetBudget(t.ID, want)
}
