package api

import (
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/events"
	"comet/models"
	"comet/webhooks"
)

const webhooksPath = "/api/v1/webhooks"

// createWebhook creates a webhook (CHE·NU §9).
//
//	@Summary		Create a webhook
//	@Description	Subscribes a URL to events. comet sends them as POST requests signed according to Standard Webhooks 1.0; see `x-webhooks` for their bodies. `secret` verifies the signatures: send your own, or comet generates one; it is returned only once. The URL must be absolute, `http` or `https`, without credentials and fragment, and its address must be one that the server may connect to. A token bound to an agent can create webhooks only with the `agent_id` of that agent or of an agent below it.
//	@Param			body			body	webhooks.WebhookDraft	true	"The webhook to create"
//	@Success		201	{object}	webhookIssued	"Created"
//	@Header			201	{string}	Cache-Control
//	@Header			201	{string}	ETag
//	@Failure		400	"A field is missing or malformed, an event is unknown, or the agent does not exist"
//	@Failure		403	"The token lacks the scope, its agent is inactive, or it is bound to another agent than agent_id"
//	@Failure		422	"The server may not connect to the address, there are already 1,000 webhooks, or the quota of the token is exhausted"
func (s *Server) createWebhook(r request, d webhooks.WebhookDraft, once *models.Idempotency) (webhooks.Created, error) {
	return s.core.Webhooks.Create(r.Context(), r.caller, d, once)
}

// withoutSecret returns the body for a repeated Idempotency-Key.
func (w webhookIssued) withoutSecret() any { return webhookIssued{webhookView: w.webhookView} }

// webhookReply returns the function that makes the response with a webhook and its secret.
func (s *Server) webhookReply(status int) func(webhooks.Created) reply {
	return func(created webhooks.Created) reply {
		return reply{
			status: status, location: webhookURL(created.Webhook.ID), noStore: true, version: created.Webhook.Version,
			body: webhookIssued{s.newWebhookView(created.Webhook), created.Secret},
		}
	}
}

// listWebhooks lists webhooks.
//
//	@Summary		List webhooks
//	@Description	Returns all webhooks in the order of creation, without their secrets, including disabled ones. A token bound to an agent gets the webhooks of its agent and of the agents below it, and manages them with the other operations. The list also contains webhooks that the token, or a token descending from it, created and whose agent is no longer below its agent; the token can only read and delete these.
//	@Success		200	{object}	webhookList	"A page of results"
func (s *Server) listWebhooks(r request) (any, error) {
	q := newQuery(r.Request, "limit", "cursor")
	limit, after := q.pageLimit(), q.idCursor()
	if err := q.Err(); err != nil {
		return nil, err
	}
	hooks, err := s.core.Webhooks.List(r.Context(), r.caller, after, limit+1)
	hooks, next := cutPage(hooks, limit, func(w models.Webhook) string { return w.ID })
	return reply{next: next, body: webhookList{views(hooks, s.newWebhookView), next}}, err
}

// getWebhook returns one webhook.
//
//	@Summary		Get a webhook
//	@Description	Returns a webhook without its secret.
//	@Success		200	{object}	webhookView	"The webhook"
func (s *Server) getWebhook(r request) (any, error) {
	hook, err := s.core.Webhooks.Get(r.Context(), r.caller, r.id)
	return reply{version: hook.Version, body: s.newWebhookView(hook)}, err
}

