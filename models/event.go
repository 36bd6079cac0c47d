package models

import (
	"encoding/json"
	"time"
)

// EventType is the type of an event; package events declares them.
type EventType string

// Event is a committed change. The transaction of the change writes it, the relay numbers it after
// the commit.
type Event struct {
	// ID is a UUIDv7. Deliveries to webhooks send it as webhook-id.
	ID string
	// Position is gapless and in commit order; 0 until the relay has numbered the event.
	Position int64 `gorm:"->"`
	Type     EventType
	// Key is what the event is about, usually the agent's id. Ordered deliveries apply per key.
	Key  string
	At   time.Time
	Data json.RawMessage
}
