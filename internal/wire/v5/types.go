package v5

// Type says what a message is (PROTOCOL_V5 §3.3).
type Type byte

// The types of the document, Query among them: §2.4 and §12.4 use it, though the
// table of §3.3 leaves it out.
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

// Types returns the types in the order of the document.
func Types() []Type {
	return []Type{
		Request, Success, Failure, Clarify, Update, Ack, Broadcast,
		Heartbeat, Disambiguate, Join, Leave, Caps, Handoff, Query,
	}
}

// Valid reports whether the document knows the type.
func (t Type) Valid() bool {
	switch t {
	case Request, Success, Failure, Clarify, Update, Ack, Broadcast,
		Heartbeat, Disambiguate, Join, Leave, Caps, Handoff, Query:
		return true
	}
	return false
}

// System reports whether a message of the type may be system traffic, with M0, T0 and
// S0: the types of the registry (§2.4), and success and failure, which answer them
// (§12.4).
func (t Type) System() bool {
	switch t {
	case Join, Leave, Caps, Query, Heartbeat, Ack, Success, Failure:
		return true
	}
	return false
}

// String is the type's letter, "" for the zero Type.
func (t Type) String() string { return letter(byte(t), "") }

// Priority is how urgent a message is (§3.2, segment 5). The zero Priority is that of
// a line which says nothing.
type Priority byte

// The priorities, P0 the most urgent.
const (
	NoPriority Priority = 0
	P0         Priority = '0'
	P1         Priority = '1'
	P2         Priority = '2'
)

// OrDefault is the priority, P1 where the line says nothing.
func (p Priority) OrDefault() Priority {
	if p == NoPriority {
		return P1
	}
	return p
}

// String is the priority as it stands in a line, "-" for NoPriority.
func (p Priority) String() string {
	if p == NoPriority {
		return none
	}
	return letter('P', "") + letter(byte(p), "")
}

// State is the state of a task (§4.1). The zero State is that of a line which says
// nothing.
type State byte

// The states of a task.
const (
	NoState   State = 0
	New       State = 'N'
	Running   State = 'R'
	Done      State = 'D'
	Failed    State = 'F'
	Cancelled State = 'X'
)

// String is the state's letter, "-" for NoState.
func (s State) String() string { return letter(byte(s), none) }

// none is what stands in a segment that says nothing.
const none = "-"

func letter(b byte, zero string) string {
	if b == 0 {
		return zero
	}
	return string([]byte{b})
}
