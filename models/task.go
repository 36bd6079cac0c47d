package models

import (
	"encoding/json"
	"time"
)

// Limits of tasks.
const (
	// MaxTaskDepth is the maximum number of hand-offs above a task.
	MaxTaskDepth = 5
	// MaxTaskParameters is the maximum length of the parameters, in bytes of JSON.
	MaxTaskParameters = 8 << 20
)

// TaskState is the state of a task (PROTOCOL_V5 §4.1).
type TaskState string

// The states of a task. From new a task goes to running or cancelled, from running to done, failed
// or cancelled; a new one without a suitable worker fails. A retry makes a running task new again.
const (
	TaskNew       TaskState = "new"
	TaskRunning   TaskState = "running"
	TaskDone      TaskState = "done"
	TaskFailed    TaskState = "failed"
	TaskCancelled TaskState = "cancelled"
)

// Ended reports whether the state is final.
func (s TaskState) Ended() bool { return s == TaskDone || s == TaskFailed || s == TaskCancelled }

// WaitReason is the reason why an open task waits.
type WaitReason string

// The reasons for waiting.
const (
	// NotWaiting is a task that is assigned to an agent.
	NotWaiting WaitReason = ""
	// WaitForWorker is a task that is queued until a worker has a free slot.
	WaitForWorker WaitReason = "worker"
	// WaitForRetry is a task whose next attempt begins after a while.
	WaitForRetry WaitReason = "retry"
	// WaitForReply is a task whose worker waits for a reply to its question.
	WaitForReply WaitReason = "reply"
)

// Task is one piece of work.
type Task struct {
	ID string
	// SessionID groups tasks, "" for none.
	SessionID string
	// ParentID is the task this one was handed off from, nil for none; Depth counts
	// the hand-offs above it.
	ParentID *string
	Depth    int
	// Class names the policy the task follows: its deadlines and retries.
	Class string
	// Owner is the id of the token that submitted the task, OwnerAgent its agent, "" for none.
	Owner      string
	OwnerAgent string `gorm:"column:owner_agent_id"`
	// QueueKey is derived from the requirements of the task: tasks with the same requirements
	// share a queue. It is cleared when a stored task ends.
	QueueKey string
	// OnEnd is the kind of the job that follows the end of the task, "" for none, and "/" and the
	// key of the job unless that is the id of the task.
	OnEnd      string
	Priority   int
	State      TaskState
	WaitingFor WaitReason
	// Attempt is the number of the newest attempt, 0 before the first, and AgentID its agent.
	Attempt int
	AgentID string
	// Budget is the maximum number of tokens of all attempts together, nil for no limit;
	// Tokens is the number of used tokens.
	Budget *int64
	Tokens int64
	// Deadline is the time at which the newest attempt, or the wait for one, times out.
	Deadline time.Time
	// Progress is in percent.
	Progress int
	Step     int
	StepName string
	// Questions counts the clarifications its agents have asked for.
	Questions int
	// Subtasks is the number of tasks that were handed off from it, or that execute it in parallel.
	Subtasks int
	// OutputBytes and LogBytes are the lengths of the result and the log of the newest attempt.
	OutputBytes int64
	LogBytes    int64
	// Output is a short result; nil if there is none, or if it is stored in chunks.
	Output   []byte
	ExitCode *int
	// ErrorCode and Error say why the task failed, "" unless it did.
	ErrorCode string
	Error     string
	// Detail is JSON with details of the failure from the worker's protocol, nil for none.
	Detail json.RawMessage
	// Decision has the candidates for the task and the selected agent, as JSON.
	Decision json.RawMessage
	// MessageID is the id of the message that assigns the newest attempt, "" once its agent has
	// acknowledged or accepted it.
	MessageID string
	// The newest attempt, unless AttemptState is AttemptNone: then all attempts have their own rows.
	// It ends with the task.
	AttemptState  AttemptState
	ReservationID string
	AttemptTokens int64
	AssignedAt    time.Time
	AcceptedAt    *time.Time
	ChunkStep     int
	ChunkTotal    int64

	Version   int64
	CreatedAt time.Time
	StartedAt *time.Time
	UpdatedAt time.Time
	EndedAt   *time.Time
}

