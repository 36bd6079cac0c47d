package api

import (
	"bytes"
	"net/http"
	"time"

	"comet/internal/errs"
	"comet/internal/strictjson"
	"comet/internal/validate"
	"comet/models"
)

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
	once, err := s.once(r, body, s.renderWebhook(http.StatusOK))
	if err != nil {
		return err
	}
	secret, grace, err := d.read()
	if err != nil {
		return err
	}
	rotated, err := s.webhooks.Rotate(r.Context(), caller(r), id, secret, grace, once)
	if err != nil || s.replayed(w, once) {
		return err
	}
	return s.writeWebhook(w, r, http.StatusOK, rotated)
}

// read returns the secret, "" to have one made, and the grace period.
func (d secretRotation) read() (secret string, grace time.Duration, err error) {
	v := validate.Struct(d)
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

// decodeOptional is decode for a request that may come without a body.
func (s *Server) decodeOptional(w http.ResponseWriter, r *http.Request, v any) ([]byte, error) {
	body, _, err := readBody(w, r, s.opts.MaxBody, contentTypeJSON)
	if err != nil || len(bytes.TrimSpace(body)) == 0 {
		return body, err
	}
	return body, strictjson.Decode(body, v)
}

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
	if err := refuseBody(r); err != nil {
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
	if err := validate.Struct(d).Err(); err != nil {
		return err
	}
	n, err := s.webhooks.RedeliverSince(r.Context(), caller(r), id, *d.Since)
	if err != nil {
		return err
	}
	return s.writeJSON(w, r, http.StatusAccepted, redeliveryResult{n})
}
