package events

import (
	"time"

	"comet/models"
)

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
	// Question and Options belong to task.question, Reply to task.replied.
	Question string   `json:"question,omitempty"`
	Options  []string `json:"options,omitempty"`
	Reply    string   `json:"reply,omitempty"`
	Version  int64    `json:"version"`
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

// BreakerData is the data of worker.breaker_opened.
type BreakerData struct {
	AgentID  string    `json:"agent_id"`
	Failures int       `json:"failures"`
	Until    time.Time `json:"until"`
}

// SessionData is the data of session.closed.
type SessionData struct {
	SessionID string `json:"session_id"`
	AgentID   string `json:"agent_id,omitempty"` // of the token that opened it
	Tasks     int    `json:"tasks"`
	Reason    string `json:"reason"`
}
