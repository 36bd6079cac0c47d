// Package envelope reads and writes the JSON envelopes of the Chiffon agent protocol
// 1.0: one object with the same ten members around four kinds of content. It knows
// what a well-formed message is and what an error answer looks like; what a message
// means, who may send it and when are for its callers.
package envelope

import (
	"bytes"
	"cmp"
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

// unknownAgent stands for a sender whose type could not be read.
const unknownAgent = "unknown"

// Reply answers a message: from and to change places, trace_id and request_id are
// echoed. id and at are the answer's own. to may be what Parse returns with an error;
// what it could not read is then replaced: the sender by the word unknown, who was
// written to by orchestrator, and the ids by uuid.Nil, which only an error may have.
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

// maxTaskID is the longest task_id that TaskOf returns, in bytes.
const maxTaskID = 64

// FindTaskID is what stands behind the first member task_id, whichever object it is of, ""
// where there is none. It is for telling quickly which messages belong together; the
// message need not be valid.
func FindTaskID(raw []byte) string {
	_, rest, found := bytes.Cut(raw, []byte(`"task_id"`))
	if !found {
		return ""
	}
	rest = bytes.TrimLeft(rest, " \t\r\n:")
	if len(rest) == 0 || rest[0] != '"' {
		return ""
	}
	id, _, found := bytes.Cut(rest[1:], []byte{'"'})
	if !found || len(id) > maxTaskID {
		return ""
	}
	return string(id)
}
