package models

import (
	"fmt"
	"time"
)

// The lengths of a key that was agreed on elsewhere, in bytes of text.
const (
	MinAgentKey = 16
	MaxAgentKey = 128
)

// AgentKey is what an agent signs its lines with (PROTOCOL_V5 §11). It has to sign, so
// that it is kept as it is; it is never shown after it was made.
type AgentKey struct {
	AgentID string
	// Number is the agent's own, see WorkerName.
	Number int64
	// Secret is text, and its bytes are the key.
	Secret string
	// Fingerprint is the first 8 hex digits of the secret's SHA-256.
	Fingerprint string
	// Required says that every line of the agent has to be signed.
	Required  bool
	CreatedAt time.Time
	CreatedBy string // name of the principal
}

// AgentKeyDraft is the body of a request that gives an agent a key.
type AgentKeyDraft struct {
	// Key is one that was agreed on elsewhere; one is made where it is left out.
	Key *string `json:"key" minLength:"16" maxLength:"128" extensions:"x-nullable"`
	// Required stays as it is where it is left out, and is false for a first key.
	Required *bool `json:"required" example:"true" extensions:"x-nullable"`
}

// AgentKeyChange is the body of a request that changes what a key is for.
type AgentKeyChange struct {
	Required *bool `json:"required" validate:"required" example:"true"`
}

// KeyChanged is the data of the key events; it never holds a key.
type KeyChanged struct {
	AgentID     string `json:"agent_id"`
	Fingerprint string `json:"fingerprint"`
	Required    bool   `json:"required"`
	Actor       string `json:"actor"`
}

// WorkerName is what the agent with a number is called in lines (PROTOCOL_V5 §2.1): W1 to
// W99, and after these W1.1 and on.
func WorkerName(number int64) string {
	if number <= 99 {
		return fmt.Sprintf("W%d", number)
	}
	return fmt.Sprintf("W%d.%d", (number-1)%99+1, (number-1)/99)
}
