package api

import (
	"net/http"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/events"
	"comet/models"
	"comet/webhooks"
)

// deliveryDetail is a delivery with its payload and attempts.
type deliveryDetail struct {
	models.Delivery
	Payload  deliveryPayload          `json:"payload"`
	Attempts []models.DeliveryAttempt `json:"attempts"` // Oldest first.
}

// deliveryPayload is the body that is sent to the webhook.
type deliveryPayload struct {
	Type      models.EventType `json:"type" swaggertype:"string" example:"agent.created"` // The type of the event.
	Timestamp time.Time        `json:"timestamp" example:"2026-01-10T15:30:00Z"`          // When the event occurred.
	Data      any              `json:"data"`                                              // The event's data, an object that `x-webhooks` describes.
}

// deliveryList is one page of deliveries, newest first.
type deliveryList struct {
	Deliveries []models.Delivery `json:"deliveries"`                                  // The deliveries on the page.
	NextCursor string            `json:"next_cursor,omitempty" example:"MDE4OTBhNWQ"` // Absent on the last page.
}

// listDeliveries lists the deliveries of a webhook.
//
//	@Summary		List a webhook's deliveries
//	@Description	Returns one delivery per event, newest first. Ended deliveries are deleted after the retention that the server is configured with.
//	@Param			status			query	string	false	"Only deliveries in this state"	enums(pending,succeeded,dead)	example(dead)
//	@Param			event			query	string	false	"Only deliveries of this event type"	enums(agent.created,agent.updated,agent.deactivated,agent.budget_warning,agent.budget_exceeded,webhook.disabled,webhook.delivery_dead,webhook.test)	example(agent.created)
//	@Param			since			query	string	false	"Only deliveries created at this time or later"	format(date-time)	example(2026-01-10T00:00:00Z)
//	@Param			until			query	string	false	"Only deliveries created before this time"	format(date-time)	example(2026-01-11T00:00:00Z)
//	@Success		200	{object}	deliveryList	"A page of results"
func (s *Server) listDeliveries(r request) (any, error) {
	q, err := deliveryQuery(r.Request)
	if err != nil {
		return nil, err
	}
	limit := q.Limit
	q.Limit++ // one more than the page shows whether there is a next page
	deliveries, err := s.core.Webhooks.Deliveries(r.Context(), r.caller, r.id, q)
	deliveries, next := cutPage(deliveries, limit, func(d models.Delivery) string { return d.ID })
	return reply{next: next, body: deliveryList{orEmpty(deliveries), next}}, err
}

// deliveryQuery reads the query parameters of a list of deliveries.
func deliveryQuery(r *http.Request) (webhooks.DeliveryQuery, error) {
	q := newQuery(r, "status", "event", "since", "until", "limit", "cursor")
	types := []string{}
	for _, t := range append(events.ForWebhooks(), events.WebhookTest) {
		types = append(types, string(t))
	}
	out := webhooks.DeliveryQuery{
		State: models.DeliveryState(q.Enum("status", "",
			string(models.DeliveryPending), string(models.DeliverySucceeded), string(models.DeliveryDead))),
		Limit:  q.pageLimit(),
		Before: q.idCursor(),
	}
	if event := q.Enum("event", "", types...); event != "" {
		out.Types = []models.EventType{models.EventType(event)}
	}
	out.Since, out.Until = q.period()
	return out, q.Err()
}

// getDelivery returns one delivery.
//
//	@Summary		Get a delivery
//	@Description	Returns a delivery with the result of each attempt and the payload.
//	@Success		200	{object}	deliveryDetail	"The delivery"
func (s *Server) getDelivery(r request) (any, error) {
	d, attempts, err := s.core.Webhooks.Delivery(r.Context(), r.caller, r.id, r.subID)
	return deliveryDetail{
		Delivery: d, Attempts: orEmpty(attempts),
		Payload: deliveryPayload{Type: d.Type, Timestamp: d.EventAt, Data: jsontext.Value(d.Data)},
	}, err
}

// redeliverDelivery schedules a delivery again.
//
//	@Summary		Redeliver a delivery
//	@Description	Schedules the delivery at once, in any state, with a full set of retries. The event keeps its id, so that receivers can recognize it.
//	@Success		202	{object}	models.Delivery	"The scheduled delivery"
//	@Header			202	{string}	Location
//	@Failure		409	"The webhook is disabled"
func (s *Server) redeliverDelivery(r request, _ struct{}) (any, error) {
	d, err := s.core.Webhooks.Redeliver(r.Context(), r.caller, r.id, r.subID)
	return reply{
		status: http.StatusAccepted, location: webhookURL(r.id) + "/deliveries/" + d.ID, body: d,
	}, err
}

// webhookTested is the result of a test.
type webhookTested struct {
	DeliveryID string                 `json:"delivery_id" example:"01890a5d-ac96-774b-bcce-b302099a8057"` // Id of the delivery of the test.
	Succeeded  bool                   `json:"succeeded" example:"true"`                                   // Whether the receiver responded with 2xx.
	Attempt    models.DeliveryAttempt `json:"attempt"`
}

// testWebhook sends a test event.
//
//	@Summary		Test a webhook
//	@Description	Sends a `webhook.test` event to the webhook, even if it is disabled, in a single attempt, and returns the result after at most 15 seconds. If the server has reached its limit of concurrent attempts, the request waits, and fails with 503 if no slot becomes free. The status is 200 even if the attempt failed; check `succeeded`.
//	@Success		200	{object}	webhookTested	"The result of the test"
func (s *Server) testWebhook(r request, _ struct{}) (any, error) {
	d, attempt, err := s.core.Webhooks.Test(r.Context(), r.caller, r.id)
	return webhookTested{DeliveryID: d.ID, Succeeded: d.State == models.DeliverySucceeded, Attempt: attempt}, err
}

// redeliveryResult is the number of redelivered deliveries.
type redeliveryResult struct {
	Redelivered int64 `json:"redelivered" example:"12"` // Number of scheduled deliveries, with those of missed events.
}

// redeliverWebhook schedules dead deliveries again, and missed events.
//
//	@Summary		Redeliver deliveries
//	@Description	Schedules the dead deliveries of the webhook that were created in a period at once, with a full set of retries; with `include_succeeded` also those that succeeded. With `include_missed`, the events of the period that the webhook has not received, because it was created later, was disabled or had another filter, are delivered, too: in their order, each once, if its current filters select them and they are within the retention of events and deliveries. The events keep their ids. Deliveries of tests are left out. If the request times out, repeat it.
//	@Param			body		body	webhooks.RedeliveryDraft	true	"The deliveries to redeliver"
//	@Success		202	{object}	redeliveryResult	"The number of deliveries"
//	@Failure		400	"A field is missing or malformed"
//	@Failure		409	"The webhook is disabled"
func (s *Server) redeliverWebhook(r request, d webhooks.RedeliveryDraft) (any, error) {
	n, err := s.core.Webhooks.RedeliverAll(r.Context(), r.caller, r.id, d)
	return reply{status: http.StatusAccepted, body: redeliveryResult{n}}, err
}
