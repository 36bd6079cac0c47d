package api

import (
	"net/http"
	"slices"
	"time"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/models"
	"comet/webhooks"
)

const webhooksPath = "/api/v1/webhooks"

// createWebhook registers a webhook (CHE·NU §9).
//
//	@Summary		Create a webhook
//	@Description	From now on the URL hears of the events, in POST requests signed as Standard Webhooks 1.0 describes; `x-webhooks` shows them. `secret` is what verifies the signatures: bring your own or have one made; either way it is shown this once. A URL must be absolute, `http` or `https`, without credentials and fragment, and must not name an address that the server may not connect to. A token that is bound to an agent makes webhooks with that `agent_id` only.
//	@ID				createWebhook
//	@Tags			webhooks
//	@Accept			json
//	@Produce		json
//	@Security		BearerAuth[webhooks:write]
//	@Param			Idempotency-Key	header	string				false	"Makes a repeated request answer as the first one did, without the secret"	maxlength(255)
//	@Param			body			body	models.WebhookDraft	true	"The webhook"
//	@Success		201	{object}	webhookIssued	"Created"
//	@Header			201	{string}	Location
//	@Header			201	{string}	Cache-Control
//	@Header			201	{string}	Idempotency-Replayed
//	@Failure		400	"A field is missing or malformed, an event is unknown, or the agent does not exist"
//	@Failure		403	"The token lacks the scope, its agent is inactive, or it is bound to an agent that agent_id does not name"
//	@Failure		409	"The key was used with another request"
//	@Failure		422	"The server may not connect to the address, or there are 1,000 webhooks already"
//	@Router			/api/v1/webhooks [post]
func (s *Server) createWebhook(w http.ResponseWriter, r *http.Request) error {
	if err := newQuery(r).Err(); err != nil {
		return err
	}
	var d models.WebhookDraft
	body, err := s.decode(w, r, &d)
	if err != nil {
		return err
	}
	once, err := s.readIdempotencyKey(r, body, s.renderWebhook(http.StatusCreated))
	if err != nil {
		return err
	}
	created, err := s.webhooks.Create(r.Context(), caller(r), d, once)
	if err != nil || s.writeReplay(w, once) {
		return err
	}
	return s.writeWebhook(w, r, http.StatusCreated, created)
}

// renderWebhook makes the stored answer, which has no secret.
func (s *Server) renderWebhook(status int) func(any) (models.StoredResponse, error) {
	return func(result any) (models.StoredResponse, error) {
		created := result.(webhooks.Created)
		body, err := s.encode(webhookIssued{webhookView: s.newWebhookView(created.Webhook)})
		return models.StoredResponse{
			Status: status, Body: body,
			Header: map[string]string{"Location": webhookURL(created.Webhook.ID), "Cache-Control": "no-store"},
		}, err
	}
}

// writeWebhook answers with a webhook and the secret that is shown this once.
func (s *Server) writeWebhook(w http.ResponseWriter, r *http.Request, status int, created webhooks.Created) error {
	w.Header().Set("Location", webhookURL(created.Webhook.ID))
	w.Header().Set("Cache-Control", "no-store")
	return s.writeJSON(w, r, status, webhookIssued{s.newWebhookView(created.Webhook), created.Secret})
}

