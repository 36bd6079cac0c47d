// Package schema is how the API description shows the envelopes of the Chiffon agent
// protocol 1.0. Package envelope reads and writes them by hand, so that its types have
// no names of members that a generator could see; these have nothing else. No program
// imports them, and a test holds them against what package envelope reads and writes.
package schema

import "time"

// Envelope is one message: the same members around one of four kinds of content
// (Chiffon §Message Envelope). `type` says which.
type Envelope struct {
	Request *WorkRequestEnvelope `json:"work_request" extensions:"x-one-of"`
	Status  *WorkStatusEnvelope  `json:"work_status" extensions:"x-one-of"`
	Result  *WorkResultEnvelope  `json:"work_result" extensions:"x-one-of"`
	Error   *ErrorEnvelope       `json:"error" extensions:"x-one-of"`
}

// Head is what every envelope has.
type Head struct {
	ProtocolVersion string `json:"protocol_version" validate:"required" enums:"1.0" example:"1.0"`
	// Once a sender: a message that comes again under the same id is heard once.
	MessageID string `json:"message_id" validate:"required" format:"uuid" example:"550e8400-e29b-41d4-a716-446655440001"`
	// The type of agent that sends, which must be that of the token's agent; `orchestrator` for a token that is bound to none.
	FromAgent string `json:"from_agent" validate:"required,min=1,max=64" example:"orchestrator"`
	// The type of agent that is meant; with `orchestrator` any type may do the work.
	ToAgent   string    `json:"to_agent" validate:"required,min=1,max=64" example:"infra"`
	Timestamp time.Time `json:"timestamp" validate:"required" example:"2026-01-19T04:21:04Z"`
	// The same 16 bytes as a W3C trace id. In an error about a message that could not be read it is all zeros, as is request_id.
	TraceID string `json:"trace_id" validate:"required" format:"uuid" example:"550e8400-e29b-41d4-a716-446655440002"`
	// Stands for one work_request of one sender for 24 hours, and for what is said about it.
	RequestID string `json:"request_id" validate:"required" format:"uuid" example:"550e8400-e29b-41d4-a716-446655440003"`
	// Carried to the agent as it came.
	Custom map[string]any `json:"x_custom_fields,omitempty"`
}

// WorkRequestEnvelope asks for work (Chiffon §work_request).
type WorkRequestEnvelope struct {
	Head
	Type    string      `json:"type" validate:"required" enums:"work_request" example:"work_request"`
	Payload WorkRequest `json:"payload" validate:"required"`
}

// WorkStatusEnvelope tells of progress with a task, or that an agent lives (Chiffon
// §work_status).
type WorkStatusEnvelope struct {
	Head
	Type    string            `json:"type" validate:"required" enums:"work_status" example:"work_status"`
	Payload WorkStatusPayload `json:"payload" validate:"required"`
}

// WorkResultEnvelope ends a task (Chiffon §work_result).
type WorkResultEnvelope struct {
	Head
	Type    string     `json:"type" validate:"required" enums:"work_result" example:"work_result"`
	Payload WorkResult `json:"payload" validate:"required"`
}

// ErrorEnvelope is a message that was refused, or an attempt that could not be done
// (Chiffon §error).
type ErrorEnvelope struct {
	Head
	Type    string    `json:"type" validate:"required" enums:"error" example:"error"`
	Payload WorkError `json:"payload" validate:"required"`
}

// InboxMessages is what an agent that asks for its inbox is handed over.
type InboxMessages struct {
	Messages []Envelope `json:"messages"`
}
