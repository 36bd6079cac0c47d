package tools

import "comet/models"

// toolChanged is the data of the events of tools' definitions.
type toolChanged struct {
	Server        string `json:"server"`
	Tool          string `json:"tool"`
	Digest        string `json:"digest"`
	PendingDigest string `json:"pending_digest,omitempty"`
	// Class is the new class, "" for that of the annotations.
	Class models.ToolClass `json:"class,omitempty"`
	Actor string           `json:"actor,omitempty"`
}

// toolCalled is the data of tool.called and tool.failed.
type toolCalled struct {
	CallID     string  `json:"call_id"`
	Tool       string  `json:"tool"`
	Source     string  `json:"source"`
	Actor      string  `json:"actor"`
	AgentID    string  `json:"agent_id"`
	Outcome    string  `json:"outcome"`
	Error      string  `json:"error,omitempty"`
	DurationMS float64 `json:"duration_ms"`
	Tokens     int64   `json:"tokens"`
	TaskID     string  `json:"task_id,omitempty"`
	ParentID   string  `json:"parent_id,omitempty"`
	TraceID    string  `json:"trace_id,omitempty"`
}

// graphChanged is the data of the events of the usage graph: of an edge or of all.
type graphChanged struct {
	From        string  `json:"from,omitempty"`
	To          string  `json:"to,omitempty"`
	Runs        int64   `json:"runs,omitempty"`
	Nodes       int     `json:"nodes"`
	Edges       int     `json:"edges"`
	Communities int     `json:"communities,omitempty"`
	Density     float64 `json:"density"`
}

// upstreamChanged is the data of the events of upstreams.
type upstreamChanged struct {
	ID     string `json:"id"`
	Actor  string `json:"actor,omitempty"`
	Reason string `json:"reason,omitempty"`
	Tools  int    `json:"tools,omitempty"`
}

// The outcomes of a call.
const (
	outcomeSuccess  = "success"
	outcomeError    = "error"
	outcomeRejected = "refused" // the call did not reach the tool
)
