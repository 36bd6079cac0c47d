// Package schema contains the envelopes of the Chiffon agent protocol 1.0 for the API description.
// Package envelope has a hand-written codec without struct tags that a generator could read; these
// types have only tags. No program imports them. A test compares them with package envelope.
package schema

import "time"

// Envelope is one message: common members around one of four payloads (Chiffon §Message Envelope).
// `type` says which.
type Envelope struct {
	Request *WorkRequestEnvelope `json:"work_request" extensions:"x-one-of"`
	Status  *WorkStatusEnvelope  `json:"work_status" extensions:"x-one-of"`
	Result  *WorkResultEnvelope  `json:"work_result" extensions:"x-one-of"`
	Error   *ErrorEnvelope       `json:"error" extensions:"x-one-of"`
}

// Head has the members of every envelope.
type Head struct {
	ProtocolVersion string `json:"protocol_version" validate:"required" enums:"1.0" example:"1.0"` // The version of the protocol.
	// Unique for the sender: a message with an id that was processed before has no effect.
	MessageID string `json:"message_id" validate:"required" format:"uuid" example:"550e8400-e29b-41d4-a716-446655440001"`
	// The type of the sending agent, which must be that of the token's agent; `orchestrator` for a
	// token that is not bound to an agent.
	FromAgent string `json:"from_agent" validate:"required,min=1,max=64" example:"orchestrator"`
	// The type of the receiving agent; with `orchestrator` an agent of any type may run the task.
	ToAgent   string    `json:"to_agent" validate:"required,min=1,max=64" example:"infra"`
	Timestamp time.Time `json:"timestamp" validate:"required" example:"2026-01-19T04:21:04Z"` // When the message was sent.
	// The same 16 bytes as a W3C trace id. In an error about a message that could not be read it is
	// all zeros, as is request_id.
	TraceID string `json:"trace_id" validate:"required" format:"uuid" example:"550e8400-e29b-41d4-a716-446655440002"`
	// Identifies one work_request of one sender for 24 hours, and all messages about it.
	RequestID string `json:"request_id" validate:"required" format:"uuid" example:"550e8400-e29b-41d4-a716-446655440003"`
	// Passed to the agent unchanged.
	Custom map[string]any `json:"x_custom_fields,omitempty"`
}

// WorkRequestEnvelope submits a task (Chiffon §work_request).
type WorkRequestEnvelope struct {
	Head
	Type    string      `json:"type" validate:"required" enums:"work_request" example:"work_request"` // Always `work_request`.
	Payload WorkRequest `json:"payload" validate:"required"`
}

// WorkStatusEnvelope reports progress of a task or is a heartbeat (Chiffon §work_status).
type WorkStatusEnvelope struct {
	Head
	Type    string            `json:"type" validate:"required" enums:"work_status" example:"work_status"` // Always `work_status`.
	Payload WorkStatusPayload `json:"payload" validate:"required"`
}

// WorkResultEnvelope ends a task (Chiffon §work_result).
type WorkResultEnvelope struct {
	Head
	Type    string     `json:"type" validate:"required" enums:"work_result" example:"work_result"` // Always `work_result`.
	Payload WorkResult `json:"payload" validate:"required"`
}

// ErrorEnvelope is a rejected message or a failed attempt (Chiffon §error).
type ErrorEnvelope struct {
	Head
	Type    string    `json:"type" validate:"required" enums:"error" example:"error"` // Always `error`.
	Payload WorkError `json:"payload" validate:"required"`
}

// InboxMessages is the response to a poll of the inbox.
type InboxMessages struct {
	Messages []Envelope `json:"messages"` // The messages, oldest first.
}
