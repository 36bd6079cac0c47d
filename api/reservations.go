package api

import (
	"net/http"
	"time"

	"comet/models"
)

// reservationList is one page of an agent's reservations, newest first.
type reservationList struct {
	AgentID      string               `json:"agent_id" example:"finance-personal"`
	Reservations []models.Reservation `json:"reservations"`
	NextCursor   string               `json:"next_cursor,omitempty" example:"MDE4OTBhNWQ"` // Absent on the last page.
}

// reservationSettled is a settled reservation and what the agent has left after it.
type reservationSettled struct {
	models.Reservation
	Late     bool           `json:"late" example:"false"`     // It had expired before; what was used counts all the same.
	Replayed bool           `json:"replayed" example:"false"` // It was settled before with the same body.
	Balance  models.Balance `json:"balance"`
}

// budgetProblem describes the refusal of a reservation. A token that asks too often
// gets the same status without the members below.
type budgetProblem struct {
	Problem
	// AgentID is whose budget does not cover it: the agent's own, or that of one
	// above it which is held against its subtree.
	AgentID   string             `json:"agent_id,omitempty" example:"finance-personal"`
	Scope     models.BudgetScope `json:"scope,omitempty" example:"own" enums:"own,subtree"`
	Budget    int64              `json:"budget,omitempty" example:"25000"`
	Used      int64              `json:"used,omitempty" example:"20250"`
	Reserved  int64              `json:"reserved,omitempty" example:"4000"`
	Remaining int64              `json:"remaining,omitempty" example:"750"`
	Requested int64              `json:"requested,omitempty" example:"1500"`
	ResetAt   time.Time          `json:"reset_at,omitzero" example:"2026-01-11T00:00:00Z"`
}

// reservationProblem describes the refusal to end a reservation that ended otherwise.
type reservationProblem struct {
	Problem
	// State is how it ended; absent where the Idempotency-Key is what is wrong.
	State models.ReservationState `json:"state,omitempty" example:"released" enums:"settled,released,expired"`
}

// createReservation asks for permission to spend.
//
//	@Summary		Reserve tokens
//	@Description	Holds tokens of the agent's budget, and of every budget above it that is held against its subtree, until the reservation is settled, released or expires. Nobody is granted more than the budgets cover, whoever asks at the same time. A refusal is 429 with the problem type `budget-exceeded`; `Retry-After` counts to the midnight at which the budget begins anew.
//	@ID				createReservation
//	@Tags			usage
//	@Accept			json
//	@Produce		json
//	@Security		BearerAuth[usage:write]
//	@Param			agent_id		path	string					true	"The agent's id"	maxlength(64)	example(finance-personal)
//	@Param			Idempotency-Key	header	string					false	"Makes a repeated request answer as the first one did, for 24 hours"	maxlength(255)
//	@Param			body			body	models.ReservationDraft	true	"How much, and for how long"
//	@Success		201	{object}	models.Reservation	"Held"
//	@Header			201	{string}	Location
//	@Header			201	{string}	Idempotency-Replayed
//	@Failure		400	"A field is missing or malformed"
//	@Failure		403	"The token lacks the scope, its agent is inactive, or it is bound to another agent"
//	@Failure		404	"No such agent"
//	@Failure		409	"The agent is deactivated, or the key was used with another request"
//	@Failure		429	{object}	budgetProblem	"A budget does not cover it: `agent_id` and `scope` name the budget, `budget`, `used`, `reserved`, `remaining`, `requested` and `reset_at` tell why. Or the token asks too often"
//	@Header			429	{integer}	Retry-After
//	@Header			429	{integer}	RateLimit-Limit
//	@Header			429	{integer}	RateLimit-Remaining
//	@Header			429	{integer}	RateLimit-Reset
//	@Router			/api/v1/agents/{agent_id}/reservations [post]
func (s *Server) createReservation(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "agent_id")
	if err != nil {
		return err
	}
	var d models.ReservationDraft
	body, err := s.decode(w, r, &d)
	if err != nil {
		return err
	}
	once, err := s.readIdempotencyKey(r, body, s.renderReservation)
	if err != nil {
		return err
	}
	held, err := s.usage.Reserve(r.Context(), caller(r), id, d, once)
	if err != nil || s.writeReplay(w, once) {
		return err
	}
	answer, err := s.renderReservation(held)
	if err != nil {
		return err
	}
	s.writeStoredResponse(w, answer)
	return nil
}

