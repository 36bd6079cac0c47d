package v5

import (
	"strconv"
	"strings"

	"comet/internal/wire/v5/codes"
)

// The prefixes of references.
const (
	refTask    = "#REF:"
	refContext = "#CTX:"
	refMessage = "#MSG:"
)

// Ref is one reference (PROTOCOL_V5 §6.3): #MSG:M3 if Number is set, #CTX:key if Context is, and
// otherwise #REF:T1:field.
type Ref struct {
	// Number is that of a message, the newest with this number between two ends, 1 to MaxNumber.
	Number int
	// Context is set for a fact of the current session.
	Context bool
	// Task has ended, or none: #REF:field (§3.4) names no task.
	Task Task
	// Field is a field of the result of the task, "" for all of it, or the key of a fact.
	Field string
}

// IsRef reports whether a value begins as a reference.
func IsRef(value string) bool {
	return strings.HasPrefix(value, refTask) || strings.HasPrefix(value, refContext) || strings.HasPrefix(value, refMessage)
}

// ParseRef parses a value that is one reference. The error is an *Error with E43.
func ParseRef(value string) (Ref, error) {
	var r Ref
	var ok bool
	if rest, found := strings.CutPrefix(value, refTask); found {
		r, ok = parseTaskRef(rest)
	} else if rest, found := strings.CutPrefix(value, refContext); found {
		r, ok = Ref{Context: true, Field: rest}, isField(rest)
	} else if rest, found := strings.CutPrefix(value, refMessage); found {
		r.Number, ok = parseNumber(rest, 'M', 4)
		ok = ok && r.Number > 0
	}
	if !ok {
		return Ref{}, newError(codes.E43, "", quote(value)+" must be a reference such as #REF:T1:raw, #CTX:key or #MSG:M3")
	}
	return r, nil
}

func parseTaskRef(text string) (Ref, bool) {
	head, field, more := strings.Cut(text, ":")
	task, ok := parseTask(head)
	switch {
	case ok && !more:
		return Ref{Task: task}, true
	case ok:
		return Ref{Task: task, Field: field}, isField(field)
	}
	return Ref{Field: text}, isField(text)
}

// String returns the reference as it is written in DATA, "" for an invalid one.
func (r Ref) String() string {
	var text string
	switch {
	case r.Number != 0:
		text = refMessage + "M" + strconv.Itoa(r.Number)
	case r.Context:
		text = refContext + r.Field
	case r.Task == Task{}:
		text = refTask + r.Field
	case r.Field == "":
		text = refTask + r.Task.String()
	default:
		text = refTask + r.Task.String() + ":" + r.Field
	}
	if parsed, err := ParseRef(text); err != nil || parsed != r {
		return ""
	}
	return text
}

// isField reports whether text can be a field or a key: a word without a delimiter of DATA or of
// references.
func isField(text string) bool {
	return text != "" && !strings.ContainsAny(text, " \"#,:;=") && inspect(text).defect == 0
}
