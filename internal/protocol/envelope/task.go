package envelope

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"comet/internal/orchestrator"
	wire "comet/internal/wire/envelope"
	"comet/models"
)

// meta is what is kept of a work_request to tell the agent, and to answer the asker.
type meta struct {
	Trace   string `json:"trace_id"`
	Request string `json:"request_id"`
	From    string `json:"from"`
	To      string `json:"to"`
	// Message is the id of the work_request.
	Message string `json:"message_id"`
	// MaxDuration and MaxMemory are hints, 0 where they were not given.
	MaxDuration int64         `json:"max_duration_seconds,omitempty"`
	MaxMemory   int64         `json:"max_memory_mb,omitempty"`
	Hints       []wire.Member `json:"hints,omitempty"`
	// Custom is x_custom_fields as it came.
	Custom json.RawMessage `json:"x_custom_fields,omitempty"`
}

func metaOf(e wire.Envelope, h wire.Hints) ([]byte, error) {
	return json.Marshal(meta{
		Trace: e.TraceID.String(), Request: e.RequestID.String(), From: e.From, To: e.To, Message: e.MessageID.String(),
		MaxDuration: h.MaxDurationSeconds, MaxMemory: h.MaxMemoryMB, Hints: h.Other, Custom: e.Custom,
	})
}

// task is a task as this protocol sees it, whichever door it came by.
type task struct {
	orchestrator.TaskWithInput
	meta      meta
	id        uuid.UUID
	traceID   uuid.UUID
	requestID uuid.UUID
}

// taskOf reads a task. One that came by another door gets ids that are always the same:
// its request_id is its own id, and its trace_id that of its W3C trace where it has one.
func taskOf(o orchestrator.TaskWithInput) (task, error) {
	a := task{TaskWithInput: o}
	var err error
	if a.id, err = uuid.Parse(o.Task.ID); err != nil {
		a.id = uuid.NewSHA1(uuid.NameSpaceURL, []byte("comet:task:"+o.Task.ID))
	}
	a.traceID, a.requestID = parseTraceID(o.Input.Trace), a.id
	if a.traceID == uuid.Nil {
		a.traceID = a.id
	}
	if o.Task.Class != Class {
		return a, nil
	}
	if err := json.Unmarshal(o.Input.Meta, &a.meta); err != nil {
		return a, err
	}
	if a.traceID, err = uuid.Parse(a.meta.Trace); err != nil {
		return a, err
	}
	a.requestID, err = uuid.Parse(a.meta.Request)
	return a, err
}

// parseTraceID is the trace of a W3C traceparent as the protocol writes it: both are the same
// 16 bytes. It is uuid.Nil where there is none.
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

// traceparent is the W3C form of a trace that begins with the message: its parent is a
// span that nobody has, made of the message's id.
func traceparent(e wire.Envelope) string {
	span := e.MessageID[8:]
	if bytes.Equal(span, make([]byte, 8)) || e.TraceID == uuid.Nil {
		return ""
	}
	return "00-" + hex.EncodeToString(e.TraceID[:]) + "-" + hex.EncodeToString(span) + "-01"
}

// fingerprint stands for what makes two requests the same: from, to, type and payload,
// however the payload is laid out.
func fingerprint(e wire.Envelope) string {
	payload := jsontext.Value(bytes.Clone(e.Raw))
	if err := payload.Canonicalize(); err != nil { // numbers that no double can hold
		payload = jsontext.Value(bytes.Clone(e.Raw))
		_ = payload.Compact()
	}
	sum := sha256.New()
	for _, part := range [][]byte{[]byte(e.From), []byte(e.To), []byte(e.Type), payload} {
		sum.Write(part)
		sum.Write([]byte{0})
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// capability is the name of the work in the protocol: the first thing the task needs.
func (a task) workType() string {
	if len(a.Input.Capabilities) == 0 {
		return "any"
	}
	return models.CapabilityKey(a.Input.Capabilities[0])
}
