package api

import (
	"net/http"

	"comet/models"
)

// budgetAdditionList is an agent's additional budgets, newest first.
type budgetAdditionList struct {
	AgentID   string                  `json:"agent_id" example:"finance-personal"`
	Additions []models.BudgetAddition `json:"additions"`
}

// createBudgetAddition gives an agent a temporary additional budget.
//
//	@Summary		Add to an agent's budget for a time
//	@Description	Raises what the agent may use in a day by `tokens`, at once and until `expires_at`. The reason is kept in the audit trail.
//	@ID				createBudgetAddition
//	@Tags			budgets
//	@Accept			json
//	@Produce		json
//	@Security		BearerAuth[admin]
//	@Param			agent_id		path	string						true	"The agent's id"	maxlength(64)	example(finance-personal)
//	@Param			Idempotency-Key	header	string						false	"Makes a repeated request answer as the first one did, for 24 hours"	maxlength(255)
//	@Param			body			body	models.BudgetAdditionDraft	true	"How much, until when, and why"
//	@Success		201	{object}	models.BudgetAddition	"Added"
//	@Header			201	{string}	Location
//	@Header			201	{string}	Idempotency-Replayed
//	@Failure		400	"A field is missing or malformed, the expiry has passed or lies more than 366 days ahead, or the budget is unlimited"
//	@Failure		404	"No such agent"
//	@Failure		409	"The key was used with another request"
//	@Failure		422	"100 additional budgets count already"
//	@Router			/api/v1/agents/{agent_id}/budget/additions [post]
func (s *Server) createBudgetAddition(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "agent_id")
	if err != nil {
		return err
	}
	var d models.BudgetAdditionDraft
	body, err := s.decode(w, r, &d)
	if err != nil {
		return err
	}
	once, err := s.readIdempotencyKey(r, body, s.renderAddition)
	if err != nil {
		return err
	}
	added, err := s.usage.AddBudget(r.Context(), caller(r), id, d, once)
	if err != nil || s.writeReplay(w, once) {
		return err
	}
	answer, err := s.renderAddition(added)
	if err != nil {
		return err
	}
	s.writeStoredResponse(w, answer)
	return nil
}

func (s *Server) renderAddition(result any) (models.StoredResponse, error) {
	added := result.(models.BudgetAddition)
	body, err := s.encode(added)
	return models.StoredResponse{
		Status: http.StatusCreated, Body: body,
		Header: map[string]string{"Location": agentURL(added.AgentID) + "/budget/additions/" + added.ID},
	}, err
}

// listBudgetAdditions lists an agent's additional budgets.
//
//	@Summary		List an agent's additional budgets
//	@Description	The newest first: those that count now, or with `include_inactive` also those that have expired or were taken back.
//	@ID				listBudgetAdditions
//	@Tags			budgets
//	@Produce		json
//	@Security		BearerAuth[agents:read]
//	@Param			agent_id		path	string	true	"The agent's id"	maxlength(64)	example(finance-personal)
//	@Param			include_inactive		query	bool	false	"Also those that no longer count"	default(false)
//	@Param			If-None-Match	header	string	false	"The ETag you have"
//	@Success		200	{object}	budgetAdditionList	"The additional budgets"
//	@Header			200	{string}	ETag
//	@Success		304	"Nothing changed"
//	@Failure		400	"A parameter is unknown or out of range"
//	@Failure		404	"No such agent"
//	@Router			/api/v1/agents/{agent_id}/budget/additions [get]
func (s *Server) listBudgetAdditions(w http.ResponseWriter, r *http.Request) error {
	q := newQuery(r, "include_inactive")
	id, err := decodeID(r, "agent_id")
	if err != nil {
		return err
	}
	all := q.Bool("include_inactive")
	if err := q.Err(); err != nil {
		return err
	}
	found, err := s.usage.Budgets(r.Context(), id, all)
	if err != nil {
		return err
	}
	return s.writeJSON(w, r, http.StatusOK, budgetAdditionList{id, found})
}

