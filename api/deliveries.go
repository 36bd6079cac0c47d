package api

import (
	"net/http"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/input"
	"comet/models"
)

// deliveryView is one event on its way to one webhook.
type deliveryView struct {
	ID        string           `json:"id" example:"01890a5d-ac96-774b-bcce-b302099a8057"`
	WebhookID string           `json:"webhook_id" example:"01890a5d-ac96-774b-bcce-b302099a8058"`
	EventID   string           `json:"event_id" example:"01890a5d-ac96-774b-bcce-b302099a8059"` // The webhook-id header, the same on every attempt.
	Event     models.EventType `json:"event" swaggertype:"string" enums:"agent.created,agent.updated,agent.deactivated,agent.budget_warning,agent.budget_exceeded,webhook.disabled,webhook.test" example:"agent.created"`
	// What the event happened to, usually an agent's id; what ordering goes by.
	Key     string               `json:"key" example:"finance-personal"`
	EventAt time.Time            `json:"event_at" example:"2026-01-10T15:30:00Z"`
	Status  models.DeliveryState `json:"status" swaggertype:"string" enums:"pending,succeeded,dead" example:"pending"`
	// How many attempts were made, those before a redelivery too.
	AttemptCount int `json:"attempt_count" example:"1"`
	// Null unless it is pending and not behind an earlier event.
	NextAttemptAt *time.Time `json:"next_attempt_at" example:"2026-01-10T15:30:05Z"`
	EndedAt       *time.Time `json:"ended_at" example:"2026-01-10T15:30:00Z"` // Null while it is pending.
	CreatedAt     time.Time  `json:"created_at" example:"2026-01-10T15:30:00Z"`
}

// deliveryDetail is a delivery with its attempts and what is sent.
type deliveryDetail struct {
	deliveryView
	Payload  deliveryPayload          `json:"payload"`
	Attempts []models.DeliveryAttempt `json:"attempts"` // The first one first.
}

// deliveryPayload is the body of a delivery, as it is sent.
type deliveryPayload struct {
	Type      models.EventType `json:"type" swaggertype:"string" example:"agent.created"`
	Timestamp time.Time        `json:"timestamp" example:"2026-01-10T15:30:00Z"`
	Data      any              `json:"data"` // An object, as x-webhooks describes it.
}

// deliveryList is one page of deliveries, the newest first.
type deliveryList struct {
	Deliveries []deliveryView `json:"deliveries"`
	NextCursor string         `json:"next_cursor,omitempty" example:"MDE4OTBhNWQ"` // Absent on the last page.
}

func newDeliveryView(d models.Delivery) deliveryView {
	return deliveryView{
		ID: d.ID, WebhookID: d.WebhookID, EventID: d.EventID, Event: d.Type, Key: d.Key, EventAt: d.EventAt, Status: d.State,
		AttemptCount: d.Attempts, NextAttemptAt: d.NextAttemptAt, EndedAt: d.EndedAt, CreatedAt: d.CreatedAt,
	}
}

