package v5

import (
	"fmt"
	"strings"
)

// Segment is the place of a segment in the line, from 1 (PROTOCOL_V5 §3.2). The zero
// Segment is the line as a whole.
type Segment int

// The segments of a line.
const (
	SegmentLine Segment = iota
	SegmentMessage
	SegmentRoute
	SegmentType
	SegmentTask
	SegmentPriority
	SegmentState
	SegmentErr
	SegmentDepth
	SegmentContext
	SegmentBudget
	SegmentData
)

// Segments is how many segments a line has.
const Segments = int(SegmentData)

// String is the segment's name in the document.
func (s Segment) String() string {
	names := [...]string{"the line", "MSG", "ROUTE", "TYPE", "TID", "PRI", "STATE", "ERR", "DEPTH", "CTX", "BUDGET", "DATA"}
	if s < 0 || int(s) >= len(names) {
		return "a segment"
	}
	return names[s]
}

// Error is why a line was refused, or why something cannot be put into one.
type Error struct {
	// Problems are in the order of the checks of §3.5, at least one. The first is the
	// one that is answered.
	Problems []Problem
}

// Problem is one thing that is wrong.
type Problem struct {
	Code Code
	// Reason is a word where the code has more than one meaning, or "".
	Reason  string
	Segment Segment
	// At is the byte of the line where it was found, counted from 0; in what does not
	// come from a line it is 0.
	At int
	// Detail is one sentence for a person, the segment included.
	Detail string
}

// Code is the code of the answer: that of the first check that failed.
func (e *Error) Code() Code { return e.Problems[0].Code }

// Reason is the word that goes with the code, or "".
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

// Data is the DATA of the answer (§8.3): reason where there is one, the code's meaning
// as desc and the first problem as details, cut where they would be too long.
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

func refusal(code Code, reason string, segment Segment, detail string) *Error {
	return &Error{Problems: []Problem{{Code: code, Reason: reason, Segment: segment, Detail: detail}}}
}

// quote shows what was found, cut to a length that a person reads. A pair in the place
// of another segment is not shown: it may be the token of a join.
func quote(found string) string {
	if strings.Contains(found, "=") {
		return "a pair"
	}
	return fmt.Sprintf("%.40q", found)
}
