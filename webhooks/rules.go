package webhooks

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/input"
	"comet/models"
	"comet/webhooks/signature"
)

// defaultGrace is how long the old keys also sign after a rotation, by default.
const defaultGrace = 24 * time.Hour

// checkURL validates a URL without name resolution; every connection checks addresses.
func (w *Webhooks) checkURL(v *errs.Violations, text string) {
	if rule, err := w.opts.Guard.CheckURL(text, MaxWebhookURL, w.opts.HTTPSOnly); err != nil {
		v.Add(errs.CodeOf(err), "/url", rule, "%s", errs.From(err).Detail)
	}
}

func checkEvents(v *errs.Violations, types []models.EventType) {
	known := make([]string, 0, len(events.ForWebhooks()))
	for _, t := range events.ForWebhooks() {
		known = append(known, string(t))
	}
	for i, t := range types {
		if slices.Contains(known, string(t)) {
			continue
		}
		v.Add(errs.InvalidRequest, "/events/"+strconv.Itoa(i), "event", "%s is not an event type; the types are %s%s",
			input.Quote(string(t)), strings.Join(known, ", "), input.DidYouMean(string(t), known))
	}
}

// checkSecret parses a secret chosen by the client, or generates one.
func checkSecret(v *errs.Violations, text *string) []byte {
	if text == nil {
		return signature.NewSecret()
	}
	secret, err := signature.ParseSecret(*text)
	if *text == "" {
		v.Add(errs.InvalidRequest, "/secret", "secret", "secret must not be empty; omit it to have one generated")
	} else if err != nil {
		v.Add(errs.InvalidRequest, "/secret", "secret", "%s", errs.From(err).Detail)
	}
	return secret
}

func checkFilter(v *errs.Violations, agentID *string, subtree bool, exists func(id string) (bool, error)) error {
	if subtree && agentID == nil {
		v.Add(errs.InvalidRequest, "/subtree", "agent_id", "subtree requires agent_id, because it selects the agents below it")
	}
	if agentID == nil || v.Has("/agent_id") {
		return nil
	}
	found, err := exists(*agentID)
	if err == nil && !found {
		v.Add(errs.InvalidRequest, "/agent_id", "exists", "there is no agent %q", *agentID)
	}
	return err
}

// Limits of webhooks.
const (
	// MaxWebhooks limits the number of webhooks.
	MaxWebhooks = 1000
	// MaxWebhookURL is the longest URL, in bytes.
	MaxWebhookURL = 2048
)

// WebhookDraft is a request for a webhook (CHE·NU §9).
type WebhookDraft struct {
	URL         *string            `json:"url" validate:"required" example:"https://your-server.com/webhook" maxLength:"2048"`                                                                                                                                                                                  // The address that receives the events.
	Events      []models.EventType `json:"events" validate:"required,min=1,max=32,unique" swaggertype:"array,string" enums:"agent.created,agent.updated,agent.deactivated,agent.budget_warning,agent.budget_exceeded,webhook.disabled" example:"agent.created,agent.updated,agent.budget_warning" minItems:"1"` // The types of the events to deliver.
	Description string             `json:"description" validate:"text,max=500" example:"budget alerts to the on-call channel" maxLength:"500" extensions:"x-nullable"`                                                                                                                                          // A note of your own.
	Secret      *string            `json:"secret" example:"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" maxLength:"128" extensions:"x-nullable"`                                                                                                                                                                     // The signing secret: `whsec_` and 24 to 64 bytes in base64; without it comet generates one.
	AgentID     *string            `json:"agent_id" validate:"omitnil,agentid" example:"finance-personal" maxLength:"64" extensions:"x-nullable"`                                                                                                                                                               // Selects the events of one agent; null selects those of all agents.
	Subtree     *bool              `json:"subtree" example:"false" extensions:"x-nullable"`                                                                                                                                                                                                                     // Whether agent_id also selects the descendants of the agent.
	Ordering    *models.Ordering   `json:"ordering" validate:"omitnil,oneof=none agent" example:"none" enums:"none,agent" extensions:"x-nullable"`                                                                                                                                                              // Whether events of the same agent are delivered in order.
	Enabled     *bool              `json:"enabled" example:"true" extensions:"x-nullable"`                                                                                                                                                                                                                      // Whether events are delivered.
	Asymmetric  *bool              `json:"asymmetric" example:"false" extensions:"x-nullable"`                                                                                                                                                                                                                  // Whether to sign with an Ed25519 key (v1a) too, whose public half is shown.
}

