package v5

import (
	"fmt"
	"strconv"
)

// Format writes a message as one line without a line break (PROTOCOL_V5 §3.1). What it
// writes, Parse reads as the same message. An error is an *Error: Format refuses what
// Parse would refuse, and DATA that Parse would cut, which is ReasonOverflow.
func Format(m Message) (string, error) {
	var room [MaxData + 128]byte
	line := string(m.append(room[:0]))
	// Reading it again costs little and keeps the rules in one place.
	again, err := Parse(line)
	if err != nil {
		return "", err
	}
	if again.Warnings.Has(DataTruncated) {
		return "", refusal(E10, ReasonOverflow, SegmentData, fmt.Sprintf("DATA is longer than %d characters", MaxData))
	}
	if again.Warnings = m.Warnings; again != m {
		return "", refusal(E10, "", SegmentLine, "the line would be read as another message than "+quote(line))
	}
	return line, nil
}

func (m *Message) append(line []byte) []byte {
	line = strconv.AppendInt(append(line, 'M'), int64(m.Number), 10)
	line = m.From.append(append(line, '|'))
	line = m.To.append(append(line, '>'))
	line = append(line, '|', byte(m.Type), '|')
	line = m.Task.append(line)
	line = m.Priority.append(append(line, '|'))
	line = m.State.append(append(line, '|'))
	line = orNone(append(line, '|'), string(m.Err))
	line = strconv.AppendInt(append(line, '|'), int64(m.Depth), 10)
	line = orNone(append(line, '|'), m.Context)
	line = m.Budget.append(append(line, '|'))
	line = append(append(line, '|'), m.Data...)
	return m.Auth.append(line)
}

func (p Priority) append(line []byte) []byte {
	if p == NoPriority {
		return append(line, none...)
	}
	return append(line, 'P', byte(p))
}

func (s State) append(line []byte) []byte {
	if s == NoState {
		return append(line, none...)
	}
	return append(line, byte(s))
}

// orNone writes a segment that is "" where it says nothing.
func orNone(line []byte, s string) []byte {
	if s == "" {
		s = none
	}
	return append(line, s...)
}