// listWebhooks lists webhooks.
//
//	@Summary		List webhooks
//	@Description	Every webhook in the order of creation, disabled ones too, without their secrets. A token that is bound to an agent sees the webhooks with that `agent_id` only, here and everywhere.
//	@ID				listWebhooks
//	@Tags			webhooks
//	@Produce		json
//	@Security		BearerAuth[webhooks:write]
//	@Param			limit			query	int		false	"Size of a page"	minimum(1)	maximum(1000)	default(100)
//	@Param			cursor			query	string	false	"Where the page begins, as given by the page before"	maxlength(100)
//	@Param			If-None-Match	header	string	false	"The ETag you have"
//	@Success		200	{object}	webhookList	"One page"
//	@Header			200	{string}	ETag
//	@Header			200	{string}	Link
//	@Success		304	"Nothing changed"
//	@Failure		400	"A parameter is unknown or out of range"
//	@Router			/api/v1/webhooks [get]
func (s *Server) listWebhooks(w http.ResponseWriter, r *http.Request) error {
	q := newQuery(r, "limit", "cursor")
	limit, after := q.Int("limit", 1, maxLimit, defaultLimit), q.idCursor()
	if err := q.Err(); err != nil {
		return err
	}
	hooks, err := s.webhooks.List(r.Context(), caller(r), after, limit+1)
	if err != nil {
		return err
	}
	var page webhookList
	if len(hooks) > limit {
		hooks = hooks[:limit]
		page.NextCursor = encodeCursor(hooks[limit-1].ID)
		w.Header().Set("Link", links(r, page.NextCursor))
	}
	page.Webhooks = make([]webhookView, len(hooks))
	for i, hook := range hooks {
		page.Webhooks[i] = s.newWebhookView(hook)
	}
	return s.writeJSON(w, r, http.StatusOK, page)
}

// getWebhook returns one webhook.
//
//	@Summary		Get a webhook
//	@Description	The webhook without its secret.
//	@ID				getWebhook
//	@Tags			webhooks
//	@Produce		json
//	@Security		BearerAuth[webhooks:write]
//	@Param			webhook_id		path	string	true	"The webhook's id"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a8057)
//	@Param			If-None-Match	header	string	false	"The ETag you have"
//	@Success		200	{object}	webhookView	"The webhook"
//	@Header			200	{string}	ETag
//	@Success		304	"Nothing changed"
//	@Failure		404	"No such webhook"
//	@Router			/api/v1/webhooks/{webhook_id} [get]
func (s *Server) getWebhook(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "webhook_id")
	if err != nil {
		return err
	}
	hook, err := s.webhooks.Get(r.Context(), caller(r), id)
	if err != nil {
		return err
	}
	return s.writeJSON(w, r, http.StatusOK, s.newWebhookView(hook))
}

// updateWebhook changes a webhook.
//
//	@Summary		Update a webhook
//	@Description	Changes the members that are present. `agent_id: null` hears of every agent. `enabled: true` brings a disabled webhook back: what waited goes on, it hears of what happens from then on, and what died can be redelivered. Another `ordering` is refused while more than 5,000 deliveries are pending. The secret changes with `rotate-secret`.
//	@ID				updateWebhook
//	@Tags			webhooks
//	@Accept			json,application/merge-patch+json
//	@Produce		json
//	@Security		BearerAuth[webhooks:write]
//	@Param			webhook_id	path	string				true	"The webhook's id"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a8057)
//	@Param			body		body	models.WebhookPatch	true	"What changes"
//	@Success		200	{object}	webhookView	"The webhook as it is now"
//	@Failure		400	"A field is malformed, an event is unknown, or the agent does not exist"
//	@Failure		403	"The token lacks the scope, its agent is inactive, or it is bound to an agent that agent_id does not name"
//	@Failure		404	"No such webhook"
//	@Failure		422	"The server may not connect to the address, or too many deliveries are pending for another ordering"
//	@Router			/api/v1/webhooks/{webhook_id} [patch]
func (s *Server) updateWebhook(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "webhook_id")
	if err != nil {
		return err
	}
	if err := rejectIfMatch(r); err != nil {
		return err
	}
	var p models.WebhookPatch
	if _, err := s.decode(w, r, &p); err != nil {
		return err
	}
	hook, err := s.webhooks.Update(r.Context(), caller(r), id, p)
	if err != nil {
		return err
	}
	return s.writeJSON(w, r, http.StatusOK, s.newWebhookView(hook))
}

