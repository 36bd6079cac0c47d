package models

import (
	"encoding/json"
	"time"
)

// Publication is a message from a sender to all agents that subscribe to its type, or to one agent.
type Publication struct {
	// ID is a UUIDv7. It is also the id of the inbox messages, the same for every receiver and delivery.
	ID string
	// From is the sender's agent id or name. To is the only receiver, "" for all subscribers.
	From string `gorm:"column:from_name"`
	To   string `gorm:"column:recipient"`
	// Type is a word or words with dots between them; Name is for people.
	Type, Name string
	// Payload is any JSON value.
	Payload json.RawMessage
	// SchemaVersion and ContentType describe the payload.
	SchemaVersion, ContentType string
	// Guarantee is at-most-once, at-least-once or exactly-once.
	Guarantee string
	// DeduplicationID is unique for the sender within a day, "" for none.
	DeduplicationID string
	// MaxAttempts limits the deliveries without an acknowledgement. The n-th one is followed by a wait of
	// InitialInterval times Coefficient to the power of n-1.
	MaxAttempts     int
	InitialInterval time.Duration
	Coefficient     float64
	// MessageID is the id that the sender gave it, "" for none, and Meta is JSON that the sender's protocol
	// stores with it.
	MessageID string
	Meta      json.RawMessage
	// Trace is a W3C traceparent, "" for none.
	Trace     string
	CreatedAt time.Time
}

// Wait returns how long a receiver may take to acknowledge the n-th delivery, counted from 1.
func (p Publication) Wait(n int) time.Duration {
	wait := float64(p.InitialInterval)
	for range n - 1 {
		if wait *= p.Coefficient; wait >= float64(maxWait) {
			return maxWait
		}
	}
	return time.Duration(wait)
}

// maxWait is the longest wait between two deliveries.
const maxWait = 24 * time.Hour
