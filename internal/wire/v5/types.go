package v5

import "strconv"

// Type is the type of a message (PROTOCOL_V5 §3.3).
type Type byte

// The types of the document, with Query, which §2.4 and §12.4 use and the table of §3.3 omits.
const (
	Request      Type = 'R'
	Success      Type = 'S'
	Failure      Type = 'E'
	Clarify      Type = 'C'
	Update       Type = 'U'
	Ack          Type = 'A'
	Broadcast    Type = 'B'
	Heartbeat    Type = 'H'
	Disambiguate Type = 'D'
	Join         Type = 'J'
	Leave        Type = 'L'
	Caps         Type = 'K'
	Handoff      Type = 'X'
	Query        Type = 'Q'
)

func (t Type) isValid() bool {
	switch t {
	case Request, Success, Failure, Clarify, Update, Ack, Broadcast,
		Heartbeat, Disambiguate, Join, Leave, Caps, Handoff, Query:
		return true
	}
	return false
}

// isSystem reports whether a message of the type can be system traffic, with M0, T0 and S0: the
// types of the registry (§2.4), and success and failure, which reply to them (§12.4).
func (t Type) isSystem() bool {
	switch t {
	case Join, Leave, Caps, Query, Heartbeat, Ack, Success, Failure:
		return true
	}
	return false
}

// String returns the type's letter, "" for the zero Type.
func (t Type) String() string {
	if t == 0 {
		return ""
	}
	return string([]byte{byte(t)})
}

// Priority is the urgency of a message (§3.2, segment 5), 0 for "-".
type Priority byte

// The priorities, P0 the most urgent.
const (
	P0 Priority = '0'
	P1 Priority = '1'
	P2 Priority = '2'
)

// OrDefault returns the priority, P1 for "-".
func (p Priority) OrDefault() Priority {
	if p == 0 {
		return P1
	}
	return p
}

// String returns the priority as it is written, such as P1 or "-".
func (p Priority) String() string {
	if p == 0 {
		return none
	}
	return string([]byte{'P', byte(p)})
}

// State is the state of a task (§4.1), 0 for "-".
type State byte

// The states of a task.
const (
	New       State = 'N'
	Running   State = 'R'
	Done      State = 'D'
	Failed    State = 'F'
	Cancelled State = 'X'
)

// String returns the state's letter, or "-".
func (s State) String() string {
	if s == 0 {
		return none
	}
	return string([]byte{byte(s)})
}

// Task is the number of a task (PROTOCOL_V5 §3.2, segment 4), the zero Task for "-".
type Task struct {
	// next is the number plus one, so that the zero Task is none.
	next int16
}

// NewTask returns the task with a number, 0 to maxTask. Format rejects a task with any other.
func NewTask(number int) Task {
	if number < 0 || number > maxTask {
		return Task{next: -1}
	}
	return Task{next: int16(number) + 1}
}

// parseTask parses a task such as T1, false for any other text, "-" included.
func parseTask(text string) (Task, bool) {
	n, ok := parseNumber(text, 'T', 3)
	if !ok {
		return Task{}, false
	}
	return NewTask(n), true
}

// Number returns the task's number, false for none.
func (t Task) Number() (int, bool) { return int(t.next) - 1, t.next > 0 }

// String returns the task as it is written: T1, or "-".
func (t Task) String() string { return string(t.append(nil)) }

func (t Task) append(line []byte) []byte {
	switch {
	case t.next == 0:
		return append(line, none...)
	case t.next < 0:
		return append(line, "T?"...)
	}
	return strconv.AppendInt(append(line, 'T'), int64(t.next)-1, 10)
}

// Budget is the number of tokens that may still be spent (§9.1), the zero Budget for unlimited.
type Budget struct {
	next int16 // the number plus one
}

// NewBudget returns a budget as a message can state it, 0 to 9999: a receiver of a lower budget
// spends less.
func NewBudget(tokens int64) Budget {
	return Budget{next: int16(max(0, min(tokens, maxBudget))) + 1}
}

// Tokens returns the budget in tokens, false for unlimited.
func (b Budget) Tokens() (int, bool) { return int(b.next) - 1, b.next > 0 }

// String returns the budget as it is written: B500, or "-".
func (b Budget) String() string { return string(b.append(nil)) }

func (b Budget) append(line []byte) []byte {
	if b.next == 0 {
		return append(line, none...)
	}
	return strconv.AppendInt(append(line, 'B'), int64(b.next)-1, 10)
}

// parseNumber parses letter and 1 to digits digits; digits is at most 4. Leading zeros are valid:
// M\d{1,4} of §3.5 matches M0001 too.
func parseNumber(text string, letter byte, digits int) (int, bool) {
	if len(text) < 2 || len(text) > digits+1 || text[0] != letter {
		return 0, false
	}
	n, err := strconv.ParseUint(text[1:], 10, 16)
	return int(n), err == nil
}

// isContext reports whether text is a session id (§6.1).
func isContext(text string) bool {
	if len(text) < 2 || len(text) > maxContext || text[0] != 'S' {
		return false
	}
	for i := 1; i < len(text); i++ {
		if c := text[i]; c-'0' > 9 && c-'a' > 25 {
			return false
		}
	}
	return true
}
