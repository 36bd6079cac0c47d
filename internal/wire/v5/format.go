package v5

import (
	"cmp"
	"fmt"
	"strconv"

	"comet/internal/wire/v5/codes"
)

// Format writes a message as one line without a line break (PROTOCOL_V5 §3.1). Parse reads it as
// the same message. An error is an *Error: Format rejects what Parse would reject, and DATA that
// Parse would truncate, with codes.ReasonOverflow.
func (m Message) Format() (string, error) {
	var buffer [MaxData + 128]byte
	line := string(m.append(buffer[:0]))
	// Parsing it again costs little and keeps the rules in one place.
	parsed, err := Parse(line)
	if err != nil {
		return "", err
	}
	if parsed.Warnings.Truncated() {
		return "", errOverflow()
	}
	if parsed.Warnings = m.Warnings; parsed != m {
		return "", newError(codes.E10, "", "the message would be parsed as another one than "+quote(line))
	}
	return line, nil
}

func errOverflow() *Error {
	return newError(codes.E10, codes.ReasonOverflow, fmt.Sprintf("DATA is longer than %d characters", MaxData))
}

func (m *Message) append(line []byte) []byte {
	line = strconv.AppendInt(append(line, 'M'), int64(m.Number), 10)
	line = m.From.append(append(line, '|'))
	line = m.To.append(append(line, '>'))
	line = append(line, '|', byte(m.Type), '|')
	line = m.Task.append(line)
	line = append(append(line, '|'), m.Priority.String()...)
	line = append(append(line, '|'), m.State.String()...)
	line = append(append(line, '|'), cmp.Or(string(m.Err), none)...)
	line = strconv.AppendInt(append(line, '|'), int64(m.Depth), 10)
	line = append(append(line, '|'), cmp.Or(m.Context, none)...)
	line = m.Budget.append(append(line, '|'))
	line = append(append(line, '|'), m.Data...)
	return m.Auth.append(line)
}
