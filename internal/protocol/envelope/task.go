package envelope

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/google/uuid"

	"comet/internal/input"
	"comet/internal/orchestrator"
	wire "comet/internal/wire/envelope"
	"comet/models"
)

// meta is what is stored of a work_request, for the messages to the agent and to the requester.
type meta struct {
	Trace   string `json:"trace_id"`
	Request string `json:"request_id"`
	From    string `json:"from"`
	To      string `json:"to"`
	// Message is the id of the work_request.
	Message string `json:"message_id"`
	// MaxDuration and MaxMemory are hints, 0 if they are not given.
	MaxDuration int64         `json:"max_duration_seconds,omitempty"`
	MaxMemory   int64         `json:"max_memory_mb,omitempty"`
	Hints       []wire.Member `json:"hints,omitempty"`
	// Custom is x_custom_fields as it was received.
	Custom json.RawMessage `json:"x_custom_fields,omitempty"`
}

func metaOf(e wire.Envelope, h wire.Hints) ([]byte, error) {
	return json.Marshal(meta{
		Trace: e.TraceID.String(), Request: e.RequestID.String(), From: e.From, To: e.To, Message: e.MessageID.String(),
		MaxDuration: h.MaxDurationSeconds, MaxMemory: h.MaxMemoryMB, Hints: h.Other, Custom: e.Custom,
	})
}

// task is a task with its ids in this protocol.
type task struct {
	orchestrator.TaskWithInput
	meta      meta
	id        uuid.UUID
	traceID   uuid.UUID
	requestID uuid.UUID
}

// taskOf returns a task with its ids. A task that was submitted in another way gets stable ids: its
// request_id is the task id, and its trace_id is that of its W3C trace, if any.
func taskOf(stored orchestrator.TaskWithInput) (task, error) {
	t := task{TaskWithInput: stored}
	var err error
	if t.id, err = uuid.Parse(stored.Task.ID); err != nil {
		t.id = uuid.NewSHA1(uuid.NameSpaceURL, []byte("comet:task:"+stored.Task.ID))
	}
	t.traceID, t.requestID = parseTraceID(stored.Input.Trace), t.id
	if t.traceID == uuid.Nil {
		t.traceID = t.id
	}
	if stored.Task.Class != Class {
		return t, nil
	}
	if err := json.Unmarshal(stored.Input.Meta, &t.meta); err != nil {
		return t, err
	}
	if t.traceID, err = uuid.Parse(t.meta.Trace); err != nil {
		return t, err
	}
	t.requestID, err = uuid.Parse(t.meta.Request)
	return t, err
}

// parseTraceID returns the trace id of a W3C traceparent: both have the same 16 bytes. It is
// uuid.Nil if there is none.
func parseTraceID(traceparent string) uuid.UUID {
	const from, to = 3, 35
	if len(traceparent) < to {
		return uuid.Nil
	}
	raw, err := hex.DecodeString(traceparent[from:to])
	if err != nil {
		return uuid.Nil
	}
	return uuid.UUID(raw)
}

// traceparent returns the W3C form of the message's trace. The parent span is made of the message
// id; no such span exists.
func traceparent(e wire.Envelope) string {
	span := e.MessageID[8:]
	if bytes.Equal(span, make([]byte, 8)) || e.TraceID == uuid.Nil {
		return ""
	}
	return "00-" + hex.EncodeToString(e.TraceID[:]) + "-" + hex.EncodeToString(span) + "-01"
}

// fingerprint returns a hash of what makes two requests equal: from, to, type and payload,
// regardless of the layout of the payload.
func fingerprint(e wire.Envelope) string {
	sum := sha256.New()
	for _, part := range [][]byte{[]byte(e.From), []byte(e.To), []byte(e.Type), input.Canonical(e.Raw)} {
		sum.Write(part)
		sum.Write([]byte{0})
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// workType returns the first required capability, which is the work_type in the protocol.
func (t task) workType() string {
	if len(t.Input.Capabilities) == 0 {
		return "any"
	}
	return models.CapabilityKey(t.Input.Capabilities[0])
}
