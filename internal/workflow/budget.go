package workflow

import (
	"context"
	"errors"
	"time"

	"comet/internal/errs"
	"comet/internal/tools"
	"comet/internal/usage"
	"comet/internal/workflow/plan"
	"comet/store"
	"comet/store/workflows"
)

// maxBudget is the largest budget of a workflow, in tokens.
const maxBudget = 1_000_000_000_000

// Budget is the budget of a workflow in tokens.
type Budget struct {
	Total    int64 `json:"total" example:"20000"`   // The tokens that the tasks may use.
	Used     int64 `json:"used" example:"1250"`     // The tokens that they have used.
	Reserved int64 `json:"reserved" example:"8750"` // The tokens that are still reserved for them.
} // @name WorkflowBudget

// payment has the charges of the next transaction.
type payment struct {
	bills    []*tools.Bill
	byAgents int64 // tokens that were charged to the agents of tasks
	raised   bool  // whether the budget was raised
	// reservationID and reserved are the reservation after the transaction.
	reservationID string
	reserved      int64
}

// cost returns a function for the tokens that a step needs to begin, nil without a budget.
func (x *execution) cost(ctx context.Context) func(int) int64 {
	if x.row.Budget == 0 {
		return nil
	}
	return func(i int) int64 {
		if s := &x.plan.Steps[i]; s.Type == plan.KindAgent {
			return *s.Budget
		}
		shown, err := x.show(ctx, i)
		if err != nil {
			return 0 // the step fails when it begins
		}
		return tools.EstimateTokens(len(shown.Arguments))
	}
}

// left returns the reserved tokens that the running steps do not need.
func (x *execution) left() int64 {
	left := x.row.Reserved
	for i := range x.steps {
		switch {
		case x.row.Budget == 0 || x.state(i) != plan.Running:
		case x.plan.Steps[i].Type == plan.KindAgent:
			left -= *x.plan.Steps[i].Budget
		default:
			left -= x.costs[i]
		}
	}
	return left
}

// charge adds the tokens of a step that has ended to the next transaction.
func (x *execution) charge(o outcome) {
	if x.row.Budget == 0 {
		return
	}
	if o.bill != nil {
		x.bills = append(x.bills, o.bill)
	}
	if x.plan.Steps[o.position].Type == plan.KindAgent {
		x.byAgents += o.tokens
	}
	if tokens := o.bill.Tokens() + o.tokens; tokens > 0 {
		x.steps[o.position].Tokens += tokens
		x.changed[o.position] = true
		x.row.Used, x.row.Reserved = x.row.Used+tokens, max(0, x.row.Reserved-tokens)
	}
}

// raise sets the budget to the new total of a decision.
func (x *execution) raise(d Decision) error {
	if d.Resolution != ResolutionRaise || d.Budget <= x.row.Used+x.row.Reserved || d.Budget > maxBudget {
		return tools.NewError(errs.InvalidRequest, "INVALID_ARGUMENTS", "the budget of %d tokens is exhausted: set resolution to raise, and budget to the new total, more than %d and at most %d",
			x.row.Budget, x.row.Used+x.row.Reserved, int64(maxBudget))
	}
	x.row.Budget, x.row.Reserved, x.raised = d.Budget, d.Budget-x.row.Used, true
	return nil
}

// payIn charges the bills, raises the reservation, and releases it if the workflow has ended. It must be the last operation of
// a transaction, because the accounts of the ledger are locked last.
func (x *execution) payIn(tx *store.Tx) error {
	if x.row.Budget == 0 {
		return nil
	}
	ended := x.row.State > workflows.Paused
	id, left := x.row.ReservationID, x.row.Reserved
	var facts []usage.FactDraft
	for _, b := range x.bills {
		if err := b.RecordIn(tx); err != nil {
			return err
		}
		facts = append(facts, b.Facts()...)
	}
	if len(facts) > 0 || x.byAgents > 0 {
		var err error
		left, err = x.env.Ledger.DrawIn(tx, x.row.Payer, id, facts, x.byAgents)
		switch {
		case errs.Is(err, errs.NotFound), errs.Is(err, errs.LimitReached): // the tokens are spent
			x.env.opts.Logger.Error("used tokens were not charged", "agent", x.row.Payer, "workflow", x.row.ID, "error", err)
		case err != nil:
			return err
		}
	}
	if x.raised || ended {
		err := x.env.Ledger.ReleaseIn(tx, x.row.Payer, id)
		if left = 0; err != nil && !errs.Is(err, errs.ReservationEnded) && !errs.Is(err, errs.NotFound) {
			return err
		}
	}
	if x.raised && !ended {
		r, err := x.env.Ledger.ReserveIn(tx, x.row.Payer, x.row.Budget-x.row.Used, usage.Lasting)
		if err != nil {
			return err
		}
		id, left = r.ID, r.Tokens
	}
	if x.reservationID, x.reserved = id, left; id != x.row.ReservationID || left != x.row.Reserved { // also if it was ended by others
		return workflows.SetReservation(tx, x.row.ID, id, left)
	}
	return nil
}

// paid updates the state of the budget after a commit.
func (x *execution) paid() {
	if x.row.Budget > 0 {
		x.row.ReservationID, x.row.Reserved = x.reservationID, x.reserved
		x.payment = payment{}
	}
}

// settleBills charges calls that no transaction of the workflow has charged, because the workflow was fenced or the
// engine has stopped. They do not count towards the used tokens of the workflow.
func (r *run) settleBills() {
	for len(r.outcomes) > 0 {
		if o := <-r.outcomes; o.bill != nil {
			r.bills = append(r.bills, o.bill)
		}
	}
	for _, b := range r.bills {
		r.env.Tools.SettleBill(r.env.work, b)
	}
}

// refused returns BUDGET_EXCEEDED if the daily budget of the payer does not cover the budget of a workflow, and other errors
// unchanged. It emits the event of the ledger again, because the transaction with it was rolled back.
func (e *Engine) refused(ctx context.Context, payer string, tokens int64, err error) error {
	if !errs.Is(err, errs.BudgetExceeded) {
		return err
	}
	if emitErr := e.Ledger.Write(ctx, func(tx *store.Tx) error {
		switch _, err := e.Ledger.ReserveIn(tx, payer, tokens, time.Second); {
		case err == nil:
			return errCovered
		case errs.Is(err, errs.BudgetExceeded):
			return nil
		default:
			return err
		}
	}); emitErr != nil && !errors.Is(emitErr, errCovered) {
		e.opts.Logger.Warn("emitting the event of an exhausted budget failed", "agent", payer, "error", emitErr)
	}
	cause := errs.From(err)
	out := tools.NewError(errs.RateLimited, "BUDGET_EXCEEDED", "%s", cause.Detail)
	wait, reserved := cause.Meta["retry_after"]
	if reset, ok := cause.Meta["reset_at"].(time.Time); ok && !reserved {
		wait = int64(reset.Sub(e.Store.Now()).Seconds()) + 1
	}
	return tools.WithDetails(out.With("retry_after", wait), cause.Meta)
}

// errCovered rolls back a test reservation that succeeded.
var errCovered = errors.New("the budget covers it by now")