// deleteBudgetAddition takes an additional budget back.
//
//	@Summary		Take an additional budget back
//	@Description	It counts no longer. What was used of it stays used.
//	@ID				deleteBudgetAddition
//	@Tags			budgets
//	@Security		BearerAuth[admin]
//	@Param			agent_id	path	string	true	"The agent's id"	maxlength(64)	example(finance-personal)
//	@Param			addition_id	path	string	true	"The addition's id"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a8057)
//	@Success		204	"Taken back"
//	@Failure		404	"No such agent, or no addition to its budget that counts"
//	@Router			/api/v1/agents/{agent_id}/budget/additions/{addition_id} [delete]
func (s *Server) deleteBudgetAddition(w http.ResponseWriter, r *http.Request) error {
	agent, id, err := pathIDs(r, "addition_id")
	if err != nil {
		return err
	}
	if err := rejectBody(r); err != nil {
		return err
	}
	if err := s.usage.RemoveBudget(r.Context(), caller(r), agent, id); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// resetUsage writes off what an agent used today.
//
//	@Summary		Reset an agent's usage of today
//	@Description	Writes off what the agent used today, so that its budget begins anew before midnight; where the budget is held against the subtree, what the subtree used too. The facts stay, and so does what the agents above count. What is reserved stays reserved. The reason is kept in the audit trail.
//	@ID				resetUsage
//	@Tags			budgets
//	@Accept			json
//	@Produce		json
//	@Security		BearerAuth[admin]
//	@Param			agent_id		path	string				true	"The agent's id"	maxlength(64)	example(finance-personal)
//	@Param			Idempotency-Key	header	string				false	"Makes a repeated request answer as the first one did, for 24 hours"	maxlength(255)
//	@Param			body			body	models.UsageReset	true	"Why"
//	@Success		200	{object}	models.Balance	"What the agent has left after it"
//	@Header			200	{string}	Idempotency-Replayed
//	@Failure		400	"The reason is missing or malformed"
//	@Failure		404	"No such agent"
//	@Failure		409	"The key was used with another request"
//	@Router			/api/v1/agents/{agent_id}/usage/reset [post]
func (s *Server) resetUsage(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "agent_id")
	if err != nil {
		return err
	}
	var d models.UsageReset
	body, err := s.decode(w, r, &d)
	if err != nil {
		return err
	}
	once, err := s.readIdempotencyKey(r, body, s.renderBalance)
	if err != nil {
		return err
	}
	left, err := s.usage.Reset(r.Context(), caller(r), id, d, once)
	if err != nil || s.writeReplay(w, once) {
		return err
	}
	answer, err := s.renderBalance(left)
	if err != nil {
		return err
	}
	s.writeStoredResponse(w, answer)
	return nil
}

func (s *Server) renderBalance(result any) (models.StoredResponse, error) {
	body, err := s.encode(result.(models.Balance))
	return models.StoredResponse{Status: http.StatusOK, Body: body}, err
}

// verifyLedger compares the ledger's sums with its facts.
//
//	@Summary		Verify the ledger
//	@Description	Computes every sum of the ledger anew from the facts and reservations under it, as they stand at one moment, and names each that is not what they add up to. The answer is 200 whether or not there are differences; `total_differences` tells.
//	@ID				verifyLedger
//	@Tags			usage
//	@Produce		json
//	@Security		BearerAuth[admin]
//	@Success		200	{object}	models.Verification	"What was found"
//	@Header			200	{string}	Cache-Control
//	@Router			/api/v1/ledger/verify [get]
func (s *Server) verifyLedger(w http.ResponseWriter, r *http.Request) error {
	if err := newQuery(r).Err(); err != nil {
		return err
	}
	v, err := s.usage.Verify(r.Context())
	if err != nil {
		return err
	}
	body, err := s.encode(v)
	if err != nil {
		return err
	}
	// No two answers are the same, so it has no ETag.
	s.writeStoredResponse(w, models.StoredResponse{Status: http.StatusOK, Header: map[string]string{"Cache-Control": "no-store"}, Body: body})
	return nil
}