// listDeliveries lists what a webhook was sent.
//
//	@Summary		List a webhook's deliveries
//	@Description	One for each event, the newest first; ended ones are kept for as long as the server is configured to.
//	@ID				listDeliveries
//	@Tags			webhooks
//	@Produce		json
//	@Security		BearerAuth[webhooks:write]
//	@Param			webhook_id		path	string	true	"The webhook's id"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a8057)
//	@Param			status			query	string	false	"Only deliveries in this state"	enums(pending,succeeded,dead)	example(dead)
//	@Param			event			query	string	false	"Only deliveries of this event"	enums(agent.created,agent.updated,agent.deactivated,agent.budget_warning,agent.budget_exceeded,webhook.disabled,webhook.test)	example(agent.created)
//	@Param			since			query	string	false	"Only deliveries created at this time or later"	format(date-time)	example(2026-01-10T00:00:00Z)
//	@Param			until			query	string	false	"Only deliveries created before this time"	format(date-time)	example(2026-01-11T00:00:00Z)
//	@Param			limit			query	int		false	"Size of a page"	minimum(1)	maximum(1000)	default(100)
//	@Param			cursor			query	string	false	"Where the page begins, as given by the page before"	maxlength(100)
//	@Param			If-None-Match	header	string	false	"The ETag you have"
//	@Success		200	{object}	deliveryList	"One page"
//	@Header			200	{string}	ETag
//	@Header			200	{string}	Link
//	@Success		304	"Nothing changed"
//	@Failure		400	"A parameter is unknown or out of range"
//	@Failure		404	"No such webhook"
//	@Router			/api/v1/webhooks/{webhook_id}/deliveries [get]
func (s *Server) listDeliveries(w http.ResponseWriter, r *http.Request) error {
	id, err := decodeID(r, "webhook_id")
	if err != nil {
		return err
	}
	q, err := deliveryQuery(r)
	if err != nil {
		return err
	}
	limit := q.Limit
	q.Limit++ // one more tells whether there is a next page
	deliveries, err := s.webhooks.Deliveries(r.Context(), caller(r), id, q)
	if err != nil {
		return err
	}
	var page deliveryList
	if len(deliveries) > limit {
		deliveries = deliveries[:limit]
		page.NextCursor = encodeCursor(deliveries[limit-1].ID)
		w.Header().Set("Link", links(r, page.NextCursor))
	}
	page.Deliveries = make([]deliveryView, len(deliveries))
	for i, d := range deliveries {
		page.Deliveries[i] = newDeliveryView(d)
	}
	return s.writeJSON(w, r, http.StatusOK, page)
}

// deliveryQuery reads the parameters of a list of deliveries.
func deliveryQuery(r *http.Request) (models.DeliveryQuery, error) {
	q := newQuery(r, "status", "event", "since", "until", "limit", "cursor")
	types := []string{}
	for _, t := range append(models.WebhookEvents(), models.EventWebhookTest) {
		types = append(types, string(t))
	}
	out := models.DeliveryQuery{
		State: models.DeliveryState(q.Enum("status", "",
			string(models.DeliveryPending), string(models.DeliverySucceeded), string(models.DeliveryDead))),
		Type:   models.EventType(q.Enum("event", "", types...)),
		Limit:  q.Int("limit", 1, maxLimit, defaultLimit),
		Before: q.idCursor(),
	}
	since, until := q.OptTime("since"), q.OptTime("until")
	if since != nil {
		out.Since = *since
	}
	if until != nil {
		out.Until = *until
	}
	if since != nil && until != nil && !until.After(*since) {
		q.Fail("until", "after", "until must lie after since")
	}
	return out, q.Err()
}

// getDelivery returns one delivery.
//
//	@Summary		Get a delivery
//	@Description	The delivery with what became of each attempt, and the payload as it is sent.
//	@ID				getDelivery
//	@Tags			webhooks
//	@Produce		json
//	@Security		BearerAuth[webhooks:write]
//	@Param			webhook_id		path	string	true	"The webhook's id"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a8058)
//	@Param			delivery_id		path	string	true	"The delivery's id"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a8057)
//	@Param			If-None-Match	header	string	false	"The ETag you have"
//	@Success		200	{object}	deliveryDetail	"The delivery"
//	@Header			200	{string}	ETag
//	@Success		304	"Nothing changed"
//	@Failure		404	"No such webhook or delivery"
//	@Router			/api/v1/webhooks/{webhook_id}/deliveries/{delivery_id} [get]
func (s *Server) getDelivery(w http.ResponseWriter, r *http.Request) error {
	id, deliveryID, err := deliveryIDs(r)
	if err != nil {
		return err
	}
	d, attempts, err := s.webhooks.Delivery(r.Context(), caller(r), id, deliveryID)
	if err != nil {
		return err
	}
	if attempts == nil {
		attempts = []models.DeliveryAttempt{}
	}
	return s.writeJSON(w, r, http.StatusOK, deliveryDetail{
		deliveryView: newDeliveryView(d), Attempts: attempts,
		Payload: deliveryPayload{Type: d.Type, Timestamp: d.EventAt, Data: jsontext.Value(d.Data)},
	})
}

