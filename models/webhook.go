package models

import (
	"encoding/json"
	"time"
)

// Ordering is the order in which a webhook receives its events.
type Ordering string // @name DeliveryOrdering

// The orderings.
const (
	// OrderingNone delivers events concurrently.
	OrderingNone Ordering = "none"
	// OrderingAgent delivers an event only after all earlier events of its agent are delivered or
	// dead.
	OrderingAgent Ordering = "agent"
)

// Webhook is a subscription of a URL to events.
type Webhook struct {
	ID          string
	URL         string
	Description string
	Events      []EventType `gorm:"serializer:json"`
	AgentID     *string     // nil for all agents
	Subtree     bool
	// ConfinedTo contains agents: only events of agents in the subtrees of all of them are sent. Empty is no limit.
	ConfinedTo []string `gorm:"serializer:json"`
	// TaskID is the task whose events it receives, nil for a webhook that Events select. ConfigID is its name in the task.
	TaskID   *string
	ConfigID string
	// Format names the form of its bodies, "" for that of webhooks.
	Format   string
	Ordering Ordering
	Enabled  bool
	// Headers are sent with every delivery. Their values are secrets.
	Headers map[string]string `gorm:"serializer:json"`
	// TimeoutSeconds limits an attempt; 0 for the server's limit.
	TimeoutSeconds int
	// RetrySeconds are the waits before the retries; empty for the default schedule.
	RetrySeconds []int `gorm:"serializer:json"`
	// DisabledReason says why comet disabled it; "" where its owner did.
	DisabledReason string
	DisabledAt     *time.Time
	// FailingSince is the first failure after the last success, nil while it works.
	FailingSince *time.Time
	// Failures counts the failures since then, the first few only.
	Failures  int
	Keys      WebhookKeys `gorm:"embedded"`
	Version   int64       // grows with every change by a user or disabling by comet
	TokenID   string      // of the token that created it
	CreatedBy string
	CreatedAt time.Time
	UpdatedAt time.Time
}

// WebhookKeys are the keys that sign a webhook's deliveries. After their creation only the
// public half of the signing key is shown.
type WebhookKeys struct {
	Secret []byte
	// SigningKey is an Ed25519 seed of 32 bytes, nil for none.
	SigningKey []byte
	// PreviousKeys sign too, each until its own end, the newest first.
	PreviousKeys []PreviousKeys `gorm:"serializer:json"`
}

// PreviousKeys are keys that a rotation has replaced. SigningKey may be nil.
type PreviousKeys struct {
	Secret, SigningKey []byte
	Until              time.Time
}

// DeliveryState is the state of a delivery.
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

// Delivery is the delivery of one event to one webhook.
type Delivery struct {
	ID        string    `json:"id" example:"01890a5d-ac96-774b-bcce-b302099a8057"`                                                                                                                                                                                                                                                                                                                         // The delivery's id.
	WebhookID string    `json:"webhook_id" example:"01890a5d-ac96-774b-bcce-b302099a8058"`                                                                                                                                                                                                                                                                                                                 // The webhook's id.
	EventID   string    `json:"event_id" example:"01890a5d-ac96-774b-bcce-b302099a8059"`                                                                                                                                                                                                                                                                                                                   // Value of the webhook-id header, equal for all attempts.
	Type      EventType `json:"event" swaggertype:"string" enums:"agent.created,agent.updated,agent.deactivated,agent.budget_warning,agent.budget_exceeded,webhook.disabled,webhook.delivery_dead,workflow.started,workflow.paused,workflow.resumed,workflow.ended,schedule.created,schedule.changed,schedule.deleted,schedule.run,schedule.failed,publication.dead,webhook.test" example:"agent.created"` // The type of the event.
	// What the event is about, usually an agent's id. Ordered delivery applies per key.
	Key     string          `json:"key" example:"finance-personal"`
	EventAt time.Time       `json:"event_at" example:"2026-01-10T15:30:00Z"` // When the event occurred.
	Data    json.RawMessage `json:"-"`
	State   DeliveryState   `json:"status" gorm:"-" swaggertype:"string" enums:"pending,succeeded,dead" example:"pending"` // The state of the delivery.
	// Number of attempts, including those before a redelivery.
	Attempts int `json:"attempt_count" example:"1"`
	// Null unless the delivery is pending and not waiting for an earlier event.
	NextAttemptAt *time.Time `json:"next_attempt_at" gorm:"-" example:"2026-01-10T15:30:05Z"`
	EndedAt       *time.Time `json:"ended_at" gorm:"-" example:"2026-01-10T15:30:00Z"` // Null while the delivery is pending.
	Tries         int        `json:"-"`                                                // Attempts since it was created or redelivered.
	CreatedAt     time.Time  `json:"created_at" example:"2026-01-10T15:30:00Z"`
}

// DeliveryAttempt is one attempt to deliver an event.
type DeliveryAttempt struct {
	Attempt    int       `json:"attempt" example:"1"`               // The number of the attempt, from 1.
	At         time.Time `json:"at" example:"2026-01-10T15:30:00Z"` // When the attempt started.
	DurationMS int64     `json:"duration_ms" example:"84"`          // Duration in milliseconds.
	// The HTTP status of the response; absent without one.
	Status int `json:"status,omitempty" example:"503"`
	// Why the attempt failed; absent if it succeeded.
	Error string `json:"error,omitempty" example:"the server answered 503 Service Unavailable"`
	// The beginning of the response's body.
	ResponseExcerpt string `json:"response_excerpt,omitempty" example:"upstream connect error"`
}
