package v5

import (
	"fmt"
	"strings"

	"comet/internal/wire/v5/codes"
)

// addedSegments is what V5 has between the seventh segment and DATA (PROTOCOL_V5 §14.2).
const addedSegments = "0|-|-|"

// ParseV4 parses a message of V4, of eight segments, as the message that it is in V5, with depth 0
// and neither session nor budget. An error is an *Error as that of Parse; for what V4 does not
// have, the codes are E14 for a type, E10 for an error code and E43 for a reference. A message of
// V5 is E12: its last segments would be DATA with bars.
func ParseV4(line string) (Message, error) {
	at := dataOffsetV4(line)
	if at < 0 {
		m, invalid := parse(line)
		if line != "" {
			invalid.Problems[0].Detail = fmt.Sprintf("%s, not %d", segmentCount(strings.Count(line, "|")+1), SegmentsV4)
		}
		return m, invalid
	}
	m, invalid := parse(line[:at] + addedSegments + line[at:])
	if invalid == nil {
		invalid = notInV4(m)
	}
	if invalid != nil {
		return m, invalid
	}
	return m, nil
}

// FormatV4 writes a message in V4, without depth, session and budget. An error is an *Error as that
// of Format, or one that names what V4 does not have. Auth is written as it is: it must be the
// signature of the V4 message.
func (m Message) FormatV4() (string, error) {
	if invalid := notInV4(m); invalid != nil {
		return "", invalid
	}
	m.Depth, m.Context, m.Budget = 0, "", Budget{}
	line, err := m.Format()
	if err != nil {
		return "", err
	}
	at := dataOffsetV4(line)
	return line[:at] + line[at+len(addedSegments):], nil
}

// notInV4 returns an error for what V4 does not have besides depth, session and budget (annex A),
// nil where V4 can express the message.
func notInV4(m Message) *Error {
	switch m.Type {
	case Join, Leave, Caps, Disambiguate, Handoff, Query:
		return newError(codes.E14, "", "TYPE: V4 has no type "+m.Type.String())
	}
	if m.Err.V4() != m.Err {
		return newError(codes.E10, "", "ERR: V4 has no code "+string(m.Err))
	}
	if key, ok := findReference(m.Data); ok {
		return newError(codes.E43, "", "DATA: V4 has no references, but there is one in "+key)
	}
	return nil
}

// findReference returns the key of a value that V5 would take for a reference.
func findReference(d Data) (key string, ok bool) {
	for p := range d.Pairs() {
		if IsRef(p.Value()) {
			return p.Key, true
		}
	}
	for name, value := range d.Params() {
		if IsRef(value) {
			return name, true
		}
	}
	return "", false
}

// dataOffsetV4 returns the byte at which DATA begins, -1 in a message with too few segments.
func dataOffsetV4(line string) int {
	if strings.Count(line, "|") < SegmentsV4-1 {
		return -1
	}
	at := 0
	for range SegmentsV4 - 1 {
		at += strings.IndexByte(line[at:], '|') + 1
	}
	return at
}