// deliveryIDs returns the two ids that stand in the address of a delivery.
func deliveryIDs(r *http.Request) (webhookID, deliveryID string, err error) {
	if webhookID, err = pathID(r, "webhook_id"); err != nil {
		return "", "", err
	}
	deliveryID, err = decodeID(r, "delivery_id")
	return webhookID, deliveryID, err
}

// redeliver makes a delivery due again.
//
//	@Summary		Redeliver a delivery
//	@Description	Makes the delivery due at once, with all its retries before it, whatever became of it. The event keeps its id, so a receiver that has it already can tell.
//	@ID				redeliverDelivery
//	@Tags			webhooks
//	@Produce		json
//	@Security		BearerAuth[webhooks:write]
//	@Param			webhook_id	path	string	true	"The webhook's id"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a8058)
//	@Param			delivery_id	path	string	true	"The delivery's id"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a8057)
//	@Success		202	{object}	deliveryView	"It is due"
//	@Header			202	{string}	Location
//	@Failure		404	"No such webhook or delivery"
//	@Failure		409	"The webhook is disabled"
//	@Router			/api/v1/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver [post]
func (s *Server) redeliver(w http.ResponseWriter, r *http.Request) error {
	id, deliveryID, err := deliveryIDs(r)
	if err != nil {
		return err
	}
	if err := rejectBody(r); err != nil {
		return err
	}
	d, err := s.webhooks.Redeliver(r.Context(), caller(r), id, deliveryID)
	if err != nil {
		return err
	}
	w.Header().Set("Location", webhookURL(id)+"/deliveries/"+d.ID)
	return s.writeJSON(w, r, http.StatusAccepted, newDeliveryView(d))
}

// What a webhook hears of. No code stands behind these annotations: the requests
// are ones comet makes, so the generator of the description moves them from the
// paths to x-webhooks, the form that OpenAPI 3.1's webhooks have in 3.0. The body
// named here is the event's data; the envelope around it, the headers and the
// answers are the same for every event and added there.

// An agent was created (CHE·NU §9).
//
//	@Summary		An agent was created
//	@Description	By a request, an import or the first start.
//	@ID				onAgentCreated
//	@Tags			webhooks
//	@Param			data	body	models.AgentSnapshot	true	"The agent as it was made"
//	@Router			/x-webhooks/agent.created [post]
func _() {}

// An agent was changed (CHE·NU §9).
//
//	@Summary		An agent was changed
//	@Description	Or restored, which is `is_active` from false to true. A change that also deactivates the agent is told by two events of the same `version`: this one, then `agent.deactivated`.
//	@ID				onAgentUpdated
//	@Tags			webhooks
//	@Param			data	body	models.AgentChanged	true	"What changed"
//	@Router			/x-webhooks/agent.updated [post]
func _() {}

// An agent was deactivated (CHE·NU §2.4, §9).
//
//	@Summary		An agent was deactivated
//	@Description	By `DELETE` or by `PATCH {"is_active": false}`.
//	@ID				onAgentDeactivated
//	@Tags			webhooks
//	@Param			data	body	models.AgentChanged	true	"What changed"
//	@Router			/x-webhooks/agent.deactivated [post]
func _() {}

// 80 % of a budget is used (CHE·NU §9).
//
//	@Summary		80 % of a budget is used
//	@Description	Once a UTC day for each agent, when what was used reaches 80 % of the budget.
//	@ID				onBudgetWarning
//	@Tags			webhooks
//	@Param			data	body	models.BudgetAlert	true	"Where the budget stands"
//	@Router			/x-webhooks/agent.budget_warning [post]
func _() {}

// A budget is exceeded (CHE·NU §9).
//
//	@Summary		A budget is exceeded
//	@Description	Once a UTC day for each agent, when a reservation is refused or a fact passes the budget.
//	@ID				onBudgetExceeded
//	@Tags			webhooks
//	@Param			data	body	models.BudgetAlert	true	"Where the budget stands"
//	@Router			/x-webhooks/agent.budget_exceeded [post]
func _() {}

