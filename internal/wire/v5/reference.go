package v5

import (
	"strconv"
	"strings"

	"comet/internal/wire/v5/codes"
)

// RefKind is the kind of a reference (PROTOCOL_V5 §6.3).
type RefKind byte

// The kinds of references.
const (
	// RefTask is #REF:T1:field, a field of a task's result; #REF:T1 is all of the result, and
	// #REF:field (§3.4) names no task.
	RefTask RefKind = iota + 1
	// RefContext is #CTX:key, a fact of the current session.
	RefContext
	// RefMessage is #MSG:M3, the newest message with that number between two ends.
	RefMessage
)

// The prefixes of references.
const (
	refTask    = "#REF:"
	refContext = "#CTX:"
	refMessage = "#MSG:"
)

// Ref is one reference.
type Ref struct {
	Kind RefKind
	// Task is that of a RefTask, or none.
	Task Task
	// Field is the field of a RefTask, or "", and the key of a RefContext.
	Field string
	// Number is that of a RefMessage, 1 to MaxNumber.
	Number int
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
		r, ok = Ref{Kind: RefContext, Field: rest}, isField(rest)
	} else if rest, found := strings.CutPrefix(value, refMessage); found {
		r.Kind = RefMessage
		r.Number, ok = parseNumber(rest, 'M', 4)
		ok = ok && r.Number > 0
	}
	if !ok {
		return Ref{}, newError(codes.E43, "", segmentData, quote(value)+" must be a reference such as #REF:T1:raw, #CTX:key or #MSG:M3")
	}
	return r, nil
}

func parseTaskRef(text string) (Ref, bool) {
	head, field, more := strings.Cut(text, ":")
	task, ok := parseTask(head)
	switch {
	case ok && !more:
		return Ref{Kind: RefTask, Task: task}, true
	case ok:
		return Ref{Kind: RefTask, Task: task, Field: field}, isField(field)
	}
	return Ref{Kind: RefTask, Field: text}, isField(text)
}

// String returns the reference as it is written in DATA, "" for an invalid one.
func (r Ref) String() string {
	var text string
	switch {
	case r.Kind == RefTask && r.Task == Task{}:
		text = refTask + r.Field
	case r.Kind == RefTask && r.Field == "":
		text = refTask + r.Task.String()
	case r.Kind == RefTask:
		text = refTask + r.Task.String() + ":" + r.Field
	case r.Kind == RefContext:
		text = refContext + r.Field
	case r.Kind == RefMessage:
		text = refMessage + "M" + strconv.Itoa(r.Number)
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
