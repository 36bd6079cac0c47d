package models

import (
	"encoding/json"
	"time"
)

// ToolClass is what a tool may do to the world (MCP, tool annotations).
type ToolClass string

// The classes, the mildest first.
const (
	ToolRead        ToolClass = "read"
	ToolWrite       ToolClass = "write"
	ToolDestructive ToolClass = "destructive"
)

// ToolDefinition is what is known about a tool of an upstream: what was approved, and what
// the upstream says now where that is something else.
type ToolDefinition struct {
	Server string `gorm:"primaryKey"`
	Name   string `gorm:"primaryKey"`
	State  string // approved or quarantined
	// Digest is the SHA-256 of what was approved, in hexadecimal; Definition is that.
	Digest     string
	Definition json.RawMessage
	// PendingDigest and Pending are what waits for approval, "" and nil for nothing.
	PendingDigest string
	Pending       json.RawMessage
	// Class replaces what the annotations say; "" does not.
	Class      ToolClass
	SeenAt     time.Time `gorm:"<-:create"` // when it was seen first
	ChangedAt  time.Time // when it was quarantined last, zero for never
	ApprovedAt time.Time
	ApprovedBy string
}

// ToolRule is a pattern of tool calls. In patterns * matches any characters and ? one.
type ToolRule struct {
	// A pattern of `server:tool`; without a colon, of the server.
	Tool string `json:"tool" validate:"required,max=300" example:"filesystem:write_*"`
	// Patterns of argument values by the path of the argument (`path`, `options.mode`), or `*` for every argument; all must match.
	Arguments map[string]string `json:"arguments,omitempty" validate:"max=20,dive,keys,max=200,endkeys,max=300"`
}

// ToolPolicy is the tool policy of a token. A token without one may call all tools.
type ToolPolicy struct {
	// The tools that may be called; empty for all.
	Allow []ToolRule `json:"allow" validate:"max=200,dive"`
	// The tools that may not be called, even if `allow` matches.
	Deny []ToolRule `json:"deny" validate:"max=200,dive"`
	// The classes that may be called; empty for all.
	Classes []ToolClass `json:"classes" validate:"max=3,dive,oneof=read write destructive" swaggertype:"array,string" enums:"read,write,destructive"`
}

// ToolCall is a line of the audit trail: who called what, and how it ended. What was said
// is not in it, only a digest.
type ToolCall struct {
	ID string // UUIDv7: the order in which they began
	At time.Time
	// Source is the API of the call: mcp, rest, code or task.
	Source string
	// TokenID and Actor are whose token it was and its name.
	TokenID string
	Actor   string
	// AgentID is the agent that paid.
	AgentID string
	Server  string
	Tool    string
	Class   ToolClass
	// Digest is the SHA-256 of the arguments, in hexadecimal.
	Digest  string
	Outcome string // success, error or refused
	// Error is the code of what went wrong, "" for nothing.
	Error    string
	Duration time.Duration
	// Tokens is what arguments and result were counted as.
	Tokens int64
	// ParentID is the call this one was made by, "" for none; TaskID the task.
	ParentID string
	TaskID   string
	TraceID  string
}

// Upstream is an upstream that was created or replaced.
//
// It was added at run time; servers that are defined in a file are not stored.
type Upstream struct {
	// The upstream's id.
	ID string `json:"id" example:"filesystem"`
	// Config is its entry in the JSON of "mcpServers". It refers to secrets and contains none.
	Config json.RawMessage `json:"-"`
	// The id of the token that created it.
	TokenID string `json:"-"`
	// Incremented with every change.
	Version   int64     `json:"version" example:"1"`
	CreatedBy string    `json:"created_by" example:"bootstrap-admin"`
	CreatedAt time.Time `json:"created_at" example:"2026-01-10T15:30:00Z"`
	UpdatedAt time.Time `json:"updated_at" example:"2026-01-10T15:30:00Z"`
} // @name UpstreamSaved