// deleteWebhook removes a webhook.
//
//	@Summary		Delete a webhook
//	@Description	Ends the webhook together with its deliveries, those that wait too. It is disabled at once and its deliveries go piece by piece, so where there are very many the request may run into the server's time limit; repeat it, and it goes on where it was.
//	@ID				deleteWebhook
//	@Tags			webhooks
//	@Security		BearerAuth[webhooks:write]
//	@Param			webhook_id	path	string	true	"The webhook's id"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a8057)
//	@Success		204	"Deleted"
//	@Failure		404	"No such webhook"
//	@Router			/api/v1/webhooks/{webhook_id} [delete]
func (s *Server) deleteWebhook(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "webhook_id")
	if err != nil {
		return err
	}
	if err := rejectIfMatch(r); err != nil {
		return err
	}
	if err := rejectBody(r); err != nil {
		return err
	}
	if err := s.webhooks.Delete(r.Context(), caller(r), id); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func webhookURL(id string) string { return webhooksPath + "/" + id }

// rejectIfMatch answers a request that makes its change depend on a version, which a
// webhook has not: it would be made regardless.
func rejectIfMatch(r *http.Request) error {
	if r.Header.Get("If-Match") == "" {
		return nil
	}
	return invalidHeader("If-Match", "unsupported", "webhooks have no version, so a change cannot depend on one; send it without If-Match")
}

// webhookView is a webhook without its secret.
type webhookView struct {
	ID          string             `json:"id" example:"01890a5d-ac96-774b-bcce-b302099a8057"`
	URL         string             `json:"url" example:"https://your-server.com/webhook"`
	Description string             `json:"description" example:"budget alerts to the on-call channel"`
	Events      []models.EventType `json:"events" swaggertype:"array,string" enums:"agent.created,agent.updated,agent.deactivated,agent.budget_warning,agent.budget_exceeded,webhook.disabled" example:"agent.created,agent.updated,agent.budget_warning"`
	// The agent whose events it hears of; null hears of every agent.
	AgentID *string `json:"agent_id" example:"finance-personal"`
	// Whether it hears of the agents below that one too.
	Subtree  bool            `json:"subtree" example:"false"`
	Ordering models.Ordering `json:"ordering" example:"none"`
	Enabled  bool            `json:"enabled" example:"true"`
	// Why comet disabled it; null unless it did.
	DisabledReason *string    `json:"disabled_reason" example:"no delivery succeeded for 5 days"`
	DisabledAt     *time.Time `json:"disabled_at" example:"2026-01-10T15:30:00Z"`
	// The first failure after the last success; null while it works.
	FailingSince *time.Time `json:"failing_since" example:"2026-01-05T15:30:00Z"`
	// The Ed25519 keys that verify v1a signatures now, the newest first; empty
	// unless it signs with one.
	PublicKeys []string `json:"public_keys" example:"whpk_Y3JlYXRlZCBmb3IgdGhlIGRvY3VtZW50YXRpb24u"`
	// How long deliveries are signed with the keys from before the last rotation
	// too; null unless they are.
	PreviousSecretExpiresAt *time.Time `json:"previous_secret_expires_at" example:"2026-01-11T15:30:00Z"`
	CreatedBy               string     `json:"created_by" example:"ops"`
	CreatedAt               time.Time  `json:"created_at" example:"2026-01-10T15:30:00Z"`
	UpdatedAt               time.Time  `json:"updated_at" example:"2026-01-10T15:30:00Z"`
}

// webhookIssued is a webhook with its secret, which is shown this once.
type webhookIssued struct {
	webhookView
	// What deliveries are signed with. It is shown this once; the answer to a
	// repeated Idempotency-Key leaves it out.
	Secret string `json:"secret,omitempty" example:"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"`
}

// webhookList is one page of webhooks.
type webhookList struct {
	Webhooks   []webhookView `json:"webhooks"`
	NextCursor string        `json:"next_cursor,omitempty" example:"MDE4OTBhNWQ"` // Absent on the last page.
}

