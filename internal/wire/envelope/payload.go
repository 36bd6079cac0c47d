package envelope

import (
	"encoding/json"

	"github.com/google/uuid"
)

// Limits of numbers in payloads.
const (
	// maxHint is the highest number of seconds or megabytes in a hint.
	maxHint = 1<<31 - 1
	// MaxTokens is the highest number of tokens in a hint or result.
	MaxTokens = 1_000_000_000_000
	// maxStep is the highest step number.
	maxStep = 1<<31 - 1
	// maxExitCode is the highest exit code of any system; Windows has 32 bits.
	maxExitCode = 1<<32 - 1
)

// WorkTypeCancel is the work type that cancels the task with the given task_id. It needs no
// parameters.
const WorkTypeCancel = "cancel_task"

// WorkRequest submits a task (Chiffon §work_request).
type WorkRequest struct {
	TaskID uuid.UUID `json:"task_id"`
	// WorkType is the name of a capability: at most 128 letters, digits and _.:/-
	WorkType string `json:"work_type"`
	// Parameters is a JSON object as it was received, nil if it is missing.
	Parameters json.RawMessage `json:"parameters,omitzero"`
	Hints      Hints           `json:"hints,omitzero"`
}

// Hints are what the sender knows about the task beforehand. 0 means not given.
type Hints struct {
	MaxDurationSeconds int64
	MaxMemoryMB        int64
	// MaxTokens is the task's budget.
	MaxTokens int64
	// Other has the hints that this package does not know, in their order.
	Other []Member
}

// Member is a name and its JSON value, as it was received.
type Member struct {
	Name  string
	Value json.RawMessage
}

// status is the state of a task that is in progress.
type status string

// The values of status.
const (
	StatusRunning       status = "running"
	StatusStepCompleted status = "step_completed"
	StatusPaused        status = "paused"
)

// WorkStatus reports progress of a task (Chiffon §work_status).
type WorkStatus struct {
	TaskID uuid.UUID `json:"task_id"`
	Status status    `json:"status"`
	// Progress is in percent, 0 to 100.
	Progress int `json:"progress_percent"`
	// Step is nil if it is not given.
	Step *Step `json:"step,omitzero"`
}

// Step is the current step of a task.
type Step struct {
	Number int    `json:"number"`
	Name   string `json:"name"`
	// Output is the step's output, or the part of it that Chunk names.
	Output string `json:"output"`
	// Chunk is zero if Output is complete.
	Chunk Range `json:"output_chunk,omitzero"`
}

// Presence says whether an agent takes tasks.
type Presence string

// The values of Presence.
const (
	PresenceOnline  Presence = "online"
	PresenceOffline Presence = "offline"
	PresenceBusy    Presence = "busy"
)

// Heartbeat is a work_status that names an agent and no task.
type Heartbeat struct {
	AgentID string   `json:"agent_id"`
	Status  Presence `json:"status"`
	// Load is in percent, 0 to 100. Queue is the number of tasks waiting at the agent. Both are nil
	// if they are not given.
	Load  *int `json:"load,omitzero"`
	Queue *int `json:"queue,omitzero"`
}

// Outcome is how a task ended.
type Outcome string

// The values of Outcome. comet sends success and failed, and accepts all of them.
const (
	OutcomeSuccess   Outcome = "success"
	OutcomeFailed    Outcome = "failed"
	OutcomeCompleted Outcome = "completed"
	OutcomeCancelled Outcome = "cancelled"
)

// WorkResult ends a task (Chiffon §work_result).
type WorkResult struct {
	TaskID uuid.UUID `json:"task_id"`
	Status Outcome   `json:"status"`
	// ExitCode is 0 for the statuses success and completed, and not 0 for failed.
	ExitCode int64 `json:"exit_code"`
	// Output is empty if it was sent in chunks before.
	Output    string    `json:"output"`
	Resources Resources `json:"resources_used"`
}

// Resources is what a task used. 0 means none or not given.
type Resources struct {
	DurationSeconds int64 `json:"duration_seconds"`
	GPUVRAMMB       int64 `json:"gpu_vram_mb"`
	CPUTimeMS       int64 `json:"cpu_time_ms"`
	Tokens          int64 `json:"tokens,omitzero"`
}

// Failure is the payload of an error message (Chiffon §error). The functions named like the codes
// return one with the context that its code requires.
type Failure struct {
	Code    Code   `json:"error_code"`
	Message string `json:"error_message"`
	// Context is a JSON object, nil if it is missing.
	Context json.RawMessage `json:"error_context,omitzero"`
}

// Type implements Payload.
func (WorkRequest) Type() Type { return TypeWorkRequest }

// Type implements Payload.
func (WorkStatus) Type() Type { return TypeWorkStatus }

// Type implements Payload.
func (Heartbeat) Type() Type { return TypeWorkStatus }

// Type implements Payload.
func (WorkResult) Type() Type { return TypeWorkResult }

// Type implements Payload.
func (Failure) Type() Type { return TypeError }