func (s *Server) renderReservation(result any) (models.StoredResponse, error) {
	held := result.(models.Reservation)
	body, err := s.encode(held)
	return models.StoredResponse{
		Status: http.StatusCreated, Body: body,
		Header: map[string]string{"Location": agentURL(held.AgentID) + "/reservations/" + held.ID},
	}, err
}

// listReservations lists an agent's reservations.
//
//	@Summary		List an agent's reservations
//	@Description	The newest first, ended ones too for as long as they are kept.
//	@ID				listReservations
//	@Tags			usage
//	@Produce		json
//	@Security		BearerAuth[agents:read]
//	@Param			agent_id		path	string	true	"The agent's id"	maxlength(64)	example(finance-personal)
//	@Param			state			query	string	false	"Only reservations in this state"	enums(held,settled,released,expired)	example(held)
//	@Param			limit			query	int		false	"Size of a page"	minimum(1)	maximum(1000)	default(100)
//	@Param			cursor			query	string	false	"Where the page begins, as given by the page before"	maxlength(100)
//	@Param			If-None-Match	header	string	false	"The ETag you have"
//	@Success		200	{object}	reservationList	"One page"
//	@Header			200	{string}	ETag
//	@Header			200	{string}	Link
//	@Success		304	"Nothing changed"
//	@Failure		400	"A parameter is unknown or out of range"
//	@Failure		404	"No such agent"
//	@Router			/api/v1/agents/{agent_id}/reservations [get]
func (s *Server) listReservations(w http.ResponseWriter, r *http.Request) error {
	q := newQuery(r, "state", "limit", "cursor")
	id, err := decodeID(r, "agent_id")
	if err != nil {
		return err
	}
	state := q.Enum("state", "", string(models.ReservationHeld), string(models.ReservationSettled),
		string(models.ReservationReleased), string(models.ReservationExpired))
	limit, before := q.Int("limit", 1, maxLimit, defaultLimit), q.idCursor()
	if err := q.Err(); err != nil {
		return err
	}
	found, err := s.usage.Reservations(r.Context(), id, models.ReservationState(state), before, limit+1)
	if err != nil {
		return err
	}
	page := reservationList{AgentID: id, Reservations: found}
	if len(found) > limit {
		page.Reservations = found[:limit]
		page.NextCursor = encodeCursor(found[limit-1].ID)
		w.Header().Set("Link", links(r, page.NextCursor))
	}
	return s.writeJSON(w, r, http.StatusOK, page)
}

// getReservation returns one reservation.
//
//	@Summary		Get a reservation
//	@Description	Where the reservation stands.
//	@ID				getReservation
//	@Tags			usage
//	@Produce		json
//	@Security		BearerAuth[agents:read]
//	@Param			agent_id		path	string	true	"The agent's id"	maxlength(64)	example(finance-personal)
//	@Param			reservation_id	path	string	true	"The reservation's id"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a8057)
//	@Param			If-None-Match	header	string	false	"The ETag you have"
//	@Success		200	{object}	models.Reservation	"The reservation"
//	@Header			200	{string}	ETag
//	@Success		304	"Nothing changed"
//	@Failure		404	"No such agent, or no such reservation of its"
//	@Router			/api/v1/agents/{agent_id}/reservations/{reservation_id} [get]
func (s *Server) getReservation(w http.ResponseWriter, r *http.Request) error {
	agent, id, err := pathIDs(r, "reservation_id")
	if err != nil {
		return err
	}
	found, err := s.usage.Reservation(r.Context(), agent, id)
	if err != nil {
		return err
	}
	return s.writeJSON(w, r, http.StatusOK, found)
}

