package api

import (
	"net/http"

	"comet/internal/usage"
	"comet/models"
)

// budgetAdditionList contains an agent's temporary budgets, newest first.
type budgetAdditionList struct {
	AgentID   string                  `json:"agent_id" example:"finance-personal"`
	Additions []models.BudgetAddition `json:"additions"` // The temporary budgets.
}

// createBudgetAddition adds a temporary budget to an agent's.
//
//	@Summary		Create a temporary budget
//	@Description	Raises the number of tokens that the agent may use per day by `tokens`, from now until `expires_at`, or for `ttl_seconds`. The reason is recorded in the audit log.
//	@Param			body			body	usage.BudgetAdditionDraft	true	"The number of tokens, the expiry and the reason"
//	@Success		201	{object}	models.BudgetAddition	"The temporary budget"
//	@Failure		400	"A field is missing or malformed, the expiry has passed or is more than 366 days ahead, or the agent's budget is unlimited"
//	@Failure		422	"The agent already has 100 temporary budgets"
func (s *Server) createBudgetAddition(r request, d usage.BudgetAdditionDraft, once *models.Idempotency) (models.BudgetAddition, error) {
	return s.core.Usage.AddBudget(r.Context(), r.caller, r.id, d, once)
}

func additionReply(added models.BudgetAddition) reply {
	return reply{status: http.StatusCreated, location: agentURL(added.AgentID) + "/budget/additions/" + added.ID, body: added}
}

// listBudgetAdditions lists an agent's temporary budgets.
//
//	@Summary		List an agent's temporary budgets
//	@Description	Returns the temporary budgets that are in effect, newest first; with `include_inactive` also those that have expired or were removed.
//	@Param			include_inactive		query	bool	false	"Also return temporary budgets that are not in effect"	default(false)
//	@Success		200	{object}	budgetAdditionList	"The temporary budgets"
func (s *Server) listBudgetAdditions(r request) (any, error) {
	q := newQuery(r.Request, "include_inactive")
	all := q.Bool("include_inactive")
	if err := q.Err(); err != nil {
		return nil, err
	}
	found, err := s.core.Usage.Budgets(r.Context(), r.id, all)
	return budgetAdditionList{r.id, found}, err
}

// deleteBudgetAddition removes a temporary budget.
//
//	@Summary		Remove a temporary budget
//	@Description	The temporary budget ends at once. Tokens that were used from it stay recorded.
//	@Success		204	"Removed"
//	@Failure		404	"The agent does not exist, or has no such temporary budget in effect"
func (s *Server) deleteBudgetAddition(r request) error {
	return s.core.Usage.RemoveBudget(r.Context(), r.caller, r.id, r.subID)
}

// resetUsage resets the usage of the current day.
//
//	@Summary		Reset an agent's usage of the day
//	@Description	Sets the usage that counts against the agent's budget today to zero; with `budget_scope: subtree` also the usage of the subtree. The recorded facts, the usage of agents above, and reservations do not change. The reason is recorded in the audit log.
//	@Param			body			body	usage.ResetDraft	true	"The reason for the reset"
//	@Success		200	{object}	usage.Balance	"The agent's balance after the reset"
//	@Failure		400	"The reason is missing or malformed"
func (s *Server) resetUsage(r request, d usage.ResetDraft, once *models.Idempotency) (usage.Balance, error) {
	return s.core.Usage.Reset(r.Context(), r.caller, r.id, d, once)
}

// verifyLedger compares the ledger's sums with its facts.
//
//	@Summary		Verify the ledger
//	@Description	Recomputes all sums of the ledger from the facts and reservations of one moment, compares tool calls with their charges and events with their deliveries, and returns what differs, with the correction that `POST /api/v1/ledger/repair` would make. The status is 200 with and without differences; check `total_differences`.
//	@Success		200	{object}	ledgercheck.Verification	"The result of the comparison"
//	@Header			200	{string}	Cache-Control
func (s *Server) verifyLedger(r request) (any, error) {
	v, err := s.core.Usage.Verify(r.Context())
	return reply{noStore: true, body: v}, err
}

// repairLedger corrects the sums of the ledger.
//
//	@Summary		Repair the ledger
//	@Description	Corrects the differences that `GET /api/v1/ledger/verify` finds and that have a correction, for up to 1,000 agents, each in one transaction. Recorded facts do not change; a missing fact of a settlement or of tool calls is recorded with its time. Each correction is recorded in the agent's audit log and sent as `ledger.corrected`. The response contains the corrections and what still differs.
//	@Success		200	{object}	ledgercheck.Verification	"The corrections and the result of the comparison after them"
func (s *Server) repairLedger(r request, _ struct{}) (any, error) {
	return s.core.Usage.Repair(r.Context(), r.caller)
}