// updateWebhook updates a webhook.
//
//	@Summary		Update a webhook
//	@Description	Changes only the members that the body contains. `agent_id: null` subscribes to the events of all agents. `enabled: true` enables a disabled webhook: pending deliveries continue, new events are delivered, and dead deliveries can be redelivered. Changing the scheme, host or port of `url` requires `headers` if the webhook has any. `ordering` cannot change while more than 5,000 deliveries are pending. Use `rotate-secret` to change the secret.
//	@Accept			json,application/merge-patch+json
//	@Param			If-Match	header	string					false	"Update the webhook only if this entity tag has its current version"
//	@Param			body		body	webhooks.WebhookPatch	true	"The members to change"
//	@Success		200	{object}	webhookView	"The updated webhook"
//	@Header			200	{string}	ETag
//	@Failure		412	"The webhook has another version"
//	@Failure		400	"A field is malformed, an event is unknown, or the agent does not exist"
//	@Failure		403	"The token lacks the scope, its agent is inactive, or it is bound to another agent than agent_id"
//	@Failure		422	"The server may not connect to the address, or too many deliveries are pending to change the ordering"
func (s *Server) updateWebhook(r request, p webhooks.WebhookPatch) (any, error) {
	hook, err := s.core.Webhooks.Update(r.Context(), r.caller, r.id, p, r.pre)
	return reply{version: hook.Version, body: s.newWebhookView(hook)}, err
}

// deleteWebhook deletes a webhook.
//
//	@Summary		Delete a webhook
//	@Description	Deletes the webhook and its deliveries, including pending ones. It is disabled at once; its deliveries are deleted in batches. With very many deliveries the request may exceed the server's time limit; repeat it to continue.
//	@Param			If-Match	header	string	false	"Delete the webhook only if this entity tag has its current version"
//	@Success		204	"Deleted"
//	@Failure		412	"The webhook has another version"
func (s *Server) deleteWebhook(r request) error {
	return s.core.Webhooks.Delete(r.Context(), r.caller, r.id, r.pre)
}

func webhookURL(id string) string { return webhooksPath + "/" + id }

// webhookView is a webhook without its secret.
type webhookView struct {
	ID          string             `json:"id" example:"01890a5d-ac96-774b-bcce-b302099a8057"`                                                                                                                                                                                                                                                                                                                                                                                                              // The webhook's id.
	URL         string             `json:"url" example:"https://your-server.com/webhook"`                                                                                                                                                                                                                                                                                                                                                                                                                  // The URL that receives the events.
	Description string             `json:"description" example:"budget alerts to the on-call channel"`                                                                                                                                                                                                                                                                                                                                                                                                     // A text about the webhook.
	Events      []models.EventType `json:"events" swaggertype:"array,string" enums:"agent.created,agent.updated,agent.deactivated,agent.budget_warning,agent.budget_exceeded,webhook.disabled,webhook.delivery_dead,workflow.started,workflow.paused,workflow.resumed,workflow.ended,schedule.created,schedule.changed,schedule.deleted,schedule.run,schedule.failed,publication.dead,agent.*,webhook.*,workflow.*,schedule.*,publication.*,*" example:"agent.created,agent.updated,agent.budget_warning"` // The types of the events that it receives.
	// Only events of this agent; null for all agents.
	AgentID *string `json:"agent_id" example:"finance-personal"`
	// Whether to include events of the agents below agent_id.
	Subtree        bool            `json:"subtree" example:"false"`
	Ordering       models.Ordering `json:"ordering" example:"none"`              // Whether the events of one agent are delivered in order.
	HeaderNames    []string        `json:"header_names" example:"Authorization"` // The names of its headers, whose values are secret.
	TimeoutSeconds *int            `json:"timeout_seconds" example:"30"`         // How long an attempt may take; null is the limit of the server.
	RetrySeconds   []int           `json:"retry_seconds" example:"10,60,600"`    // The waits before the retries; empty for the default schedule.
	Enabled        bool            `json:"enabled" example:"true"`               // Whether events are delivered.
	// Why comet disabled the webhook; null if it did not.
	DisabledReason *string    `json:"disabled_reason" example:"no delivery succeeded for 5 days"`
	DisabledAt     *time.Time `json:"disabled_at" example:"2026-01-10T15:30:00Z"` // When comet disabled it; null if it did not.
	// Time of the first failure since the last success; null without one.
	FailingSince *time.Time `json:"failing_since" example:"2026-01-05T15:30:00Z"`
	// The Ed25519 keys that verify v1a signatures, newest first; empty if the webhook has no
	// signing key.
	PublicKeys []string `json:"public_keys" example:"whpk_Y3JlYXRlZCBmb3IgdGhlIGRvY3VtZW50YXRpb24u"`
	// Until when deliveries are also signed with previous keys, the latest end if there are
	// several; null after that.
	PreviousSecretExpiresAt *time.Time `json:"previous_secret_expires_at" example:"2026-01-11T15:30:00Z"`
	CreatedBy               string     `json:"created_by" example:"ops"`
	CreatedAt               time.Time  `json:"created_at" example:"2026-01-10T15:30:00Z"`
	UpdatedAt               time.Time  `json:"updated_at" example:"2026-01-10T15:30:00Z"`
}

