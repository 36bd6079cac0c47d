package webhooks

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/net/http/httpguts"

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
	var known []string
	for _, t := range append(events.ForWebhooks(), "agent.*", "webhook.*", "workflow.*", "schedule.*", "publication.*", "*") {
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

// The limits of a webhook's headers.
const (
	maxHeaders     = 20
	maxHeaderBytes = 4096 // names and values
)

// checkHeaders checks the headers that a webhook adds to its requests.
func checkHeaders(v *errs.Violations, headers map[string]string) {
	size, seen := 0, map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		header := http.CanonicalHeaderKey(name)
		size += len(name) + len(headers[name])
		switch pointer := string(jsontext.Pointer("/headers").AppendToken(name)); {
		case !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(headers[name]):
			v.Add(errs.InvalidRequest, pointer, "header", "%s is not the name of an HTTP header, or its value is not allowed in a header", input.Quote(name))
		case seen[header]:
			v.Add(errs.InvalidRequest, pointer, "unique", "the header %s is given twice", header)
		case strings.HasPrefix(header, "Webhook-") || slices.Contains(reservedHeaders(), header):
			v.Add(errs.InvalidRequest, pointer, "reserved", "the header %s is set by comet or belongs to the connection; choose another name", header)
		}
		seen[header] = true
	}
	if len(headers) > maxHeaders || size > maxHeaderBytes {
		v.Add(errs.InvalidRequest, "/headers", "max", "headers must be at most %d with %d bytes of names and values", maxHeaders, maxHeaderBytes)
	}
}

