// Package envelope reads and writes the JSON envelopes of the Chiffon agent protocol
// 1.0: one object with the same ten members around four kinds of content. It knows
// what a well-formed message is and what an error answer looks like; what a message
// means, who may send it and when are for its callers.
package envelope

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"
)

const (
	// Version is the protocol version this package speaks.
	Version = "1.0"
	// MaxSize is the longest envelope, in bytes of JSON.
	MaxSize = 8 << 20
	// MaxDepth is how deep objects and arrays may be nested in one.
	MaxDepth = 64
	// MaxAgentType is the longest agent type, in bytes.
	MaxAgentType = 64
)

// The agent types of the document. An agent may be of another: a word of lower-case
// letters, digits, - and _.
const (
	Orchestrator = "orchestrator"
	Infra        = "infra"
	Desktop      = "desktop"
	CodeAgent    = "code"
	Research     = "research"
)

// Type says what an envelope's payload is (Chiffon §Message Types).
type Type string

// The types of messages. A heartbeat is a work_status too.
const (
	TypeWorkRequest Type = "work_request"
	TypeWorkStatus  Type = "work_status"
	TypeWorkResult  Type = "work_result"
	TypeError       Type = "error"
)

// Envelope is one message (Chiffon §Message Envelope).
type Envelope struct {
	ProtocolVersion string
	MessageID       uuid.UUID
	// From and To are agent types, not ids.
	From string
	To   string
	// Timestamp is when the message was sent, in UTC.
	Timestamp time.Time
	// TraceID and RequestID are uuid.Nil only in an error about a message whose own
	// could not be read.
	TraceID   uuid.UUID
	RequestID uuid.UUID
	Type      Type
	Payload   Payload
	// Raw is the payload as it was received, with the members that are not known
	// here. Format does not write it.
	Raw json.RawMessage
	// Custom is x_custom_fields as it was received, nil where there is none.
	Custom json.RawMessage
}

// Payload is one of WorkRequest, WorkStatus, Heartbeat, WorkResult and Failure.
type Payload interface {
	// Type is the type of the envelope around it.
	Type() Type

	writeMembers(w *writer)
}
