package v4

import (
	"fmt"

	"comet/internal/wire/v5"
)

// Unsayable is why a message cannot be put into V4 (PROTOCOL_V5, annex A: additions).
type Unsayable struct {
	// Segment is where V4 has no word: TYPE, ERR or DATA.
	Segment v5.Segment
	// What is the type, the code or the reference.
	What string

	code v5.Code
}

// Error implements error.
func (u *Unsayable) Error() string {
	return fmt.Sprintf("%s: V4 has no %s", u.Segment, u.What)
}

// Code returns the code that a V4 agent understands in a code's place: E99 for E16 to
// E19, which V5 has added and which are not retried either, and each other code itself.
// The way back needs no such table: a V4 code means the same in V5.
func Code(c v5.Code) v5.Code {
	switch c {
	case v5.E16, v5.E17, v5.E18, v5.E19:
		return v5.E99
	}
	return c
}

// unsayable returns what V4 cannot say of a message, nil where it can say all but
// depth, session and budget.
func unsayable(m v5.Message) *Unsayable {
	switch m.Type {
	case v5.Join, v5.Leave, v5.Caps, v5.Disambiguate, v5.Handoff, v5.Query:
		return &Unsayable{Segment: v5.SegmentType, What: "type " + m.Type.String(), code: v5.E14}
	}
	if Code(m.Err) != m.Err {
		return &Unsayable{Segment: v5.SegmentErr, What: "code " + string(m.Err), code: v5.E10}
	}
	if key, ok := reference(m.Data); ok {
		return &Unsayable{Segment: v5.SegmentData, What: "references, but there is one in " + key, code: v5.E43}
	}
	return nil
}

// reference finds a value that V5 would take for a reference.
func reference(d v5.Data) (string, bool) {
	for p := range d.Pairs() {
		if v5.IsRef(p.Value()) {
			return p.Key, true
		}
	}
	for p := range d.Params() {
		if v5.IsRef(p.Value) {
			return p.Name, true
		}
	}
	return "", false
}