func (s *Server) newWebhookView(w models.Webhook) webhookView {
	now := s.now()
	v := webhookView{
		ID: w.ID, URL: w.URL, Description: w.Description, Events: w.Events, AgentID: w.AgentID, Subtree: w.Subtree,
		Ordering: w.Ordering, Enabled: w.Enabled, DisabledAt: w.DisabledAt, FailingSince: w.FailingSince,
		PublicKeys: slices.Concat([]string{}, webhooks.PublicKeys(w.Keys, now)), // never null
		CreatedBy:  w.CreatedBy, CreatedAt: w.CreatedAt, UpdatedAt: w.UpdatedAt,
	}
	if w.DisabledReason != "" {
		v.DisabledReason = &w.DisabledReason
	}
	if now.Before(w.Keys.OldUntil) {
		v.PreviousSecretExpiresAt = &w.Keys.OldUntil
	}
	return v
}

// defaultGrace is how long the old keys sign too where a rotation does not say.
const defaultGrace = 24 * time.Hour

// secretRotation is the body of a request for a new secret.
type secretRotation struct {
	// The new secret, `whsec_` and 24 to 64 bytes in base64; one is made where it
	// is left out.
	Secret *string `json:"secret" example:"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" maxLength:"128" extensions:"x-nullable"`
	// How long deliveries are signed with the old secret too, in seconds.
	GraceSeconds *int64 `json:"grace_seconds" validate:"omitnil,min=0,max=604800" example:"86400" minimum:"0" maximum:"604800" default:"86400" extensions:"x-nullable"`
}

// rotateWebhookSecret gives a webhook new keys.
//
//	@Summary		Rotate a webhook's secret
//	@Description	Gives the webhook a new secret, and a new signing key where it signs with one. For `grace_seconds` every delivery carries the signatures of the old keys too, so a receiver can change over at its leisure; 0 ends them at once. A second rotation within the grace period keeps the keys it replaces and drops the older ones.
//	@ID				rotateWebhookSecret
//	@Tags			webhooks
//	@Accept			json
//	@Produce		json
//	@Security		BearerAuth[webhooks:write]
//	@Param			webhook_id		path	string		true	"The webhook's id"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a8057)
//	@Param			Idempotency-Key	header	string		false	"Makes a repeated request answer as the first one did, without the secret"	maxlength(255)
//	@Param			body			body	secretRotation	false	"The secret and the grace period, where the defaults do not suit"
//	@Success		200	{object}	webhookIssued	"Rotated"
//	@Header			200	{string}	Location
//	@Header			200	{string}	Cache-Control
//	@Header			200	{string}	Idempotency-Replayed
//	@Failure		400	"A field is malformed"
//	@Failure		404	"No such webhook"
//	@Failure		409	"The key was used with another request"
//	@Router			/api/v1/webhooks/{webhook_id}/rotate-secret [post]
func (s *Server) rotateWebhookSecret(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "webhook_id")
	if err != nil {
		return err
	}
	var d secretRotation
	body, err := s.decodeOptional(w, r, &d)
	if err != nil {
		return err
	}
	once, err := s.readIdempotencyKey(r, body, s.renderWebhook(http.StatusOK))
	if err != nil {
		return err
	}
	secret, grace, err := d.read()
	if err != nil {
		return err
	}
	rotated, err := s.webhooks.Rotate(r.Context(), caller(r), id, secret, grace, once)
	if err != nil || s.writeReplay(w, once) {
		return err
	}
	return s.writeWebhook(w, r, http.StatusOK, rotated)
}

// read returns the secret, "" to have one made, and the grace period.
func (d secretRotation) read() (secret string, grace time.Duration, err error) {
	v := input.Validate(d)
	if d.Secret != nil {
		if secret = *d.Secret; secret == "" {
			v.Add(errs.InvalidRequest, "/secret", "secret", "secret must not be empty; leave it out to have one made")
		}
	}
	grace = defaultGrace
	if d.GraceSeconds != nil {
		grace = time.Duration(*d.GraceSeconds) * time.Second
	}
	return secret, grace, v.Err()
}
