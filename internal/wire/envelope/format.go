package envelope

import (
	"cmp"
	"errors"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/input"
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
	e.Timestamp = e.Timestamp.UTC()
	data, err := json.Marshal(e, jsontext.PreserveRawStrings(true))
	if err != nil {
		return nil, invalid(writeProblem(err))
	}
	// Parsing the result is cheap and avoids a second set of checks.
	if _, err := Parse(data); err != nil {
		return nil, err
	}
	return data, nil
}

// writeProblem returns a problem that names the member that cannot be written.
func writeProblem(err error) Problem {
	pointer, cause := jsontext.Pointer(""), err
	if semantic, ok := errors.AsType[*json.SemanticError](err); ok {
		pointer, cause = semantic.JSONPointer, cmp.Or(semantic.Err, err)
	}
	if syntactic, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		pointer, cause = max(pointer, syntactic.JSONPointer), syntactic.Err // the longer one
	}
	if pointer == "" {
		return *problemf("the message cannot be written: %s", err)
	}
	field := input.Field(string(pointer))
	return Problem{Field: field, Detail: field + " cannot be written: " + cause.Error()}
}

// MarshalJSONTo implements json.MarshalerTo: Other follows the known hints.
func (h Hints) MarshalJSONTo(enc *jsontext.Encoder) error {
	err := enc.WriteToken(jsontext.BeginObject)
	write := func(name string, value jsontext.Value) {
		if err == nil {
			err = enc.WriteToken(jsontext.String(name))
		}
		if err == nil {
			err = enc.WriteValue(value)
		}
	}
	for _, known := range []struct {
		name  string
		value int64
	}{{"max_duration_seconds", h.MaxDurationSeconds}, {"max_memory_mb", h.MaxMemoryMB}, {"max_tokens", h.MaxTokens}} {
		if known.value != 0 {
			write(known.name, strconv.AppendInt(nil, known.value, 10))
		}
	}
	for _, m := range h.Other {
		write(m.Name, jsontext.Value(m.Value))
	}
	if err == nil {
		err = enc.WriteToken(jsontext.EndObject)
	}
	return err
}

// IsZero reports whether no hint is given.
func (h Hints) IsZero() bool {
	return h.MaxDurationSeconds == 0 && h.MaxMemoryMB == 0 && h.MaxTokens == 0 && len(h.Other) == 0
}

// Clean replaces invalid UTF-8 and NUL, which a message cannot contain.
func Clean(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}
