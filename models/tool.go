package models

import (
	"encoding/json"
	"time"
)

// Bounds of tools.
const (
	// MaxToolName is how long the name of an upstream's tool may be, in bytes.
	MaxToolName = 128
	// MaxToolRules is how many rules a list of a token's policy may have.
	MaxToolRules = 200
	// MaxToolPattern is how long a pattern may be, in bytes.
	MaxToolPattern = 300
)

// ToolClass is what a tool may do to the world (MCP, tool annotations).
type ToolClass string

// The classes, the mildest first.
const (
	ToolRead        ToolClass = "read"
	ToolWrite       ToolClass = "write"
	ToolDestructive ToolClass = "destructive"
)

// ToolClasses returns all classes, the mildest first.
func ToolClasses() []ToolClass { return []ToolClass{ToolRead, ToolWrite, ToolDestructive} }

// ToolState is whether a tool can be called.
type ToolState string

// The states of a tool.
const (
	ToolApproved ToolState = "approved"
	// ToolQuarantined is a tool whose definition is another than the one that was approved.
	ToolQuarantined ToolState = "quarantined"
)

// ToolDefinition is what is known about a tool of an upstream: what was approved, and what
// the upstream says now where that is something else.
type ToolDefinition struct {
	Server string
	Name   string
	State  ToolState
	// Digest is the SHA-256 of what was approved, in hexadecimal; Definition is that.
	Digest     string
	Definition json.RawMessage
	// PendingDigest and Pending are what waits for approval, "" and nil for nothing.
	PendingDigest string
	Pending       json.RawMessage
	// Class replaces what the annotations say; "" does not.
	Class      ToolClass
	SeenAt     time.Time // when it was seen first
	ChangedAt  time.Time // when it was quarantined last, zero for never
	ApprovedAt time.Time
	ApprovedBy string
}

// ToolRule selects calls of tools. In a pattern * stands for any characters and ? for one.
type ToolRule struct {
	// Tool is a pattern of serverId:toolName; without a colon, of the server.
	Tool string `json:"tool" validate:"required,max=300" example:"filesystem:write_*"`
	// Arguments are patterns by the path of an argument ("path", "options.mode"); all of
	// them have to match.
	Arguments map[string]string `json:"arguments,omitempty" validate:"max=20,dive,keys,max=200,endkeys,max=300"`
}

// ToolPolicy is what the holder of a token may do with tools. Without one it may call all.
type ToolPolicy struct {
	// Allow selects what may be called; nothing in it is everything.
	Allow []ToolRule `json:"allow" validate:"max=200,dive"`
	// Deny selects what may not, also where Allow does.
	Deny []ToolRule `json:"deny" validate:"max=200,dive"`
	// Classes are the classes that may be called; nothing in it is all.
	Classes []ToolClass `json:"classes" validate:"max=3,dive,oneof=read write destructive" swaggertype:"array,string" enums:"read,write,destructive"`
}

// ToolOutcome is how a call ended.
type ToolOutcome string

// The outcomes of a call.
const (
	ToolSucceeded ToolOutcome = "success"
	ToolFailed    ToolOutcome = "error"
	// ToolRefused is a call that reached no tool.
	ToolRefused ToolOutcome = "refused"
)

// ToolCall is a line of the audit trail: who called what, and how it ended. What was said
// is not in it, only a digest.
type ToolCall struct {
	ID string // UUIDv7: the order in which they began
	At time.Time
	// Door is where it came in: mcp, rest, code, task.
	Door string
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
	Outcome ToolOutcome
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

// ToolCallQuery selects lines of the audit trail.
type ToolCallQuery struct {
	AgentID, TokenID, Server, Tool, TaskID, ParentID string // "" for any
	Outcome                                          ToolOutcome
	Before                                           string // an id; "" begins at the newest
	Limit                                            int
}

// ToolChanged is the data of the events of tools' definitions.
type ToolChanged struct {
	Server        string `json:"server"`
	Tool          string `json:"tool"`
	Digest        string `json:"digest"`
	PendingDigest string `json:"pending_digest,omitempty"`
	// Class is what the tool may do from now on, "" for what its annotations say.
	Class ToolClass `json:"class,omitempty"`
	Actor string    `json:"actor,omitempty"`
}

// ToolCalled is the data of tool.called and tool.failed.
type ToolCalled struct {
	CallID     string      `json:"call_id"`
	Tool       string      `json:"tool"`
	Source     string      `json:"source"`
	Actor      string      `json:"actor"`
	AgentID    string      `json:"agent_id"`
	Outcome    ToolOutcome `json:"outcome"`
	Error      string      `json:"error,omitempty"`
	DurationMS float64     `json:"duration_ms"`
	Tokens     int64       `json:"tokens"`
	TaskID     string      `json:"task_id,omitempty"`
	ParentID   string      `json:"parent_id,omitempty"`
	TraceID    string      `json:"trace_id,omitempty"`
}

// GraphChanged is the data of the events of the usage graph: an edge, or the whole.
type GraphChanged struct {
	From        string  `json:"from,omitempty"`
	To          string  `json:"to,omitempty"`
	Runs        int64   `json:"runs,omitempty"`
	Nodes       int     `json:"nodes"`
	Edges       int     `json:"edges"`
	Communities int     `json:"communities,omitempty"`
	Density     float64 `json:"density"`
}
