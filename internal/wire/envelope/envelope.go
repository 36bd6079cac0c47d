// Package envelope is the codec of the Chiffon agent protocol 1.0: JSON envelopes, one object with
// the same ten members around four types of payload. It validates the form of messages and formats
// errors. What a message means, and who may send it, is decided in package protocol/envelope.
package envelope

import (
	"cmp"
	"encoding/json"
	"time"

	"github.com/google/uuid"
)

const (
	// Version is the supported protocol version.
	Version = "1.0"
	// MaxSize is the size limit of an envelope, in bytes of JSON.
	MaxSize = 8 << 20
	// maxDepth limits the nesting of objects and arrays.
	maxDepth = 64
	// maxAgentType is the length limit of an agent type, in bytes.
	maxAgentType = 64
)

// Orchestrator is the agent type of comet itself. An agent type is a word of lowercase letters,
// digits, - and _.
const Orchestrator = "orchestrator"

// Type is the type of an envelope's payload (Chiffon §Message Types).
type Type string

// The message types. A heartbeat is a work_status too.
const (
	TypeWorkRequest Type = "work_request"
	TypeWorkStatus  Type = "work_status"
	TypeWorkResult  Type = "work_result"
	TypeError       Type = "error"
)

// Envelope is one message (Chiffon §Message Envelope).
type Envelope struct {
	ProtocolVersion string    `json:"protocol_version"`
	MessageID       uuid.UUID `json:"message_id"`
	// From and To are agent types, not ids.
	From string `json:"from_agent"`
	To   string `json:"to_agent"`
	// Timestamp is when the message was sent, in UTC.
	Timestamp time.Time `json:"timestamp"`
	// TraceID and RequestID are uuid.Nil only in an error about a message whose ids could not be
	// read.
	TraceID   uuid.UUID `json:"trace_id"`
	RequestID uuid.UUID `json:"request_id"`
	Type      Type      `json:"type"`
	Payload   Payload   `json:"payload"`
	// Raw is the payload as it was received, including unknown members. Format ignores it.
	Raw json.RawMessage `json:"-"`
	// Custom is x_custom_fields as it was received, nil if it is missing.
	Custom json.RawMessage `json:"x_custom_fields,omitzero"`
}

// Payload is one of WorkRequest, WorkStatus, Heartbeat, WorkResult and Failure.
type Payload interface {
	// Type returns the type of the envelope around the payload.
	Type() Type
}

// unknownAgent is the recipient of an error whose sender could not be read.
const unknownAgent = "unknown"

// Reply returns an envelope that answers to: from and to are swapped, trace_id and request_id are
// echoed. id and at are those of the new envelope. to may come from a Parse that failed; a missing
// sender is then replaced by unknown, a missing recipient by orchestrator and missing ids by
// uuid.Nil, which is valid in an error only.
func Reply(to Envelope, id uuid.UUID, at time.Time, payload Payload) Envelope {
	return Envelope{
		ProtocolVersion: Version,
		MessageID:       id,
		From:            cmp.Or(to.To, Orchestrator),
		To:              cmp.Or(to.From, unknownAgent),
		Timestamp:       at.UTC(),
		TraceID:         to.TraceID,
		RequestID:       to.RequestID,
		Type:            payload.Type(),
		Payload:         payload,
	}
}
