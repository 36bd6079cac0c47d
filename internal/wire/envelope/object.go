package envelope

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"comet/internal/input"
)

// parser collects the problems of a message.
type parser struct {
	problems []Problem
}

// object is an object of the message. Each method reads one member and reports its problems, in the
// order of the calls.
type object struct {
	parser *parser
	// path is the prefix of its members' paths: "" or "payload.step.".
	path    string
	members []member
}

type member struct {
	name  []byte
	value []byte
	// members are the members of an object that Parse reads; see isRead.
	members []member
}

// presence says whether a member may be missing.
type presence bool

const (
	required presence = true
	optional presence = false
)

// isKnownMember reports whether protocol 1.0 defines a member of that name. Other members are not
// kept, because a message may have very many.
func isKnownMember(name []byte) bool {
	switch string(name) {
	case "protocol_version", "message_id", "from_agent", "to_agent", "timestamp", "trace_id", "request_id", "type", "payload", "x_custom_fields",
		"task_id", "work_type", "parameters", "hints", "max_duration_seconds", "max_memory_mb", "max_tokens",
		"status", "progress_percent", "step", "number", "name", "output", "output_chunk", "agent_id", "load", "queue",
		"exit_code", "resources_used", "duration_seconds", "gpu_vram_mb", "cpu_time_ms", "tokens",
		"error_code", "error_message", "error_context", "attempted_retries", "last_attempt", "last_heartbeat",
		"validation_error", "field_name", "token_status", "limit_name", "available", "required", "work_type_requested", "supported_types":
		return true
	}
	return false
}

// isRead reports whether Parse reads the members of an object: the payload of the message, whose parent is
// "", and some members of the payload.
func isRead(parent, name []byte) bool {
	switch string(name) {
	case "payload":
		return len(parent) == 0
	case "hints", "step", "resources_used", "error_context":
		return string(parent) == "payload"
	}
	return false
}

func (o *object) report(name, format string, args ...any) {
	field := o.path + name
	o.parser.problems = append(o.parser.problems, Problem{Field: field, Detail: field + " " + fmt.Sprintf(format, args...)})
}

// find returns a member, the zero member if it is missing.
func (o *object) find(name string) member {
	for _, m := range o.members {
		if string(m.name) == name {
			return m
		}
	}
	return member{}
}

// value returns the value of a member if it has the given kind (see kindOf), else nil.
func (o *object) value(name string, n presence, first byte) []byte {
	value := o.find(name).value
	switch {
	case value == nil && n == required:
		o.report(name, "is required")
	case value != nil && kindOf(value) != first:
		o.report(name, "must be %s, not %s", describeKind(first), describeValue(value))
		return nil
	}
	return value
}

// text returns a string, "" if it is missing.
func (o *object) text(name string, n presence) string {
	value := o.value(name, n, '"')
	if value == nil {
		return ""
	}
	return string(unquote(value))
}

// nulFreeText returns a required string without NUL, which some databases cannot store.
func (o *object) nulFreeText(name string) string {
	text := o.text(name, required)
	for i := range len(text) {
		if text[i] == 0 {
			o.report(name, "must not contain the NUL character")
			return ""
		}
	}
	return text
}

// matching returns a required string that ok accepts. what describes such a string.
func (o *object) matching(name, what string, ok func(text []byte) bool) string {
	value := o.value(name, required, '"')
	if value == nil {
		return ""
	}
	text := unquote(value)
	if !ok(text) {
		o.report(name, "must be %s, not %s", what, input.Quote(string(text)))
		return ""
	}
	return string(text)
}

// oneOf returns a required string that must be one of allowed.
func oneOf[T ~string](o *object, name string, allowed ...T) T {
	value := o.value(name, required, '"')
	if value == nil {
		return ""
	}
	text := unquote(value)
	for _, a := range allowed {
		if string(text) == string(a) {
			return a
		}
	}
	names := make([]string, len(allowed))
	for i, a := range allowed {
		names[i] = string(a)
	}
	o.report(name, "must be one of %s, not %s", strings.Join(names, ", "), input.Quote(string(text)))
	return ""
}

// integer returns an integer from lowest to highest, 0 if it is missing.
func (o *object) integer(name string, n presence, lowest, highest int64) int64 {
	value := o.value(name, n, '0')
	if value == nil {
		return 0
	}
	if bytes.ContainsAny(value, ".eE") {
		o.report(name, "must be an integer, not %s", input.Clip(string(value)))
		return 0
	}
	number, err := strconv.ParseInt(string(value), 10, 64)
	if errors.Is(err, strconv.ErrRange) || number < lowest || number > highest {
		o.report(name, "must be from %d to %d, not %s", lowest, highest, input.Clip(string(value)))
		return 0
	}
	return number
}

// count returns an optional integer from 0 to highest, nil if it is missing.
func (o *object) count(name string, highest int64) *int {
	if o.find(name).value == nil {
		return nil
	}
	return new(int(o.integer(name, optional, 0, highest)))
}

// uuid returns a required UUID in the form with hyphens. The nil UUID is a problem unless mayBeNil.
func (o *object) uuid(name string, mayBeNil bool) uuid.UUID {
	value := o.value(name, required, '"')
	if value == nil {
		return uuid.Nil
	}
	const form = "8f14e45f-ceea-467f-a1d0-7c1b2f0e9a11"
	text := unquote(value)
	id, err := uuid.ParseBytes(text)
	switch {
	case err != nil || len(text) != len(form):
		o.report(name, "must be a UUID such as %s, not %s", form, input.Quote(string(text)))
		return uuid.Nil
	case id == uuid.Nil && !mayBeNil:
		o.report(name, "must not be the nil UUID")
	}
	return id
}

// time returns a required time in UTC.
func (o *object) time(name string) time.Time {
	value := o.value(name, required, '"')
	if value == nil {
		return time.Time{}
	}
	text := unquote(value)
	at, ok := parseTime(text)
	if !ok {
		o.report(name, "must be an RFC 3339 time with an offset, such as 2026-01-19T04:21:04Z, not %s", input.Quote(string(text)))
	}
	return at
}

// raw returns an object as it was received, nil if it is missing.
func (o *object) raw(name string, n presence) []byte { return slices.Clip(o.value(name, n, '{')) }

// inner opens an object inside this one. ok is false if it is missing.
func (o *object) inner(name string, n presence) (in object, ok bool) {
	if o.value(name, n, '{') == nil {
		return object{}, false
	}
	return object{parser: o.parser, path: o.path + name + ".", members: o.find(name).members}, true
}

// kindOf returns the character with which its kind of value begins, '0' for all numbers and 't' for
// both booleans.
func kindOf(value []byte) byte {
	switch first := value[0]; first {
	case '"', '{', '[', 'n', 't':
		return first
	case 'f':
		return 't'
	}
	return '0'
}

func describeValue(value []byte) string { return describeKind(kindOf(value)) }

func describeKind(kind byte) string {
	switch kind {
	case '"':
		return "a string"
	case '{':
		return "an object"
	case '[':
		return "an array"
	case 't':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}
