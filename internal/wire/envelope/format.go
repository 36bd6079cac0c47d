package envelope

import (
	"errors"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
)

// Format returns an envelope as JSON on one line: its members in the order of the document's
// tables, raw values unchanged except for white space. It rejects what Parse would reject, with an
// *Error.
func Format(e Envelope) ([]byte, error) {
	if e.Payload == nil {
		return nil, invalid(Problem{Field: "payload", Detail: "payload is required"})
	}
	if t := e.Payload.Type(); e.Type != t {
		return nil, invalid(Problem{Field: "type", Detail: "type must be " + string(t) + " to match the payload"})
	}
	if e.Timestamp.IsZero() {
		return nil, invalid(Problem{Field: "timestamp", Detail: "timestamp is required"})
	}
	data, problem := objectWriter{fill: e.writeMembers}.bytes()
	if problem != nil {
		return nil, invalid(*problem)
	}
	// Parsing the result is cheap and avoids a second set of checks.
	if _, err := Parse(data); err != nil {
		return nil, err
	}
	return data, nil
}

func (e Envelope) writeMembers(w *writer) {
	w.string("protocol_version", e.ProtocolVersion)
	w.uuid("message_id", e.MessageID)
	w.string("from_agent", e.From)
	w.string("to_agent", e.To)
	w.time("timestamp", e.Timestamp)
	w.uuid("trace_id", e.TraceID)
	w.uuid("request_id", e.RequestID)
	w.string("type", string(e.Type))
	w.begin("payload")
	e.Payload.writeMembers(w)
	w.end()
	w.raw("x_custom_fields", e.Custom)
}

func (p WorkRequest) writeMembers(w *writer) {
	w.uuid("task_id", p.TaskID)
	w.string("work_type", p.WorkType)
	w.raw("parameters", p.Parameters)
	if h := p.Hints; !h.empty() {
		w.begin("hints")
		w.integerIfSet("max_duration_seconds", h.MaxDurationSeconds)
		w.integerIfSet("max_memory_mb", h.MaxMemoryMB)
		w.integerIfSet("max_tokens", h.MaxTokens)
		for _, m := range h.Other {
			w.raw(m.Name, m.Value)
		}
		w.end()
	}
}

func (h Hints) empty() bool {
	return h.MaxDurationSeconds == 0 && h.MaxMemoryMB == 0 && h.MaxTokens == 0 && len(h.Other) == 0
}

func (p WorkStatus) writeMembers(w *writer) {
	w.uuid("task_id", p.TaskID)
	w.string("status", string(p.Status))
	w.integer("progress_percent", int64(p.Progress))
	if p.Step == nil {
		return
	}
	w.begin("step")
	w.integer("number", int64(p.Step.Number))
	w.string("name", p.Step.Name)
	w.string("output", p.Step.Output)
	if p.Step.Chunk != (Range{}) {
		w.string("output_chunk", p.Step.Chunk.String())
	}
	w.end()
}

func (p Heartbeat) writeMembers(w *writer) {
	w.string("agent_id", p.AgentID)
	w.string("status", string(p.Status))
	if p.Load != nil {
		w.integer("load", int64(*p.Load))
	}
	if p.Queue != nil {
		w.integer("queue", int64(*p.Queue))
	}
}

func (p WorkResult) writeMembers(w *writer) {
	w.uuid("task_id", p.TaskID)
	w.string("status", string(p.Status))
	w.integer("exit_code", p.ExitCode)
	w.string("output", p.Output)
	w.begin("resources_used")
	w.integer("duration_seconds", p.Resources.DurationSeconds)
	w.integer("gpu_vram_mb", p.Resources.GPUVRAMMB)
	w.integer("cpu_time_ms", p.Resources.CPUTimeMS)
	w.integerIfSet("tokens", p.Resources.Tokens)
	w.end()
}

func (f Failure) writeMembers(w *writer) {
	w.integer("error_code", int64(f.Code))
	w.string("error_message", f.Message)
	w.raw("error_context", f.Context)
}

// writer writes the members of objects. It stops at the first error.
type writer struct {
	enc *jsontext.Encoder
	// replaceInvalid replaces invalid UTF-8, which is an error otherwise.
	replaceInvalid bool
	err            error
}

// objectWriter is an object that fill writes. It runs inside json.Marshal, which reuses its
// encoders.
type objectWriter struct {
	fill           func(w *writer)
	replaceInvalid bool
}

// MarshalJSONTo implements json.MarshalerTo.
func (o objectWriter) MarshalJSONTo(enc *jsontext.Encoder) error {
	w := writer{enc: enc, replaceInvalid: o.replaceInvalid}
	w.token(jsontext.BeginObject)
	o.fill(&w)
	w.end()
	return w.err
}

// bytes returns the object on one line, or a problem that names the member that cannot be written.
func (o objectWriter) bytes() ([]byte, *Problem) {
	data, err := json.Marshal(o, jsontext.PreserveRawStrings(true))
	if err == nil {
		return data, nil
	}
	var syntactic *jsontext.SyntacticError
	if !errors.As(err, &syntactic) {
		return nil, problemf("the message cannot be written: %s", err)
	}
	field := fieldName(syntactic.JSONPointer)
	return nil, &Problem{Field: field, Detail: field + " cannot be written: " + syntactic.Err.Error()}
}

func (w *writer) token(t jsontext.Token) {
	if w.err == nil {
		w.err = w.enc.WriteToken(t)
	}
}

func (w *writer) begin(name string) {
	w.token(jsontext.String(name))
	w.token(jsontext.BeginObject)
}

func (w *writer) end() { w.token(jsontext.EndObject) }

func (w *writer) string(name, value string) {
	w.token(jsontext.String(name))
	w.text(value)
}

func (w *writer) text(value string) {
	if w.replaceInvalid {
		value = validUTF8(value)
	}
	w.token(jsontext.String(value))
}

// replacement replaces invalid text.
const replacement = "\uFFFD"

func validUTF8(text string) string { return strings.ToValidUTF8(text, replacement) }

func (w *writer) strings(name string, values []string) {
	w.token(jsontext.String(name))
	w.token(jsontext.BeginArray)
	for _, v := range values {
		w.text(v)
	}
	w.token(jsontext.EndArray)
}

func (w *writer) integer(name string, value int64) {
	w.token(jsontext.String(name))
	w.token(jsontext.Int(value))
}

// integerIfSet writes a number unless it is 0.
func (w *writer) integerIfSet(name string, value int64) {
	if value != 0 {
		w.integer(name, value)
	}
}

func (w *writer) null(name string) {
	w.token(jsontext.String(name))
	w.token(jsontext.Null)
}

func (w *writer) uuid(name string, id uuid.UUID) { w.string(name, id.String()) }

func (w *writer) time(name string, at time.Time) {
	w.string(name, at.UTC().Format(time.RFC3339Nano))
}

// raw writes a JSON value unless it is nil.
func (w *writer) raw(name string, value []byte) {
	if value == nil {
		return
	}
	w.token(jsontext.String(name))
	if w.err == nil {
		w.err = w.enc.WriteValue(value)
	}
}
