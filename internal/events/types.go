package events

import (
	"time"

	"comet/models"
	"comet/store/pubsub"
	"comet/store/schedules"
)

// The events of agents and budgets (CHE·NU §9). Their key is the agent's id.
const (
	AgentCreated     models.EventType = "agent.created"
	AgentUpdated     models.EventType = "agent.updated"
	AgentDeactivated models.EventType = "agent.deactivated"
	// BudgetWarning is sent once a day when 80% of an agent's budget is used.
	BudgetWarning models.EventType = "agent.budget_warning"
	// BudgetExceeded is sent once a day when a budget does not cover a reservation or a fact exceeds
	// it.
	BudgetExceeded models.EventType = "agent.budget_exceeded"
	// LedgerCorrected is sent when a repair has corrected sums of an agent.
	LedgerCorrected models.EventType = "ledger.corrected"
)

// The events of tokens, keys and webhooks.
const (
	TokenCreated models.EventType = "token.created"
	TokenRotated models.EventType = "token.rotated"
	TokenRevoked models.EventType = "token.revoked"
	KeyIssued    models.EventType = "key.issued"
	KeyChanged   models.EventType = "key.changed"
	KeyRevoked   models.EventType = "key.revoked"
	// WebhookDisabled is sent when comet disables a webhook.
	WebhookDisabled models.EventType = "webhook.disabled"
	// DeliveryDead is sent when the last attempt at a delivery has failed.
	DeliveryDead models.EventType = "webhook.delivery_dead"
	// WebhookTest is sent to a single webhook to test it; webhooks cannot subscribe to it.
	WebhookTest models.EventType = "webhook.test"
)

// The events of tasks, whose key is the task's id, and of sessions and workers.
const (
	TaskCreated  models.EventType = "task.created"
	TaskWaiting  models.EventType = "task.waiting"  // queued for a worker
	TaskAssigned models.EventType = "task.assigned" // a worker was selected
	TaskStarted  models.EventType = "task.started"  // the worker has accepted it
	TaskProgress models.EventType = "task.progress"
	TaskQuestion models.EventType = "task.question" // its worker asks for clarification
	TaskReplied  models.EventType = "task.replied"
	// TaskSubtask is sent to the parents of a task that asks for clarification, and when it gets the reply.
	TaskSubtask   models.EventType = "task.subtask"
	TaskRetried   models.EventType = "task.retried" // another attempt will start
	TaskCompleted models.EventType = "task.completed"
	TaskFailed    models.EventType = "task.failed"
	TaskCancelled models.EventType = "task.cancelled"
	SessionClosed models.EventType = "session.closed"
	// WorkerChanged is sent when a worker connects, disconnects or changes its concurrency.
	WorkerChanged models.EventType = "worker.changed"
	// BreakerOpened is sent when a worker's circuit breaker opens.
	BreakerOpened models.EventType = "worker.breaker_opened"
)

// The events of tools and upstreams, whose key is their id, and of the usage graph, whose key is
// "tools".
const (
	// ToolQuarantined is sent when a tool's definition differs from the approved one.
	ToolQuarantined models.EventType = "tool.quarantined"
	ToolApproved    models.EventType = "tool.approved"
	ToolClassified  models.EventType = "tool.classified"
	ToolCalled      models.EventType = "tool.called"
	ToolFailed      models.EventType = "tool.failed"
	UpstreamSaved   models.EventType = "upstream.saved"
	UpstreamRemoved models.EventType = "upstream.removed"
	// UpstreamAuthorized is sent when an authorization server has issued tokens for an upstream.
	UpstreamAuthorized models.EventType = "upstream.authorized"
	// UpstreamUp and UpstreamDown are sent by each replica when its connection to an upstream is
	// established or lost.
	UpstreamUp     models.EventType = "upstream.up"
	UpstreamDown   models.EventType = "upstream.down"
	GraphSynced    models.EventType = "graph.synced"
	EdgeCreated    models.EventType = "graph.edge_created"
	EdgeUpdated    models.EventType = "graph.edge_updated"
	MetricsUpdated models.EventType = "graph.metrics_updated"
)

// The events of workflows that webhooks can subscribe to. Their key is the workflow's id.
const (
	WorkflowStarted models.EventType = "workflow.started"
	// WorkflowPaused is sent with the checkpoint that waits for a decision.
	WorkflowPaused  models.EventType = "workflow.paused"
	WorkflowResumed models.EventType = "workflow.resumed"
	WorkflowEnded   models.EventType = "workflow.ended"
)

// ForWebhooks returns the events that webhooks can subscribe to, those of CHE·NU §9 first.
func ForWebhooks() []models.EventType {
	return []models.EventType{
		AgentCreated, AgentUpdated, AgentDeactivated, BudgetWarning, BudgetExceeded, WebhookDisabled, DeliveryDead,
		WorkflowStarted, WorkflowPaused, WorkflowResumed, WorkflowEnded,
		schedules.EventCreated, schedules.EventChanged, schedules.EventDeleted, schedules.EventRun, schedules.EventFailed, pubsub.EventDead,
	}
}

// TaskData is the data of the events of tasks.
type TaskData struct {
	TaskID     string            `json:"task_id"`
	SessionID  string            `json:"session_id,omitempty"`
	State      models.TaskState  `json:"state"`
	WaitingFor models.WaitReason `json:"waiting_for,omitempty"`
	Attempt    int               `json:"attempt"`
	AgentID    string            `json:"agent_id,omitempty"`
	OwnerAgent string            `json:"owner_agent,omitempty"`
	Progress   int               `json:"progress"`
	Step       int               `json:"step,omitempty"`
	StepName   string            `json:"step_name,omitempty"`
	ExitCode   *int              `json:"exit_code,omitempty"`
	Tokens     int64             `json:"tokens,omitempty"`
	// Failure and Error are the code and the text of a failed attempt or task.
	Failure       string     `json:"failure,omitempty"`
	Error         string     `json:"error,omitempty"`
	NextAttemptAt *time.Time `json:"next_attempt_at,omitempty"`
	// Question and Options belong to task.question, Reply to task.replied, and one of them with SubtaskID to task.subtask.
	Question  string   `json:"question,omitempty"`
	Options   []string `json:"options,omitempty"`
	Reply     string   `json:"reply,omitempty"`
	SubtaskID string   `json:"subtask_id,omitempty"`
	// Partial is the number of the partial result of task.partial.
	Partial int64 `json:"partial,omitempty"`
	Version int64 `json:"version"`
}

// WorkerData is the data of worker.changed.
type WorkerData struct {
	AgentID       string             `json:"agent_id"`
	State         models.WorkerState `json:"state"`
	PreviousState models.WorkerState `json:"previous_state,omitempty"`
	Protocol      string             `json:"protocol"`
	Transport     string             `json:"transport"`
	Concurrency   int                `json:"concurrency"`
}

// SessionData is the data of session.closed.
type SessionData struct {
	SessionID string `json:"session_id"`
	AgentID   string `json:"agent_id,omitempty"` // of the token that opened it
	Tasks     int    `json:"tasks"`
	Reason    string `json:"reason"`
}
