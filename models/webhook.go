package models

import "time"

// Limits of webhooks.
const (
	// MaxWebhooks is how many webhooks there may be.
	MaxWebhooks = 1000
	// MaxWebhookURL is the longest URL, in bytes.
	MaxWebhookURL = 2048
	// MaxResponseExcerpt is how much of a response is kept, in bytes.
	MaxResponseExcerpt = 1024
)

// Ordering says in which order a webhook gets its events.
type Ordering string // @name DeliveryOrdering

// The orderings.
const (
	// OrderingNone delivers events side by side.
	OrderingNone Ordering = "none"
	// OrderingAgent never delivers an agent's later event before an earlier one
	// has succeeded or died.
	OrderingAgent Ordering = "agent"
)

// WebhookDraft is the body of a request for a webhook (CHE·NU §9).
type WebhookDraft struct {
	URL         *string     `json:"url" validate:"required" example:"https://your-server.com/webhook" maxLength:"2048"`
	Events      []EventType `json:"events" validate:"required,min=1,max=32,unique" swaggertype:"array,string" enums:"agent.created,agent.updated,agent.deactivated,agent.budget_warning,agent.budget_exceeded,webhook.disabled" example:"agent.created,agent.updated,agent.budget_warning" minItems:"1"`
	Description string      `json:"description" validate:"text,max=500" example:"budget alerts to the on-call channel" maxLength:"500" extensions:"x-nullable"`
	// Secret is whsec_ and 24 to 64 bytes in base64; one is made where it is left out.
	Secret *string `json:"secret" example:"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" maxLength:"128" extensions:"x-nullable"`
	// AgentID selects the events of one agent, with subtree of the agents below it too.
	AgentID  *string   `json:"agent_id" validate:"omitnil,agentid" example:"finance-personal" maxLength:"64" extensions:"x-nullable"`
	Subtree  *bool     `json:"subtree" example:"false" extensions:"x-nullable"`
	Ordering *Ordering `json:"ordering" validate:"omitnil,oneof=none agent" example:"none" enums:"none,agent" extensions:"x-nullable"`
	Enabled  *bool     `json:"enabled" example:"true" extensions:"x-nullable"`
	// Asymmetric signs with an Ed25519 key (v1a) as well; its public half is shown.
	Asymmetric *bool `json:"asymmetric" example:"false" extensions:"x-nullable"`
}

// WebhookPatch changes the members that are present.
type WebhookPatch struct {
	URL         Optional[string]      `json:"url" swaggertype:"string" example:"https://your-server.com/webhook" maxLength:"2048"`
	Events      Optional[[]EventType] `json:"events" validate:"omitnil,min=1,max=32,unique" swaggertype:"array,string" enums:"agent.created,agent.updated,agent.deactivated,agent.budget_warning,agent.budget_exceeded,webhook.disabled" example:"agent.created,agent.updated" minItems:"1"`
	Description Optional[string]      `json:"description" validate:"omitnil,text,max=500" swaggertype:"string" example:"budget alerts" maxLength:"500" extensions:"x-nullable"`
	AgentID     Optional[string]      `json:"agent_id" validate:"omitnil,agentid" swaggertype:"string" example:"finance-personal" maxLength:"64" extensions:"x-nullable"`
	Subtree     Optional[bool]        `json:"subtree" swaggertype:"boolean" example:"false"`
	Ordering    Optional[Ordering]    `json:"ordering" validate:"omitnil,oneof=none agent" swaggertype:"string" example:"agent" enums:"none,agent"`
	Enabled     Optional[bool]        `json:"enabled" swaggertype:"boolean" example:"true"`
	Asymmetric  Optional[bool]        `json:"asymmetric" swaggertype:"boolean" example:"true"`
}