// comet has given a webhook up.
//
//	@Summary		A webhook was disabled
//	@Description	By comet itself, because nothing could be delivered for five days and at least ten attempts, or because the receiver answered 410.
//	@ID				onWebhookDisabled
//	@Tags			webhooks
//	@Param			data	body	models.WebhookDisabled	true	"Which one, and why"
//	@Router			/x-webhooks/webhook.disabled [post]
func _() {}

// Somebody tests a webhook.
//
//	@Summary		A test
//	@Description	`POST /api/v1/webhooks/{webhook_id}/test` sends it to that one webhook; nobody subscribes to it.
//	@ID				onWebhookTest
//	@Tags			webhooks
//	@Param			data	body	models.WebhookTest	true	"Which one"
//	@Router			/x-webhooks/webhook.test [post]
func _() {}

// webhookTested is what became of a test.
type webhookTested struct {
	DeliveryID string                 `json:"delivery_id" example:"01890a5d-ac96-774b-bcce-b302099a8057"`
	Succeeded  bool                   `json:"succeeded" example:"true"` // Whether the receiver answered with 2xx.
	Attempt    models.DeliveryAttempt `json:"attempt"`
}

// testWebhook sends a test event.
//
//	@Summary		Test a webhook
//	@Description	Delivers a `webhook.test` event on the same way as any other, once, to a disabled webhook too, and waits for its end, at most 15 s. Where the server makes as many attempts as it may, it waits for its turn first, and answers 503 if that does not come. The answer is 200 whatever became of it.
//	@ID				testWebhook
//	@Tags			webhooks
//	@Produce		json
//	@Security		BearerAuth[webhooks:write]
//	@Param			webhook_id	path	string	true	"The webhook's id"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a8057)
//	@Success		200	{object}	webhookTested	"What became of it"
//	@Failure		404	"No such webhook"
//	@Router			/api/v1/webhooks/{webhook_id}/test [post]
func (s *Server) testWebhook(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "webhook_id")
	if err != nil {
		return err
	}
	if err := rejectBody(r); err != nil {
		return err
	}
	tested, err := s.webhooks.Test(r.Context(), caller(r), id)
	if err != nil {
		return err
	}
	return s.writeJSON(w, r, http.StatusOK, webhookTested{
		DeliveryID: tested.Delivery.ID, Succeeded: tested.Delivery.State == models.DeliverySucceeded, Attempt: tested.Attempt,
	})
}

// redeliveryRequest is the body of a request to deliver again what died.
type redeliveryRequest struct {
	// Deliveries created at this time or later.
	Since *time.Time `json:"since" validate:"required" example:"2026-01-10T00:00:00Z"`
}

// redeliveryResult is how many deliveries are due again.
type redeliveryResult struct {
	Redelivered int64 `json:"redelivered" example:"12"`
}

// redeliverWebhook makes dead deliveries due again.
//
//	@Summary		Redeliver what died
//	@Description	Makes every dead delivery of the webhook that was created at `since` or later due at once, with all its retries before it. The events keep their ids.
//	@ID				redeliverWebhook
//	@Tags			webhooks
//	@Accept			json
//	@Produce		json
//	@Security		BearerAuth[webhooks:write]
//	@Param			webhook_id	path	string		true	"The webhook's id"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a8057)
//	@Param			body		body	redeliveryRequest	true	"Since when"
//	@Success		202	{object}	redeliveryResult	"They are due"
//	@Failure		400	"The time is missing or malformed"
//	@Failure		404	"No such webhook"
//	@Failure		409	"The webhook is disabled"
//	@Router			/api/v1/webhooks/{webhook_id}/redeliver [post]
func (s *Server) redeliverWebhook(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "webhook_id")
	if err != nil {
		return err
	}
	var d redeliveryRequest
	if _, err := s.decode(w, r, &d); err != nil {
		return err
	}
	if err := input.Validate(d).Err(); err != nil {
		return err
	}
	n, err := s.webhooks.RedeliverSince(r.Context(), caller(r), id, *d.Since)
	if err != nil {
		return err
	}
	return s.writeJSON(w, r, http.StatusAccepted, redeliveryResult{n})
}
