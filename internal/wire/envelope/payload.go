package envelope

import (
	"encoding/json"

	"github.com/google/uuid"
)

// Limits of numbers in payloads.
const (
	// MaxHint is the most seconds or megabytes a hint may name.
	MaxHint = 1<<31 - 1
	// MaxTokens is the most tokens a hint or a result may name.
	MaxTokens = 1_000_000_000_000
	// MaxStep is the highest number of a step.
	MaxStep = 1<<31 - 1
	// MaxExitCode is the highest exit code a system knows; Windows has 32 bits.
	MaxExitCode = 1<<32 - 1
)

// WorkTypeCancel is the work type that takes back the task it names. Alone among the
// work types it needs no parameters.
const WorkTypeCancel = "cancel_task"

// WorkRequest asks an agent to do something (Chiffon §work_request).
type WorkRequest struct {
	TaskID uuid.UUID
	// WorkType names a capability: at most 128 letters, digits and _.:/-
	WorkType string
	// Parameters is a JSON object as it was received, nil where there is none.
	Parameters json.RawMessage
	Hints      Hints
}

// Hints are what the sender knows about the work beforehand; 0 is not given.
type Hints struct {
	MaxDurationSeconds int64
	MaxMemoryMB        int64
	// MaxTokens is the task's budget.
	MaxTokens int64
	// Other are the hints that are not known here, in their order.
	Other []Member
}

// Member is a name and its JSON value, as it was received.
type Member struct {
	Name  string
	Value json.RawMessage
}

// Status is how far an agent is with a task.
type Status string

// The statuses of a task that is being worked on.
const (
	StatusRunning       Status = "running"
	StatusStepCompleted Status = "step_completed"
	StatusPaused        Status = "paused"
)

// WorkStatus tells of progress with a task (Chiffon §work_status).
type WorkStatus struct {
	TaskID uuid.UUID
	Status Status
	// Progress is in percent, 0 to 100.
	Progress int
	// Step is nil where the agent told of none.
	Step *Step
}

// Step is what an agent is doing at the moment.
type Step struct {
	Number int
	Name   string
	// Output is what the step printed, or the part of it that Chunk names.
	Output string
	// Chunk is zero where Output is all of it.
	Chunk Range
}

// Presence is whether an agent takes work.
type Presence string

// What an agent says of itself in a heartbeat.
const (
	PresenceOnline  Presence = "online"
	PresenceOffline Presence = "offline"
	PresenceBusy    Presence = "busy"
)

// Heartbeat is the work_status that names an agent and no task.
type Heartbeat struct {
	AgentID string
	Status  Presence
	// Load is in percent, 0 to 100; Queue is how many tasks wait at the agent. Both
	// are nil where the agent does not say.
	Load  *int
	Queue *int
}

// Outcome is how a task ended.
type Outcome string

// The outcomes. comet emits success and failed, and accepts the other two.
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
	// ExitCode is 0 where the status is success or completed, more where it is failed.
	ExitCode int64
	// Output is empty where it was sent in chunks before.
	Output    string
	Resources Resources
}

// Resources is what a task used; 0 is none, or not told.
type Resources struct {
	DurationSeconds int64
	GPUVRAMMB       int64
	CPUTimeMS       int64
	Tokens          int64
}

// Failure is the content of an error message (Chiffon §error). The functions named
// like the codes make one with the context its code must have.
type Failure struct {
	Code    Code
	Message string
	// Context is a JSON object, nil where there is none.
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
