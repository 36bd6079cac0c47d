package api

import (
	"net/http"
	"time"

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

// reservationList is one page of an agent's reservations, newest first.
type reservationList struct {
	AgentID      string               `json:"agent_id" example:"finance-personal"`
	Reservations []models.Reservation `json:"reservations"`                                // The reservations on the page.
	NextCursor   string               `json:"next_cursor,omitempty" example:"MDE4OTBhNWQ"` // Absent on the last page.
}

// reservationSettled is a settled reservation and the agent's balance after it.
type reservationSettled struct {
	models.Reservation
	Late     bool          `json:"late" example:"false"`     // The reservation had expired; its usage was recorded nevertheless.
	Replayed bool          `json:"replayed" example:"false"` // The reservation had been settled with the same body before.
	Balance  usage.Balance `json:"balance"`
}

// budgetProblem is the error of a reservation that a budget does not cover. A rate limit has the
// same status without the members below.
type budgetProblem struct {
	Problem
	// The agent whose budget is exceeded: the agent itself, or one above it with the budget scope
	// subtree.
	AgentID   string             `json:"agent_id,omitempty" example:"finance-personal"`
	Scope     models.BudgetScope `json:"scope,omitempty" example:"own" enums:"own,subtree"` // The scope of the exceeded budget.
	Budget    int64              `json:"budget,omitempty" example:"25000"`                  // Tokens per UTC day.
	Used      int64              `json:"used,omitempty" example:"20250"`                    // Tokens used today.
	Reserved  int64              `json:"reserved,omitempty" example:"4000"`                 // Tokens that are reserved.
	Remaining int64              `json:"remaining,omitempty" example:"750"`                 // Tokens that remain.
	Requested int64              `json:"requested,omitempty" example:"1500"`                // Tokens of the request.
	ResetAt   time.Time          `json:"reset_at,omitzero" example:"2026-01-11T00:00:00Z"`  // The next midnight UTC, when the budget is renewed.
	// In how many seconds to repeat the request; only with the code budget-reserved.
	RetryAfter int `json:"retry_after,omitempty" example:"5"`
}

// reservationProblem is the error of an operation on a reservation that has ended in another way.
type reservationProblem struct {
	Problem
	// The state of the reservation; absent if the error is about the Idempotency-Key.
	State models.ReservationState `json:"state,omitempty" example:"released" enums:"settled,released,expired"`
}

// createReservation reserves tokens.
//
//	@Summary		Reserve tokens
//	@Description	Reserves tokens of the agent's budget, and of every budget above it with the scope `subtree`, until the reservation is settled, released or expires. Concurrent requests never reserve more than a budget covers. If a budget does not cover the request, the response is 403 with the problem type `budget-exceeded` and `reset_at`, when the budget is renewed; `detail` says if the amount is larger than the whole daily budget. If the tokens are missing only because other reservations hold them, it is 429 with the problem type `budget-reserved` and `Retry-After`.
//	@Param			body			body	usage.ReservationDraft	true	"The number of tokens and the lifetime of the reservation"
//	@Success		201	{object}	models.Reservation	"The reservation"
//	@Failure		409	"The agent is deactivated, or the Idempotency-Key was used with a different request"
//	@Failure		403	{object}	budgetProblem	"A budget does not cover the tokens: `agent_id` and `scope` identify the budget, `budget`, `used`, `reserved`, `remaining`, `requested` and `reset_at` describe it. Or the token lacks the scope, is bound to another agent, or its agent is inactive"
//	@Failure		429	{object}	budgetProblem	"Only tokens that other reservations hold are missing; the members are those of 403. Or the token exceeds its rate limit"
//	@Header			429	{integer}	Retry-After
//	@Header			429	{integer}	RateLimit-Limit
//	@Header			429	{integer}	RateLimit-Remaining
//	@Header			429	{integer}	RateLimit-Reset
func (s *Server) createReservation(r request, d usage.ReservationDraft, once *models.Idempotency) (models.Reservation, error) {
	return s.core.Usage.Reserve(r.Context(), r.id, d, once)
}

func reservationReply(held models.Reservation) reply {
	return reply{status: http.StatusCreated, location: agentURL(held.AgentID) + "/reservations/" + held.ID, body: held}
}

// listReservations lists an agent's reservations.
//
//	@Summary		List an agent's reservations
//	@Description	Returns the agent's reservations, newest first. Ended reservations are included until they are deleted at the end of their retention.
//	@Param			state			query	string	false	"Only reservations in this state"	enums(held,settled,released,expired)	example(held)
//	@Success		200	{object}	reservationList	"A page of results"
func (s *Server) listReservations(r request) (any, error) {
	q := newQuery(r.Request, "state", "limit", "cursor")
	state := q.Enum("state", "", string(models.ReservationHeld), string(models.ReservationSettled),
		string(models.ReservationReleased), string(models.ReservationExpired))
	limit, before := q.pageLimit(), q.idCursor()
	if err := q.Err(); err != nil {
		return nil, err
	}
	found, err := s.core.Usage.Reservations(r.Context(), r.id, models.ReservationState(state), before, limit+1)
	found, next := cutPage(found, limit, func(r models.Reservation) string { return r.ID })
	return reply{next: next, body: reservationList{r.id, found, next}}, err
}

// getReservation returns one reservation.
//
//	@Summary		Get a reservation
//	@Description	Returns one reservation of an agent.
//	@Success		200	{object}	models.Reservation	"The reservation"
func (s *Server) getReservation(r request) (any, error) {
	return s.core.Usage.Reservation(r.Context(), r.id, r.subID)
}

// settleReservation turns a reservation into usage.
//
//	@Summary		Settle a reservation
//	@Description	Records the tokens that were used, which may be fewer or more than were reserved, and ends the reservation. `tokens: 0` records nothing. An expired reservation can be settled. A repetition with the same body returns the first result, one with another body is an error.
//	@Param			body			body	usage.Settlement	true	"The tokens that were used"
//	@Success		200	{object}	reservationSettled	"The settled reservation and the agent's balance"
//	@Failure		409	{object}	reservationProblem	"The reservation was released or settled with another body, or the Idempotency-Key was used with a different request"
//	@Failure		422	"The agent has reached the maximum usage that can be recorded per day"
func (s *Server) settleReservation(r request, d usage.Settlement, once *models.Idempotency) (usage.Settled, error) {
	return s.core.Usage.Settle(r.Context(), r.id, r.subID, d, once)
}

func settledReply(settled usage.Settled) reply {
	return reply{body: reservationSettled{settled.Reservation, settled.Late, settled.Replayed, settled.Balance}}
}

// releaseReservation releases the tokens of a reservation.
//
//	@Summary		Release a reservation
//	@Description	Makes the reserved tokens available again. Releasing a reservation that was released or has expired has no effect.
//	@Success		204	"Released"
//	@Failure		409	{object}	reservationProblem	"The reservation was settled"
func (s *Server) releaseReservation(r request) error {
	return s.core.Usage.Release(r.Context(), r.id, r.subID)
}
