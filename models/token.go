package models

import (
	"slices"
	"time"
)

// Scope is one permission of a token.
type Scope string // @name TokenScope

// The scopes.
const (
	ScopeAdmin         Scope = "admin"
	ScopeAgentsRead    Scope = "agents:read"
	ScopeAgentsWrite   Scope = "agents:write"
	ScopeUsageWrite    Scope = "usage:write"
	ScopeWebhooksWrite Scope = "webhooks:write"
	ScopeMessagesSend  Scope = "messages:send"
	ScopeTasksRead     Scope = "tasks:read"
	ScopeToolsCall     Scope = "tools:call"
)

// Scopes returns every scope there is.
func Scopes() []Scope {
	return []Scope{
		ScopeAdmin, ScopeAgentsRead, ScopeAgentsWrite, ScopeUsageWrite,
		ScopeWebhooksWrite, ScopeMessagesSend, ScopeTasksRead, ScopeToolsCall,
	}
}

// MaxTokenLength is the longest secret that a bearer token may have, in bytes.
const MaxTokenLength = 512

// Token is a bearer token without its secret, of which only the SHA-256 is kept.
type Token struct {
	ID   string
	Name string
	Hash [32]byte
	// Configured is the SHA-256 of the COMET_ADMIN_TOKEN that the bootstrap token
	// was last set from; nil for every other token. Rotation leaves it as it is.
	Configured []byte
	Scopes     []Scope `gorm:"serializer:json"`
	AgentID    *string // the agent that holds it, nil for none
	CreatedBy  string  // name of the principal
	CreatedAt  time.Time
	RotatedAt  *time.Time
	ExpiresAt  *time.Time
	RevokedAt  *time.Time
}

// Active reports whether the token may be used at now.
func (t Token) Active(now time.Time) bool {
	return t.RevokedAt == nil && (t.ExpiresAt == nil || now.Before(*t.ExpiresAt))
}

// Principal is who makes a request.
type Principal struct {
	TokenID string
	// Name is the token's name; it is what audit trails show.
	Name    string
	Scopes  []Scope
	AgentID *string
}

// System is the principal of what comet does by itself.
func System() Principal {
	return Principal{TokenID: "system", Name: "system", Scopes: []Scope{ScopeAdmin}}
}

// Has reports whether the principal holds the scope: admin implies all others,
// and agents:write implies agents:read.
func (p Principal) Has(s Scope) bool {
	if slices.Contains(p.Scopes, ScopeAdmin) || slices.Contains(p.Scopes, s) {
		return true
	}
	return s == ScopeAgentsRead && slices.Contains(p.Scopes, ScopeAgentsWrite)
}

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
