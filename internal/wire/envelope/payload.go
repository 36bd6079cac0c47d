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
	TaskID uuid.UUID
	// WorkType is the name of a capability: at most 128 letters, digits and _.:/-
	WorkType string
	// Parameters is a JSON object as it was received, nil if it is missing.
	Parameters json.RawMessage
	Hints      Hints
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

// Status is the state of a task that is in progress.
type Status string

// The values of Status.
const (
	StatusRunning       Status = "running"
	StatusStepCompleted Status = "step_completed"
	StatusPaused        Status = "paused"
)

// WorkStatus reports progress of a task (Chiffon §work_status).
type WorkStatus struct {
	TaskID uuid.UUID
	Status Status
	// Progress is in percent, 0 to 100.
	Progress int
	// Step is nil if it is not given.
	Step *Step
}

// Step is the current step of a task.
type Step struct {
	Number int
	Name   string
	// Output is the step's output, or the part of it that Chunk names.
	Output string
	// Chunk is zero if Output is complete.
	Chunk Range
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
	AgentID string
	Status  Presence
	// Load is in percent, 0 to 100. Queue is the number of tasks waiting at the agent. Both are nil
	// if they are not given.
	Load  *int
	Queue *int
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
	TaskID uuid.UUID
	Status Outcome
	// ExitCode is 0 for the statuses success and completed, and not 0 for failed.
	ExitCode int64
	// Output is empty if it was sent in chunks before.
	Output    string
	Resources Resources
}

// Resources is what a task used. 0 means none or not given.
type Resources struct {
	DurationSeconds int64
	GPUVRAMMB       int64
	CPUTimeMS       int64
	Tokens          int64
}

// Failure is the payload of an error message (Chiffon §error). The functions named like the codes
// return one with the context that its code requires.
type Failure struct {
	Code    Code
	Message string
	// Context is a JSON object, nil if it is missing.
	Context json.RawMessage
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