// NewestAttempt returns the newest attempt. ok is false if it has its own row, or if there is none.
func (t *Task) NewestAttempt() (a Attempt, ok bool) {
	return Attempt{
		TaskID: t.ID, Attempt: t.Attempt, AgentID: t.AgentID, State: t.AttemptState, ReservationID: t.ReservationID, Tokens: t.AttemptTokens,
		ErrorCode: t.ErrorCode, Error: t.Error, AssignedAt: t.AssignedAt, AcceptedAt: t.AcceptedAt, EndedAt: t.EndedAt,
		ChunkStep: t.ChunkStep, ChunkTotal: t.ChunkTotal,
	}, t.AttemptState != AttemptNone
}

// SetNewestAttempt sets what has changed of the newest attempt.
func (t *Task) SetNewestAttempt(a Attempt) {
	t.AttemptState, t.ReservationID, t.AttemptTokens, t.AssignedAt, t.AcceptedAt = a.State, a.ReservationID, a.Tokens, a.AssignedAt, a.AcceptedAt
	t.ChunkStep, t.ChunkTotal = a.ChunkStep, a.ChunkTotal
}

// ListedTask is a task with its requirements, as TaskInput has them.
type ListedTask struct {
	Task             `gorm:"embedded"`
	Capabilities     []string `gorm:"serializer:json"`
	AgentType        string
	RequestedAgentID string
}

// Partial is a partial result of a task.
type Partial struct {
	TaskID string
	// Seq counts the partial results of the task from 1, those of all attempts.
	Seq     int64
	Attempt int
	// Bytes is the length of the data up to this partial result.
	Bytes int64
	// Data is JSON.
	Data      json.RawMessage
	CreatedAt time.Time
}

// TaskInput is the input of a task. It never changes.
type TaskInput struct {
	TaskID string `gorm:"-"`
	// Capabilities is what an agent must be able to do.
	Capabilities []string `gorm:"serializer:json"`
	// AgentType, Sphere and Wanted restrict the agents of the task; "", 0 and "" do not.
	AgentType        string
	Sphere           int `gorm:"column:sphere_id"`
	RequestedAgentID string
	// Parameters is a JSON object.
	Parameters json.RawMessage
	// Policy is what the client set differently from the class, as JSON.
	Policy json.RawMessage
	// Meta is data of the client's protocol that its messages must return, as JSON.
	Meta json.RawMessage
	// Trace is the W3C traceparent the task came with, "" for none.
	Trace string
}

// AttemptState is the state of an attempt.
type AttemptState string

// The states of an attempt.
const (
	AttemptAssigned  AttemptState = "assigned" // its agent has not accepted it yet
	AttemptRunning   AttemptState = "running"
	AttemptSucceeded AttemptState = "succeeded"
	AttemptFailed    AttemptState = "failed"
	AttemptTimedOut  AttemptState = "timed_out"
	AttemptCancelled AttemptState = "cancelled"
	// AttemptNone is the state of a task whose row contains no attempt.
	AttemptNone AttemptState = ""
)

// Ended reports whether the attempt is over.
func (s AttemptState) Ended() bool { return s != AttemptAssigned && s != AttemptRunning }

// Attempt is one attempt of an agent at a task.
type Attempt struct {
	TaskID  string
	Attempt int // from 1
	AgentID string
	State   AttemptState
	// ReservationID holds its tokens in the agent's budget, "" without a budget.
	ReservationID string
	Tokens        int64
	ErrorCode     string
	Error         string
	AssignedAt    time.Time
	AcceptedAt    *time.Time
	EndedAt       *time.Time
	// ChunkStep is the step whose output is sent in chunks, ChunkTotal the length of that
	// output in bytes; 0 if unknown.
	ChunkStep  int
	ChunkTotal int64
}

// OutputStream is one of the two output streams of an attempt.
type OutputStream int

// The streams.
const (
	// StreamResult is the result of the task, StreamLog the log of the attempt.
	StreamResult OutputStream = iota
	StreamLog
)

// OutputChunk is a piece of the output of an attempt.
type OutputChunk struct {
	Stream OutputStream
	Start  int64 // byte offset
	// Span is the number of bytes of the stream that it represents, 0 for the length of Data.
	Span int64
	Data []byte
}

// End returns the offset in the stream at which the chunk ends.
func (o OutputChunk) End() int64 {
	if o.Span != 0 {
		return o.Start + o.Span
	}
	return o.Start + int64(len(o.Data))
}
