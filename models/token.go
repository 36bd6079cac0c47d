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
	// ScopeWorkflowsApprove allows decisions on workflows of other tokens that request an approver.
	ScopeWorkflowsApprove Scope = "workflows:approve"
)

// Scopes returns every scope there is.
func Scopes() []Scope {
	return []Scope{
		ScopeAdmin, ScopeAgentsRead, ScopeAgentsWrite, ScopeUsageWrite,
		ScopeWebhooksWrite, ScopeMessagesSend, ScopeTasksRead, ScopeToolsCall, ScopeWorkflowsApprove,
	}
}

// Token is a token without its secret.
//
// Only the SHA-256 of the secret is kept.
type Token struct {
	ID   string   `json:"id" example:"01890a5d-ac96-774b-bcce-b302099a8057"` // The token's id.
	Name string   `json:"name" example:"ci-importer"`                        // The name that audit logs show.
	Hash [32]byte `json:"-"`
	// Configured is the SHA-256 of the COMET_ADMIN_TOKEN that the bootstrap token
	// was last set from; nil for every other token. Rotation leaves it as it is.
	Configured []byte     `json:"-"`
	Scopes     []Scope    `json:"scopes" example:"agents:read,agents:write" gorm:"serializer:json"` // The permissions of the token.
	AgentID    *string    `json:"agent_id" example:"finance-personal"`                              // The agent that the token is bound to.
	ParentID   *string    `json:"parent_id" example:"01890a5d-ac96-774b-bcce-b302099a8056"`         // The token that created it and with which it is revoked; null if an administrator created it.
	CreatedBy  string     `json:"created_by" example:"bootstrap-admin"`
	CreatedAt  time.Time  `json:"created_at" example:"2026-01-10T15:30:00Z"`
	RotatedAt  *time.Time `json:"rotated_at" example:"2026-01-11T15:30:00Z"`   // When the secret was last replaced; null if it never was.
	LastUsedAt *time.Time `json:"last_used_at" example:"2026-01-12T15:30:00Z"` // When it was last used, to the minute; null if it never was.
	ExpiresAt  *time.Time `json:"expires_at" example:"2027-01-10T00:00:00Z"`   // When it expires; null if it does not.
	RevokedAt  *time.Time `json:"revoked_at" example:"2026-01-12T15:30:00Z"`   // When it was revoked; null if it was not.
} // @name TokenView

// Active reports whether the token may be used at now.
func (t Token) Active(now time.Time) bool {
	return t.RevokedAt == nil && (t.ExpiresAt == nil || now.Before(*t.ExpiresAt))
}

// Version increases with every change of the token except its use.
func (t Token) Version() int64 {
	version := t.CreatedAt
	for _, at := range []*time.Time{t.RotatedAt, t.RevokedAt} {
		if at != nil && at.After(version) {
			version = *at
		}
	}
	return version.UnixMicro()
}

// Principal is who makes a request.
type Principal struct {
	TokenID string
	// Name is the token's name; it is what audit trails show.
	Name    string
	Scopes  []Scope
	AgentID *string
	// Issued is the JWT of the issuer, which is not stored; nil for a stored token.
	Issued *Token
	// LoginID is the login of a browser that acts with the token until LoginEnds, "" for the token itself.
	LoginID   string
	LoginEnds time.Time
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

// Administers reports whether the principal has the scope admin for the whole system: its token is bound
// to no agent or to the root.
func (p Principal) Administers() bool {
	return p.Has(ScopeAdmin) && (p.AgentID == nil || *p.AgentID == RootAgentID)
}

// AgentKey is a key that verifies the messages of an agent. An agent has at most one key of hmac-sha256.
// That key also signs messages to the agent, so it is stored encrypted and not hashed; APIs return it only when it is issued.
type AgentKey struct {
	AgentID string `gorm:"primaryKey"`
	// KeyID is 16 hexadecimal digits. It reveals nothing about a secret.
	KeyID string `gorm:"primaryKey"`
	// Algorithm is "hmac-sha256" or "ed25519".
	Algorithm string
	// Secret is the key of hmac-sha256: text, whose bytes are the key. It is "" for ed25519.
	Secret string
	// PublicKey is the key of ed25519: 32 bytes in base64. It is "" for hmac-sha256.
	PublicKey string
	// Fingerprint is the first 8 hex digits of the SHA-256 of Secret or PublicKey.
	Fingerprint string `gorm:"-"`
	// Profile says what a signature must cover: "v1" or "jcs". It is "" for hmac-sha256.
	Profile string
	// Required says that every message of the agent must be signed.
	Required bool
	// SignatureOnly says that a signature replaces a token: the message is the agent's own.
	SignatureOnly bool `gorm:"column:speaks"`
	CreatedAt     time.Time
	CreatedBy     string // name of the principal
	// NotAfter is when the key expires, and RevokedAt when it was revoked; nil if it does not or was not.
	NotAfter, RevokedAt *time.Time
}

// Live reports whether the key is valid at a time.
func (k AgentKey) Live(now time.Time) bool {
	return k.RevokedAt == nil && (k.NotAfter == nil || now.Before(*k.NotAfter))
}
