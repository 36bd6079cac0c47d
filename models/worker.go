package models

import (
	"encoding/json"
	"time"
)

// WorkerState is what an agent says of itself.
type WorkerState string

// The states of a worker.
const (
	WorkerOffline WorkerState = "offline"
	WorkerOnline  WorkerState = "online"
	// WorkerBusy is there and takes nothing.
	WorkerBusy WorkerState = "busy"
)

// Worker is an agent that takes work, and how it goes with it.
type Worker struct {
	AgentID string
	State   WorkerState
	// Protocol is what it speaks, Link how it is reached.
	Protocol  string
	Transport string
	// ProtocolVersion is the version of the dialect that was agreed on, "" for its newest.
	ProtocolVersion string
	// ConnectionID names the connection it is on, "" for none.
	ConnectionID string
	// MaxDepth is the depth from which on it takes nothing that was handed off, 0 where it
	// did not say (PROTOCOL_V5 §2.4).
	MaxDepth int
	// Concurrency is how many attempts it takes at a time, InFlight how many it has.
	Concurrency int
	InFlight    int
	// Load is in percent, as it says itself.
	Load           int
	LastSeenAt     time.Time
	LastAssignedAt time.Time // the last assignment, zero before the first
	// Failures counts the timeouts and lost lines since the last success.
	Failures int
	// BreakerUntil is until when it gets no new work, zero while the breaker is closed;
	// Probing is set from then on until it shows that it lives.
	BreakerUntil time.Time
	Probing      bool
	Version      int64
	UpdatedAt    time.Time
}

// MessageKind is what an agent is told.
type MessageKind string

// The kinds of messages in an agent's inbox.
const (
	// MessageAssign gives it an attempt at a task.
	MessageAssign MessageKind = "assign"
	// MessageCancel takes one back.
	MessageCancel MessageKind = "cancel"
	// MessageReply answers what it asked.
	MessageReply MessageKind = "answer"
	// MessageTaskEnded tells it that a task it asked for has ended.
	MessageTaskEnded MessageKind = "ended"
	// MessageQuestion asks it what an agent asks that works on a task it has asked for.
	MessageQuestion MessageKind = "question"
	// MessageNotice tells it something that is about no task.
	MessageNotice MessageKind = "notice"
)

// InboxMessage is what an agent is still to be told.
type InboxMessage struct {
	AgentID string
	// ID is a UUIDv7, the same however often the message is handed over.
	ID        string
	Kind      MessageKind
	Priority  int
	TaskID    string
	Attempt   int
	Data      json.RawMessage
	CreatedAt time.Time
}

// SessionState is whether a session takes further tasks.
type SessionState string

// The states of a session.
const (
	SessionOpen   SessionState = "open"
	SessionClosed SessionState = "closed"
)

// Session is what belongs together: a conversation, or the parts of one piece of work
// (PROTOCOL_V5 §6).
type Session struct {
	ID string
	// Owner is the id of the token that made it, AgentID its agent, "" for none.
	Owner   string
	AgentID string
	State   SessionState
	// OpenTasks have not ended; Tasks are all of them.
	OpenTasks int
	Tasks     int
	// Facts is a JSON object, what its maker set.
	Facts     json.RawMessage
	CreatedAt time.Time
	UpdatedAt time.Time
	ClosedAt  *time.Time
}
