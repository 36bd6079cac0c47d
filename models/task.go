package models

import (
	"encoding/json"
	"time"
)

// Limits of tasks.
const (
	// MaxTaskDepth is how many hand-offs may lie above a task (PROTOCOL_V5 §5.4).
	MaxTaskDepth = 5
	// MaxTaskParameters is the longest parameters, in bytes of JSON.
	MaxTaskParameters = 8 << 20
	// MaxTaskCapabilities is how many capabilities one task may need.
	MaxTaskCapabilities = 16
	// MaxPriority is the highest priority; a higher one overtakes lower ones that wait.
	MaxPriority = 3
	// DefaultPriority is that of a task that names none.
	DefaultPriority = 1
)

// TaskState is where a task stands (PROTOCOL_V5 §4.1).
type TaskState string

// The states of a task. From new a task goes to running or cancelled, from running
// to done, failed or cancelled; a new one that nobody can do fails. A retry makes a
// running task new again.
const (
	TaskNew       TaskState = "new"
	TaskRunning   TaskState = "running"
	TaskDone      TaskState = "done"
	TaskFailed    TaskState = "failed"
	TaskCancelled TaskState = "cancelled"
)

// Ended reports whether nothing more happens to a task in the state.
func (s TaskState) Ended() bool { return s == TaskDone || s == TaskFailed || s == TaskCancelled }

// WaitReason is what a task that has not ended waits for.
type WaitReason string

// What tasks wait for.
const (
	// NotWaiting is a task that an agent has.
	NotWaiting WaitReason = ""
	// WaitForWorker is a task in line for an agent that has a place free.
	WaitForWorker WaitReason = "worker"
	// WaitForRetry is a task whose next attempt begins after a while.
	WaitForRetry WaitReason = "retry"
	// WaitForReply is a task whose agent asked back (PROTOCOL_V5 §7).
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
	// Owner is the id of the token that asked, OwnerAgent its agent, "" for none.
	Owner      string
	OwnerAgent string
	// QueueKey stands for what the task needs of an agent: tasks with the same needs
	// wait in one line.
	QueueKey   string
	Priority   int
	State      TaskState
	WaitingFor WaitReason
	// Attempt is the number of the newest attempt, 0 before the first, and AgentID
	// who makes it.
	Attempt int
	AgentID string
	// Budget is how many tokens all attempts together may use, nil for no limit;
	// Tokens is what they have used.
	Budget *int64
	Tokens int64
	// Deadline is when the newest attempt, or the wait for one, is given up.
	Deadline time.Time
	// Progress is in percent.
	Progress int
	Step     int
	StepName string
	// Questions counts the clarifications its agents have asked for.
	Questions int
	// OutputBytes and LogBytes are how long what the newest attempt has put out is.
	OutputBytes int64
	LogBytes    int64
	ExitCode    *int
	// ErrorCode and Error say why the task failed, "" unless it did.
	ErrorCode string
	Error     string
	// Detail is JSON that the agent's dialect said of the failure, nil for none.
	Detail json.RawMessage
	// Decision is who could take the task, and who did, as JSON.
	Decision  json.RawMessage
	Version   int64
	CreatedAt time.Time
	StartedAt *time.Time
	UpdatedAt time.Time
	EndedAt   *time.Time
}

// TaskInput is what a task was asked for with. It never changes.
type TaskInput struct {
	TaskID string
	// Capabilities is what an agent must be able to do.
	Capabilities []string
	// AgentType, Sphere and Wanted narrow down who may do it: "", 0 and "" do not.
	AgentType        string
	Sphere           int
	RequestedAgentID string
	// Parameters is a JSON object.
	Parameters json.RawMessage
	// Policy is what the asker set differently from the class, as JSON.
	Policy json.RawMessage
	// Meta is what the asker's dialect must get back, as JSON.
	Meta json.RawMessage
	// Trace is the W3C traceparent the task came with, "" for none.
	Trace string
}

// TaskRequest names a request, so that its repetition finds the task.
type TaskRequest struct {
	Owner     string
	RequestID string
	// Digest is the SHA-256 of what was asked for.
	Digest [32]byte
	TaskID string
}

// AttemptState is where an attempt stands.
type AttemptState string

// The states of an attempt.
const (
	AttemptAssigned  AttemptState = "assigned" // its agent has not said that it has it
	AttemptRunning   AttemptState = "running"
	AttemptSucceeded AttemptState = "succeeded"
	AttemptFailed    AttemptState = "failed"
	AttemptTimedOut  AttemptState = "timed_out"
	AttemptCancelled AttemptState = "cancelled"
)

// Ended reports whether the attempt is over.
func (s AttemptState) Ended() bool { return s != AttemptAssigned && s != AttemptRunning }

// Attempt is one agent's try at a task.
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
	// ChunkStep is the step whose output comes in pieces, ChunkTotal how long it is in
	// bytes; 0 while neither is known.
	ChunkStep  int
	ChunkTotal int64
}

// OutputStream names one of the two things an attempt puts out.
type OutputStream int

// The streams.
const (
	// StreamResult is what was asked for, StreamLog what was told on the way.
	StreamResult OutputStream = iota
	StreamLog
)

// OutputChunk is a piece of what an attempt has put out.
type OutputChunk struct {
	Stream OutputStream
	Start  int64 // byte offset
	// Span is how many bytes of the whole it stands for, 0 for as many as Data has.
	Span int64
	Data []byte
}

// End is where the piece ends in the whole.
func (o OutputChunk) End() int64 {
	if o.Span != 0 {
		return o.Start + o.Span
	}
	return o.Start + int64(len(o.Data))
}

// OutputRange is where a piece of a stream lies, [Start, End), and how many bytes it has.
type OutputRange struct{ Start, End, Bytes int64 }

// QueuedRoute is a line in which tasks wait.
type QueuedRoute struct {
	Route string
	Tasks int64
}

// TaskQuery selects a page of tasks, newest first. Zero fields do not filter.
type TaskQuery struct {
	State     TaskState
	AgentID   string
	SessionID string
	Owner     string
	ParentID  string
	// Since and Until bound the time of creation, [Since, Until).
	Since, Until time.Time
	// Before is the place behind which the page starts, the zero value for the newest.
	Before TaskCursor
	Limit  int
}

// TaskCursor is a place in the order of creation.
type TaskCursor struct {
	CreatedAt time.Time
	ID        string
}
