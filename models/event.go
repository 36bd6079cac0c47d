package models

import (
	"encoding/json"
	"time"
)

// EventType names what happened.
type EventType string

// The events of the registry and the ledger (CHE·NU §9), of the tokens and of the
// webhooks.
const (
	EventAgentCreated     EventType = "agent.created"
	EventAgentUpdated     EventType = "agent.updated"
	EventAgentDeactivated EventType = "agent.deactivated"
	// EventBudgetWarning fires once a day when 80 % of an agent's budget is used.
	EventBudgetWarning EventType = "agent.budget_warning"
	// EventBudgetExceeded fires once a day when a reservation is refused or a fact
	// passes the budget.
	EventBudgetExceeded EventType = "agent.budget_exceeded"

	EventTokenCreated EventType = "token.created"
	EventTokenRotated EventType = "token.rotated"
	EventTokenRevoked EventType = "token.revoked"

	// The events of agents' keys.
	EventKeyIssued  EventType = "key.issued"
	EventKeyChanged EventType = "key.changed"
	EventKeyRevoked EventType = "key.revoked"

	// EventWebhookDisabled fires when comet gives a webhook up.
	EventWebhookDisabled EventType = "webhook.disabled"
	// The events of tasks. Their key is the task's id.
	EventTaskCreated   EventType = "task.created"
	EventTaskWaiting   EventType = "task.waiting"  // in line for an agent
	EventTaskAssigned  EventType = "task.assigned" // an agent shall do it
	EventTaskStarted   EventType = "task.started"  // and has it
	EventTaskProgress  EventType = "task.progress"
	EventTaskQuestion  EventType = "task.question" // its agent asked back
	EventTaskReplied   EventType = "task.replied"
	EventTaskRetried   EventType = "task.retried" // another attempt follows
	EventTaskCompleted EventType = "task.completed"
	EventTaskFailed    EventType = "task.failed"
	EventTaskCancelled EventType = "task.cancelled"
	// EventSessionClosed fires when a session takes no further tasks.
	EventSessionClosed EventType = "session.closed"
	// EventWorkerChanged fires when an agent comes, leaves, or is busy.
	EventWorkerChanged EventType = "worker.changed"
	// EventBreakerOpened fires when an agent gets no new work for a while.
	EventBreakerOpened EventType = "worker.breaker_opened"

	// EventToolQuarantined fires when a tool's definition is another than the approved,
	// EventToolApproved when somebody takes that for the right one. Their key is the tool's
	// id, serverId:toolName.
	EventToolQuarantined EventType = "tool.quarantined"
	EventToolApproved    EventType = "tool.approved"
	// EventToolClassified fires when somebody says what a tool may do.
	EventToolClassified EventType = "tool.classified"
	// The events of upstreams that are added, changed and removed at run time. Their key is
	// the upstream's id.
	EventUpstreamSaved   EventType = "upstream.saved"
	EventUpstreamRemoved EventType = "upstream.removed"
	// EventUpstreamUp fires when an upstream answers, EventUpstreamDown when it no longer
	// does, on each replica that has it.
	EventUpstreamUp   EventType = "upstream.up"
	EventUpstreamDown EventType = "upstream.down"
	// The events of calls of tools. Their key is the tool's id.
	EventToolCalled EventType = "tool.called"
	EventToolFailed EventType = "tool.failed"
	// The events of the usage graph. Their key is "tools".
	EventGraphSynced    EventType = "graph.synced"
	EventEdgeCreated    EventType = "graph.edge_created"
	EventEdgeUpdated    EventType = "graph.edge_updated"
	EventMetricsUpdated EventType = "graph.metrics_updated"

	// EventWebhookTest is what a webhook's test sends; nobody subscribes to it.
	EventWebhookTest EventType = "webhook.test"
)

// WebhookEvents returns the events a webhook may subscribe to, the document's own
// first.
func WebhookEvents() []EventType {
	return []EventType{
		EventAgentCreated, EventAgentUpdated, EventAgentDeactivated, EventBudgetWarning, EventBudgetExceeded,
		EventWebhookDisabled,
	}
}

// Event tells of one committed change. It is written in the transaction of the
// change and numbered after the commit.
type Event struct {
	// ID is a UUIDv7; it is the webhook-id and stays the same on every delivery.
	ID string
	// Position is gapless and in commit order; 0 until the relay has numbered
	// the event.
	Position int64
	Type     EventType
	// Key is what events are ordered by, usually the agent's id.
	Key  string
	At   time.Time
	Data json.RawMessage
}

// EventDraft is an event that is still to be written.
type EventDraft struct {
	Type EventType
	Key  string
	Data any
}

// Job is work that follows a commit: a timer, a delivery, a retry.
type Job struct {
	ID string
	// Kind selects the handler.
	Kind string
	// Key makes the job unique while it is not finished; "" for no such limit.
	Key     string
	Payload json.RawMessage
	// RunAt is the earliest time of the next attempt.
	RunAt time.Time
	// Attempt counts the attempts begun, including the current one.
	Attempt int
	// Lease proves the claim of the worker that holds the job.
	Lease string
	// LeaseUntil is when another worker may take the job over.
	LeaseUntil time.Time
}

// AgentSnapshot is the data of agent.created: the agent as it was made.
type AgentSnapshot struct {
	ID           string      `json:"id"`
	Name         string      `json:"name"`
	Level        Level       `json:"level"`
	SphereID     *int        `json:"sphere_id"`
	FrequencyHz  int         `json:"frequency_hz"`
	Capabilities []string    `json:"capabilities"`
	Type         string      `json:"type,omitempty"`
	ParentID     *string     `json:"parent_id"`
	TokenBudget  *int64      `json:"token_budget"`
	BudgetScope  BudgetScope `json:"budget_scope"`
	IsActive     bool        `json:"is_active"`
	Version      int64       `json:"version"`
	CreatedAt    time.Time   `json:"created_at"`
	Actor        string      `json:"actor"`
}

// AgentChanged is the data of agent.updated and agent.deactivated.
type AgentChanged struct {
	ID      string   `json:"id"`
	Version int64    `json:"version"`
	Actor   string   `json:"actor"`
	Changes []Change `json:"changes"`
}

// TokenChanged is the data of the token events; it never holds a secret.
type TokenChanged struct {
	ID      string  `json:"id"`
	Name    string  `json:"name"`
	Scopes  []Scope `json:"scopes"`
	AgentID *string `json:"agent_id"`
	Actor   string  `json:"actor"`
}