// webhookIssued is a webhook with its secret.
type webhookIssued struct {
	webhookView
	// The secret that signs deliveries. It is returned only once; the response to a repeated
	// Idempotency-Key omits it.
	Secret string `json:"secret,omitempty" example:"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"`
}

// webhookList is one page of webhooks.
type webhookList struct {
	Webhooks   []webhookView `json:"webhooks"`                                    // The webhooks on the page.
	NextCursor string        `json:"next_cursor,omitempty" example:"MDE4OTBhNWQ"` // Absent on the last page.
}

func (s *Server) newWebhookView(w models.Webhook) webhookView {
	now := s.now()
	v := webhookView{
		ID: w.ID, URL: w.URL, Description: w.Description, Events: w.Events, AgentID: w.AgentID, Subtree: w.Subtree,
		HeaderNames: slices.Concat([]string{}, slices.Sorted(maps.Keys(w.Headers))), TimeoutSeconds: orNull(w.TimeoutSeconds), RetrySeconds: w.RetrySeconds,
		Ordering: w.Ordering, Enabled: w.Enabled, DisabledReason: orNull(w.DisabledReason), DisabledAt: w.DisabledAt, FailingSince: w.FailingSince,
		PublicKeys: slices.Concat([]string{}, webhooks.PublicKeys(w.Keys, now)), // never null
		CreatedBy:  w.CreatedBy, CreatedAt: w.CreatedAt, UpdatedAt: w.UpdatedAt,
	}
	for _, p := range w.Keys.PreviousKeys {
		if now.Before(p.Until) && (v.PreviousSecretExpiresAt == nil || p.Until.After(*v.PreviousSecretExpiresAt)) {
			v.PreviousSecretExpiresAt = &p.Until
		}
	}
	return v
}

// rotateWebhookSecret replaces the keys of a webhook.
//
//	@Summary		Rotate a webhook's secret
//	@Description	Replaces the secret, and the signing key if the webhook has one. For `grace_seconds` deliveries are also signed with the previous keys, so that the receiver can switch to the new ones without losing events; with 0 all previous keys become invalid at once. After several rotations each previous secret signs until its own grace period ends; at most 5 do.
//	@Param			If-Match		header	string					false	"Rotate the secret only if this entity tag has the webhook's current version"
//	@Param			body			body	webhooks.SecretRotation	false	"The new secret and the grace period"
//	@Success		200	{object}	webhookIssued	"The webhook with its new secret"
//	@Failure		412	"The webhook has another version"
//	@Failure		422	"5 previous secrets still sign"
//	@Header			200	{string}	Location
//	@Header			200	{string}	Cache-Control
//	@Header			200	{string}	ETag
func (s *Server) rotateWebhookSecret(r request, d webhooks.SecretRotation, once *models.Idempotency) (webhooks.Created, error) {
	return s.core.Webhooks.Rotate(r.Context(), r.caller, r.id, d, r.pre, once)
}

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
//	@Param			event			query	string	false	"Only deliveries of this event type"	enums(agent.created,agent.updated,agent.deactivated,agent.budget_warning,agent.budget_exceeded,webhook.disabled,webhook.delivery_dead,workflow.started,workflow.paused,workflow.resumed,workflow.ended,schedule.created,schedule.changed,schedule.deleted,schedule.run,schedule.failed,publication.dead,webhook.test)	example(agent.created)
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
