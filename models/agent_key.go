package models

import "time"

// AgentKey is a key that verifies the messages of an agent. An agent has at most one key of each
// algorithm. A key of hmac-sha256 signs messages to the agent as well, so it is stored as it is;
// APIs return it only when it is issued.
type AgentKey struct {
	AgentID string `gorm:"primaryKey"`
	// Algorithm is "hmac-sha256" or "ed25519".
	Algorithm string `gorm:"primaryKey"`
	// Secret is the key of hmac-sha256: text, whose bytes are the key. It is "" for ed25519.
	Secret string
	// PublicKey is the key of ed25519: 32 bytes in base64. It is "" for hmac-sha256.
	PublicKey string
	// Fingerprint is the first 8 hex digits of the SHA-256 of Secret or PublicKey.
	Fingerprint string `gorm:"-"`
	// Required says that every message of the agent must be signed.
	Required  bool
	CreatedAt time.Time
	CreatedBy string // name of the principal
}