// settleReservation turns a reservation into usage.
//
//	@Summary		Settle a reservation
//	@Description	Records what was really used, which may be less or more than was held, and gives the rest back; `tokens: 0` records nothing. An expired reservation can still be settled: what was used was used. Settled again with the same body it answers as before, with another it is refused.
//	@ID				settleReservation
//	@Tags			usage
//	@Accept			json
//	@Produce		json
//	@Security		BearerAuth[usage:write]
//	@Param			agent_id		path	string				true	"The agent's id"	maxlength(64)	example(finance-personal)
//	@Param			reservation_id	path	string				true	"The reservation's id"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a8057)
//	@Param			Idempotency-Key	header	string				false	"Makes a repeated request answer as the first one did, for 24 hours"	maxlength(255)
//	@Param			body			body	models.Settlement	true	"What was used"
//	@Success		200	{object}	reservationSettled	"Settled"
//	@Header			200	{string}	Idempotency-Replayed
//	@Failure		400	"A field is missing or malformed"
//	@Failure		403	"The token lacks the scope, its agent is inactive, or it is bound to another agent"
//	@Failure		404	"No such agent, or no such reservation of its"
//	@Failure		409	{object}	reservationProblem	"It was released, or settled in another way, or the key was used with another request"
//	@Failure		422	"The agent's day is full"
//	@Router			/api/v1/agents/{agent_id}/reservations/{reservation_id}/settle [post]
func (s *Server) settleReservation(w http.ResponseWriter, r *http.Request) error {
	agent, id, err := pathIDs(r, "reservation_id")
	if err != nil {
		return err
	}
	var d models.Settlement
	body, err := s.decode(w, r, &d)
	if err != nil {
		return err
	}
	once, err := s.readIdempotencyKey(r, body, s.renderSettled)
	if err != nil {
		return err
	}
	settled, err := s.usage.Settle(r.Context(), caller(r), agent, id, d, once)
	if err != nil || s.writeReplay(w, once) {
		return err
	}
	answer, err := s.renderSettled(settled)
	if err != nil {
		return err
	}
	s.writeStoredResponse(w, answer)
	return nil
}

func (s *Server) renderSettled(result any) (models.StoredResponse, error) {
	settled := result.(models.Settled)
	body, err := s.encode(reservationSettled{settled.Reservation, settled.Late, settled.Replayed, settled.Balance})
	return models.StoredResponse{Status: http.StatusOK, Body: body}, err
}

// releaseReservation gives back what a reservation holds.
//
//	@Summary		Release a reservation
//	@Description	Gives back what it holds. One that was released or has expired stays as it is.
//	@ID				releaseReservation
//	@Tags			usage
//	@Security		BearerAuth[usage:write]
//	@Param			agent_id		path	string	true	"The agent's id"	maxlength(64)	example(finance-personal)
//	@Param			reservation_id	path	string	true	"The reservation's id"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a8057)
//	@Success		204	"Released"
//	@Failure		403	"The token lacks the scope, its agent is inactive, or it is bound to another agent"
//	@Failure		404	"No such agent, or no such reservation of its"
//	@Failure		409	{object}	reservationProblem	"It was settled"
//	@Router			/api/v1/agents/{agent_id}/reservations/{reservation_id} [delete]
func (s *Server) releaseReservation(w http.ResponseWriter, r *http.Request) error {
	agent, id, err := pathIDs(r, "reservation_id")
	if err != nil {
		return err
	}
	if err := rejectBody(r); err != nil {
		return err
	}
	if err := s.usage.Release(r.Context(), caller(r), agent, id); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// pathIDs returns the ids of an agent and of something of its that stand in the
// address of a request without parameters; errors are those of pathID.
func pathIDs(r *http.Request, name string) (agent, id string, err error) {
	agent, err = pathID(r, "agent_id")
	if err == nil {
		id, err = decodeID(r, name)
	}
	return agent, id, err
}
