package v5

import (
	"fmt"
	"strings"

	"comet/internal/wire/v5/codes"
)

// segment is the position of a segment in a message, from 1 (PROTOCOL_V5 §3.2).
type segment int

const (
	segmentMessage segment = iota + 1
	segmentRoute
	segmentType
	segmentTask
	segmentPriority
	segmentState
	segmentErr
	segmentDepth
	segmentContext
	segmentBudget
	segmentData
)

// Segments and SegmentsV4 are the numbers of segments in a message.
const (
	Segments   = int(segmentData)
	SegmentsV4 = 8
)

// String returns the name of the segment in the document.
func (s segment) String() string {
	return [...]string{"", "MSG", "ROUTE", "TYPE", "TID", "PRI", "STATE", "ERR", "DEPTH", "CTX", "BUDGET", "DATA"}[s]
}

// Error is the error of an invalid message, or of a value that cannot be written into one.
type Error struct {
	// Problems are in the order of the checks of §3.5, at least one.
	Problems []problem
}

// problem is one failed check.
type problem struct {
	Code codes.Code
	// Reason is a word where the code has several meanings, or "".
	Reason string
	// Detail is one sentence for a person, with the name of the segment.
	Detail string
}

// Code returns the code of the reply: that of the first failed check.
func (e *Error) Code() codes.Code { return e.Problems[0].Code }

// Reason returns the word that goes with the code, or "".
func (e *Error) Reason() string { return e.Problems[0].Reason }

// Error implements error.
func (e *Error) Error() string {
	var b strings.Builder
	for i, p := range e.Problems {
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "%s %s: %s", p.Code, p.Code.Meaning(), p.Detail)
	}
	return b.String()
}

// Data returns the DATA of the reply (§8.3): reason where there is one, the code's meaning as desc
// and the first problem as details, truncated where they would be too long.
func (e *Error) Data() Data {
	p := e.Problems[0]
	var w Writer
	if p.Reason != "" {
		w.Add("reason", p.Reason)
	}
	w.Text("desc", p.Code.Meaning())
	w.Text("details", p.Detail)
	data, err := w.Data()
	if err != nil {
		return none // a reason that is no word
	}
	return data
}

func newError(code codes.Code, reason, detail string) *Error {
	return &Error{Problems: []problem{{code, reason, detail}}}
}

// quote returns a found text for a person. A pair in another segment than DATA is not shown: it
// may be the token of a join.
func quote(found string) string {
	if strings.Contains(found, "=") {
		return "a pair"
	}
	return fmt.Sprintf("%.40q", found)
}
