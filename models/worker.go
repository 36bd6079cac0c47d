package models

import (
	"encoding/json"
	"time"
)

// WorkerState is the state that an agent reports.
type WorkerState string

// The states of a worker.
const (
	WorkerOffline WorkerState = "offline"
	WorkerOnline  WorkerState = "online"
	// WorkerBusy is online and accepts no tasks.
	WorkerBusy WorkerState = "busy"
)

// Worker is an agent that executes tasks, with its connection and its state. The fields that every
// assignment reads come first, to be close together in memory.
type Worker struct {
	AgentID string `gorm:"primaryKey"`
	State   WorkerState
	// MaxDepth is the first depth at which it accepts no subtasks, 0 if it did not declare
	// one (PROTOCOL_V5 §2.4).
	MaxDepth int
	// Concurrency is the maximum number of concurrent attempts, InFlight the current number.
	Concurrency int
	InFlight    int
	// Load is the load in percent that the agent reports.
	Load           int
	LastAssignedAt time.Time // the last assignment, zero before the first
	// BreakerUntil is the time until which the open breaker blocks new tasks, zero if the
	// breaker is closed. Probing is set from that time until the next sign of presence.
	BreakerUntil time.Time
	Probing      bool
	// Failures counts the timeouts and lost connections since the last success.
	Failures int
	// Protocol is the protocol of its messages, Transport the transport of its connection.
	Protocol  string
	Transport string
	// ProtocolVersion is the negotiated version of the protocol, "" for its newest.
	ProtocolVersion string
	// ConnectionID is the id of its connection, "" for none.
	ConnectionID string
	LastSeenAt   time.Time
	Version      int64
	UpdatedAt    time.Time
}

// The kinds of messages in an agent's inbox.
const (
	// MessageAssign assigns an attempt at a task.
	MessageAssign = "assign"
	// MessageCancel cancels an attempt.
	MessageCancel = "cancel"
	// MessageReply is the reply to a question of the agent.
	MessageReply = "answer"
	// MessageTaskEnded reports the end of a task that the agent submitted.
	MessageTaskEnded = "ended"
	// MessageQuestion is a question about a task that the agent submitted, from its worker.
	MessageQuestion = "question"
	// MessagePartial is a partial result of a task that the agent submitted. Its data has the number as "seq".
	MessagePartial = "partial"
	// MessageProgress is the progress of a task that the agent submitted. It is not stored.
	MessageProgress = "progress"
	// MessageNotice is a message that belongs to no task.
	MessageNotice = "notice"
)

// InboxMessage is a message that an agent has not acknowledged.
type InboxMessage struct {
	AgentID string
	// ID is a UUIDv7, the same for every delivery of the message.
	ID        string
	Kind      string
	Priority  int
	TaskID    string
	Attempt   int
	Data      json.RawMessage
	CreatedAt time.Time
	// NotBefore is the time of the next delivery of a publication, zero for at once.
	NotBefore time.Time
	// Publication is the content of a publication that is being delivered, nil for other messages.
	Publication *Publication `gorm:"-"`
}

// SessionState is the state of a session: whether it accepts further tasks.
type SessionState string

// The states of a session.
const (
	SessionOpen   SessionState = "open"
	SessionClosed SessionState = "closed"
)

// Session groups tasks that belong together, such as those of a conversation (PROTOCOL_V5 §6).
type Session struct {
	ID string
	// Owner is the id of the token that opened it, AgentID the agent of that token, "" for none.
	Owner   string
	AgentID string
	State   SessionState
	// OpenTasks is the number of tasks that have not ended, Tasks the number of all tasks.
	OpenTasks int
	Tasks     int
	// Facts is the context that the client set, a JSON object.
	Facts     json.RawMessage
	CreatedAt time.Time
	UpdatedAt time.Time
	ClosedAt  *time.Time
}

// PushTarget is the URL to which an agent's messages are pushed.
type PushTarget struct {
	AgentID  string `gorm:"primaryKey"`
	URL      string
	Protocol string
	// Concurrency is the maximum number of attempts that the agent executes at a time.
	Concurrency int
	// Secret is the bearer token that comet sends to the URL. It differs for each registration.
	Secret string
	// Owner is the id of the token that registered the target. The target ends with that token.
	Owner     string
	CreatedAt time.Time `gorm:"<-:create"`
	UpdatedAt time.Time
}