// reservedHeaders returns the names of headers that a webhook cannot set.
func reservedHeaders() []string {
	return []string{
		"Connection", "Content-Encoding", "Content-Length", "Content-Type", "Expect", "Host", "Keep-Alive", "Proxy-Authorization",
		"Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "User-Agent",
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

// RedeliveryDraft is a request to deliver ended deliveries again.
type RedeliveryDraft struct {
	Since            *time.Time         `json:"since" validate:"required" example:"2026-01-10T00:00:00Z"`                                                                                                                                                                                                                                                                                                                                                                                                              // Deliveries created at this time or later.
	Until            *time.Time         `json:"until" example:"2026-01-11T00:00:00Z" extensions:"x-nullable"`                                                                                                                                                                                                                                                                                                                                                                                                          // Deliveries created before this time; null for no limit.
	Events           []models.EventType `json:"events" validate:"max=32,unique" swaggertype:"array,string" enums:"agent.created,agent.updated,agent.deactivated,agent.budget_warning,agent.budget_exceeded,webhook.disabled,webhook.delivery_dead,workflow.started,workflow.paused,workflow.resumed,workflow.ended,schedule.created,schedule.changed,schedule.deleted,schedule.run,schedule.failed,publication.dead,agent.*,webhook.*,workflow.*,schedule.*,publication.*,*" example:"agent.budget_warning,webhook.*"` // The types of the events, as in the webhook; empty for all.
	IncludeSucceeded bool               `json:"include_succeeded" example:"false"`                                                                                                                                                                                                                                                                                                                                                                                                                                     // Whether deliveries that succeeded are sent again, too.
	IncludeMissed    bool               `json:"include_missed" example:"false"`                                                                                                                                                                                                                                                                                                                                                                                                                                        // Whether events that the webhook has not received, because it was created later, was disabled or had another filter, are delivered, too.
} // @name RedeliveryRequest

// WebhookDraft is a request for a webhook (CHE·NU §9).
type WebhookDraft struct {
	URL            *string            `json:"url" validate:"required" example:"https://your-server.com/webhook" maxLength:"2048"`                                                                                                                                                                                                                                                                                                                                                                                                                                  // The address that receives the events.
	Events         []models.EventType `json:"events" validate:"required,min=1,max=32,unique" swaggertype:"array,string" enums:"agent.created,agent.updated,agent.deactivated,agent.budget_warning,agent.budget_exceeded,webhook.disabled,webhook.delivery_dead,workflow.started,workflow.paused,workflow.resumed,workflow.ended,schedule.created,schedule.changed,schedule.deleted,schedule.run,schedule.failed,publication.dead,agent.*,webhook.*,workflow.*,schedule.*,publication.*,*" example:"agent.created,agent.updated,agent.budget_warning" minItems:"1"` // The types of the events to deliver; `agent.*`, `webhook.*`, `workflow.*`, `schedule.*`, `publication.*` and `*` select several.
	Description    string             `json:"description" validate:"text,max=500" example:"budget alerts to the on-call channel" maxLength:"500" extensions:"x-nullable"`                                                                                                                                                                                                                                                                                                                                                                                          // A note of your own.
	Secret         *string            `json:"secret" example:"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" maxLength:"128" extensions:"x-nullable"`                                                                                                                                                                                                                                                                                                                                                                                                                     // The signing secret: `whsec_` and 24 to 64 bytes in base64; without it comet generates one.
	AgentID        *string            `json:"agent_id" validate:"omitnil,agentid" example:"finance-personal" maxLength:"64" extensions:"x-nullable"`                                                                                                                                                                                                                                                                                                                                                                                                               // Selects the events of one agent; null selects those of all agents.
	Subtree        *bool              `json:"subtree" example:"false" extensions:"x-nullable"`                                                                                                                                                                                                                                                                                                                                                                                                                                                                     // Whether agent_id also selects the descendants of the agent.
	Ordering       *models.Ordering   `json:"ordering" validate:"omitnil,oneof=none agent" example:"none" enums:"none,agent" extensions:"x-nullable"`                                                                                                                                                                                                                                                                                                                                                                                                              // Whether events of the same agent are delivered in order.
	Headers        map[string]string  `json:"headers" example:"Authorization:Bearer 3f2b8c1d" extensions:"x-nullable"`                                                                                                                                                                                                                                                                                                                                                                                                                                             // HTTP headers of the requests; their values are never returned.
	TimeoutSeconds *int               `json:"timeout_seconds" validate:"omitnil,min=1,max=60" example:"30" minimum:"1" maximum:"60" extensions:"x-nullable"`                                                                                                                                                                                                                                                                                                                                                                                                       // How long an attempt may take; null is the limit of the server, 15 seconds by default.
	RetrySeconds   []int              `json:"retry_seconds" validate:"omitempty,max=12,dive,min=1,max=86400" example:"10,60,600" extensions:"x-nullable"`                                                                                                                                                                                                                                                                                                                                                                                                          // The waits before the retries, 12 at most; empty for the default schedule.
	Enabled        *bool              `json:"enabled" example:"true" extensions:"x-nullable"`                                                                                                                                                                                                                                                                                                                                                                                                                                                                      // Whether events are delivered.
	Asymmetric     *bool              `json:"asymmetric" example:"false" extensions:"x-nullable"`                                                                                                                                                                                                                                                                                                                                                                                                                                                                  // Whether to sign with an Ed25519 key (v1a) too, whose public half is shown.
}

// WebhookPatch is a request to change the members that are present.
type WebhookPatch struct {
	URL            models.Optional[string]             `json:"url" swaggertype:"string" example:"https://your-server.com/webhook" maxLength:"2048"`                                                                                                                                                                                                                                                                                                                                                                                                           // The address that receives the events.
	Events         models.Optional[[]models.EventType] `json:"events" validate:"omitnil,min=1,max=32,unique" swaggertype:"array,string" enums:"agent.created,agent.updated,agent.deactivated,agent.budget_warning,agent.budget_exceeded,webhook.disabled,webhook.delivery_dead,workflow.started,workflow.paused,workflow.resumed,workflow.ended,schedule.created,schedule.changed,schedule.deleted,schedule.run,schedule.failed,publication.dead,agent.*,webhook.*,workflow.*,schedule.*,publication.*,*" example:"agent.created,agent.updated" minItems:"1"` // The types of the events to deliver; `agent.*`, `webhook.*`, `workflow.*`, `schedule.*`, `publication.*` and `*` select several.
	Description    models.Optional[string]             `json:"description" validate:"omitnil,text,max=500" swaggertype:"string" example:"budget alerts" maxLength:"500" extensions:"x-nullable"`                                                                                                                                                                                                                                                                                                                                                              // A note of your own; null removes it.
	AgentID        models.Optional[string]             `json:"agent_id" validate:"omitnil,agentid" swaggertype:"string" example:"finance-personal" maxLength:"64" extensions:"x-nullable"`                                                                                                                                                                                                                                                                                                                                                                    // Selects the events of one agent; null selects those of all agents.
	Subtree        models.Optional[bool]               `json:"subtree" swaggertype:"boolean" example:"false"`                                                                                                                                                                                                                                                                                                                                                                                                                                                 // Whether agent_id also selects the descendants of the agent.
	Ordering       models.Optional[models.Ordering]    `json:"ordering" validate:"omitnil,oneof=none agent" swaggertype:"string" example:"agent" enums:"none,agent"`                                                                                                                                                                                                                                                                                                                                                                                          // Whether events of the same agent are delivered in order.
	Headers        models.Optional[map[string]string]  `json:"headers" swaggertype:"object,string" example:"Authorization:Bearer 3f2b8c1d" extensions:"x-nullable"`                                                                                                                                                                                                                                                                                                                                                                                           // HTTP headers of the requests, which replace all earlier ones; null removes them.
	TimeoutSeconds models.Optional[int]                `json:"timeout_seconds" validate:"omitnil,min=1,max=60" swaggertype:"integer" example:"30" minimum:"1" maximum:"60" extensions:"x-nullable"`                                                                                                                                                                                                                                                                                                                                                           // How long an attempt may take; null is the limit of the server.
	RetrySeconds   models.Optional[[]int]              `json:"retry_seconds" validate:"omitempty,max=12,dive,min=1,max=86400" swaggertype:"array,integer" example:"10,60,600" extensions:"x-nullable"`                                                                                                                                                                                                                                                                                                                                                        // The waits before the retries, 12 at most; null for the default schedule.
	Enabled        models.Optional[bool]               `json:"enabled" swaggertype:"boolean" example:"true"`                                                                                                                                                                                                                                                                                                                                                                                                                                                  // Whether events are delivered; true also ends a disabling by comet.
	Asymmetric     models.Optional[bool]               `json:"asymmetric" swaggertype:"boolean" example:"true"`                                                                                                                                                                                                                                                                                                                                                                                                                                               // Whether to sign with an Ed25519 key (v1a) too.
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

// DeliveryDead is the data of webhook.delivery_dead.
type DeliveryDead struct {
	WebhookID   string           `json:"webhook_id" example:"01890a5d-ac96-774b-bcce-b302099a8057"`   // The webhook's id.
	Origin      string           `json:"origin" example:"https://your-server.com"`                    // The scheme, host and port of the URL.
	Description string           `json:"description" example:"budget alerts to the on-call channel"`  // The webhook's description.
	AgentID     *string          `json:"agent_id" example:"finance-personal" extensions:"x-nullable"` // The agent whose events it receives, null for all agents.
	DeliveryID  string           `json:"delivery_id" example:"01890a5d-ac96-774b-bcce-b302099a8058"`  // The delivery's id.
	EventID     string           `json:"event_id" example:"01890a5d-ac96-774b-bcce-b302099a8059"`     // The id of the event that was not delivered.
	Event       models.EventType `json:"event" swaggertype:"string" example:"agent.updated"`          // The type of that event.
	Attempts    int              `json:"attempts" example:"8"`                                        // Number of attempts.
	Error       string           `json:"error" example:"the server answered 503 Service Unavailable"` // Why the last attempt failed.
}

// WebhookTest is the data of webhook.test.
type WebhookTest struct {
	WebhookID string `json:"webhook_id" example:"01890a5d-ac96-774b-bcce-b302099a8057"`                              // The webhook's id.
	Message   string `json:"message" example:"This is a test: what arrives here is signed and sent like any event."` // A text for the reader.
}
