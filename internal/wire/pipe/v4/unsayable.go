package v4

import (
	"fmt"

	"comet/internal/wire/pipe"
)

// Unsayable is why a message cannot be put into V4 (PROTOCOL_V5, annex A: additions).
type Unsayable struct {
	// Segment is where V4 has no word: TYPE, ERR or DATA.
	Segment pipe.Segment
	// What is the type, the code or the reference.
	What string

	code pipe.Code
}

// Error implements error.
func (u *Unsayable) Error() string {
	return fmt.Sprintf("%s: V4 has no %s", u.Segment, u.What)
}

// Code returns the code that a V4 agent understands in a code's place: E99 for E16 to
// E19, which V5 has added and which are not retried either, and each other code itself.
// The way back needs no such table: a V4 code means the same in V5.
func Code(c pipe.Code) pipe.Code {
	switch c {
	case pipe.E16, pipe.E17, pipe.E18, pipe.E19:
		return pipe.E99
	}
	return c
}

// unsayable returns what V4 cannot say of a message, nil where it can say all but
// depth, session and budget.
func unsayable(m pipe.Message) *Unsayable {
	switch m.Type {
	case pipe.Join, pipe.Leave, pipe.Caps, pipe.Disambiguate, pipe.Handoff, pipe.Query:
		return &Unsayable{Segment: pipe.SegmentType, What: "type " + m.Type.String(), code: pipe.E14}
	}
	if Code(m.Err) != m.Err {
		return &Unsayable{Segment: pipe.SegmentErr, What: "code " + string(m.Err), code: pipe.E10}
	}
	if key, ok := reference(m.Data); ok {
		return &Unsayable{Segment: pipe.SegmentData, What: "references, but there is one in " + key, code: pipe.E43}
	}
	return nil
}

// reference finds a value that V5 would take for a reference.
func reference(d pipe.Data) (string, bool) {
	for p := range d.Pairs() {
		if pipe.IsRef(p.Value()) {
			return p.Key, true
		}
	}
	for p := range d.Params() {
		if pipe.IsRef(p.Value) {
			return p.Name, true
		}
	}
	return "", false
}