// Webhook is a subscription of somebody's server to events.
type Webhook struct {
	ID          string
	URL         string
	Description string
	Events      []EventType
	AgentID     *string // nil hears of every agent
	Subtree     bool
	Ordering    Ordering
	Enabled     bool
	// DisabledReason says why comet disabled it; "" where its owner did.
	DisabledReason string
	DisabledAt     *time.Time
	// FailingSince is the first failure after the last success, nil while it works.
	FailingSince *time.Time
	// Failures counts the failures since then, the first few only.
	Failures  int
	Keys      WebhookKeys
	CreatedBy string
	CreatedAt time.Time
	UpdatedAt time.Time
}

// WebhookKeys are what a webhook's deliveries are signed with. They are never shown
// after they were made, but for the public half of the signing key.
type WebhookKeys struct {
	Secret []byte
	// SigningKey is an Ed25519 seed of 32 bytes, nil for none.
	SigningKey []byte
	// OldSecret and OldSigningKey sign too until OldUntil.
	OldSecret     []byte
	OldSigningKey []byte
	OldUntil      time.Time
}

// DeliveryState is where a delivery stands.
type DeliveryState string

// The states of a delivery.
const (
	// DeliveryPending waits for its next attempt, or behind an earlier event of its agent.
	DeliveryPending DeliveryState = "pending"
	// DeliverySucceeded was answered with 2xx.
	DeliverySucceeded DeliveryState = "succeeded"
	// DeliveryDead is not tried any more; it can be redelivered.
	DeliveryDead DeliveryState = "dead"
)

// Delivery is one event on its way to one webhook.
type Delivery struct {
	ID        string
	WebhookID string
	// EventID is the webhook-id header, the same on every attempt.
	EventID string
	Type    EventType
	Key     string
	EventAt time.Time
	Data    []byte // JSON
	State   DeliveryState
	// NextAttemptAt is nil unless it is pending and not behind another.
	NextAttemptAt *time.Time
	EndedAt       *time.Time
	// Attempts counts all attempts, Tries those since it was created or redelivered.
	Attempts  int
	Tries     int
	CreatedAt time.Time
}

// DeliveryAttempt is one try to deliver.
type DeliveryAttempt struct {
	Attempt    int       `json:"attempt" example:"1"`
	At         time.Time `json:"at" example:"2026-01-10T15:30:00Z"`
	DurationMS int64     `json:"duration_ms" example:"84"`
	// Status is the HTTP status of the response, absent without one.
	Status int `json:"status,omitempty" example:"503"`
	// Error says why the attempt failed, absent for a success.
	Error string `json:"error,omitempty" example:"the server answered 503 Service Unavailable"`
	// ResponseExcerpt is the beginning of the response's body.
	ResponseExcerpt string `json:"response_excerpt,omitempty" example:"upstream connect error"`
}

// DeliveryQuery selects a page of a webhook's deliveries, newest first.
type DeliveryQuery struct {
	State DeliveryState // "" for all
	Type  EventType     // "" for all
	// Since and Until bound the time of creation, [Since, Until); zero for no bound.
	Since, Until time.Time
	// Before is the id behind which the page starts, "" for the newest.
	Before string
	Limit  int
}

// WebhookDisabled is the data of webhook.disabled.
type WebhookDisabled struct {
	ID string `json:"id" example:"01890a5d-ac96-774b-bcce-b302099a8057"`
	// Origin is the URL's scheme, host and port; its path may hold a secret.
	Origin      string `json:"origin" example:"https://your-server.com"`
	Description string `json:"description" example:"budget alerts to the on-call channel"`
	// AgentID is the agent it heard of, null for every agent.
	AgentID *string `json:"agent_id" example:"finance-personal" extensions:"x-nullable"`
	Reason  string  `json:"reason" example:"no delivery succeeded for 5 days"`
	// FailingSince is null where the webhook answered 410.
	FailingSince *time.Time `json:"failing_since" example:"2026-01-05T15:30:00Z" extensions:"x-nullable"`
}

// WebhookTest is the data of webhook.test.
type WebhookTest struct {
	WebhookID string `json:"webhook_id" example:"01890a5d-ac96-774b-bcce-b302099a8057"`
	Message   string `json:"message" example:"This is a test: what arrives here is signed and sent like any event."`
}