// WebhookPatch is a request to change the members that are present.
type WebhookPatch struct {
	URL         models.Optional[string]             `json:"url" swaggertype:"string" example:"https://your-server.com/webhook" maxLength:"2048"`                                                                                                                                                           // The address that receives the events.
	Events      models.Optional[[]models.EventType] `json:"events" validate:"omitnil,min=1,max=32,unique" swaggertype:"array,string" enums:"agent.created,agent.updated,agent.deactivated,agent.budget_warning,agent.budget_exceeded,webhook.disabled" example:"agent.created,agent.updated" minItems:"1"` // The types of the events to deliver.
	Description models.Optional[string]             `json:"description" validate:"omitnil,text,max=500" swaggertype:"string" example:"budget alerts" maxLength:"500" extensions:"x-nullable"`                                                                                                              // A note of your own; null removes it.
	AgentID     models.Optional[string]             `json:"agent_id" validate:"omitnil,agentid" swaggertype:"string" example:"finance-personal" maxLength:"64" extensions:"x-nullable"`                                                                                                                    // Selects the events of one agent; null selects those of all agents.
	Subtree     models.Optional[bool]               `json:"subtree" swaggertype:"boolean" example:"false"`                                                                                                                                                                                                 // Whether agent_id also selects the descendants of the agent.
	Ordering    models.Optional[models.Ordering]    `json:"ordering" validate:"omitnil,oneof=none agent" swaggertype:"string" example:"agent" enums:"none,agent"`                                                                                                                                          // Whether events of the same agent are delivered in order.
	Enabled     models.Optional[bool]               `json:"enabled" swaggertype:"boolean" example:"true"`                                                                                                                                                                                                  // Whether events are delivered; true also ends a disabling by comet.
	Asymmetric  models.Optional[bool]               `json:"asymmetric" swaggertype:"boolean" example:"true"`                                                                                                                                                                                               // Whether to sign with an Ed25519 key (v1a) too.
}

// SecretRotation is the body of a request to rotate a secret.
type SecretRotation struct {
	// The new secret, `whsec_` and 24 to 64 bytes in base64; generated if it is omitted.
	Secret *string `json:"secret" example:"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" maxLength:"128" extensions:"x-nullable"`
	// How long deliveries are also signed with the previous secret, in seconds.
	GraceSeconds *int64 `json:"grace_seconds" validate:"omitnil,min=0,max=604800" example:"86400" minimum:"0" maximum:"604800" default:"86400" extensions:"x-nullable"`
}

// WebhookDisabled is the data of webhook.disabled.
type WebhookDisabled struct {
	ID           string     `json:"id" example:"01890a5d-ac96-774b-bcce-b302099a8057"`                    // The webhook's id.
	Origin       string     `json:"origin" example:"https://your-server.com"`                             // The scheme, host and port of the URL; the path may hold a secret.
	Description  string     `json:"description" example:"budget alerts to the on-call channel"`           // The webhook's description.
	AgentID      *string    `json:"agent_id" example:"finance-personal" extensions:"x-nullable"`          // The agent whose events it received, null for all agents.
	Reason       string     `json:"reason" example:"no delivery succeeded for 5 days"`                    // Why comet disabled it.
	FailingSince *time.Time `json:"failing_since" example:"2026-01-05T15:30:00Z" extensions:"x-nullable"` // The first failure after the last success; null if the webhook responded with 410.
}

// WebhookTest is the data of webhook.test.
type WebhookTest struct {
	WebhookID string `json:"webhook_id" example:"01890a5d-ac96-774b-bcce-b302099a8057"`                              // The webhook's id.
	Message   string `json:"message" example:"This is a test: what arrives here is signed and sent like any event."` // A text for the reader.
}
