// Package v5 reads and writes the one-line messages of PROTOCOL_V5: eleven segments
// with a bar between them, the last of them a small text of pairs. It knows which line
// is a message, which code refuses one that is not, and how its DATA is read, signed
// and written; what a message means, who may send it and when are for its callers.
package v5

import "strings"

// The bounds of a line (PROTOCOL_V5 §3.2).
const (
	// MaxLine is the longest line that is read, in bytes. A line that is written is
	// far shorter.
	MaxLine = 64 << 10
	// MaxNumber is the highest message number; the next is 1 again.
	MaxNumber = 9999
	// MaxTask is the highest task number.
	MaxTask = 999
	// MaxBudget is the highest budget that a line can state, in tokens.
	MaxBudget = 9999
	// MaxDepth is the deepest hand-off that a line can state.
	MaxDepth = 5
	// MaxAddress is the longest id of an agent, in characters.
	MaxAddress = 10
	// MaxContext is the longest session id, its S included.
	MaxContext = 8
	// MaxData is the longest DATA without the pair auth, in characters (runes).
	MaxData = 200
)

// SystemContext is the session of traffic that belongs to no conversation.
const SystemContext = "S0"

// Message is one line (PROTOCOL_V5 §3). Messages can be compared with ==.
type Message struct {
	// Number is 1 to MaxNumber, per session and sender; 0 in system traffic only.
	Number int
	From   Address
	To     Address
	Type   Type
	// Task may be none. T0 is for system traffic only.
	Task Task
	// Priority is NoPriority where the line has "-", which means P1.
	Priority Priority
	State    State
	// Err is "" where the line has "-".
	Err   Code
	Depth int
	// Context is the session with its S, such as S1, "" where the line has "-".
	// SystemContext is for system traffic only.
	Context string
	// Budget may be none, which is unlimited.
	Budget Budget
	// Data is never empty; "-" is DATA that says nothing. It is without the pair auth.
	Data Data
	// Auth is the pair auth, the zero Auth where there is none. Parse does not verify
	// it: see Verify.
	Auth Auth
	// Warnings is what Parse put right. Format does not look at it.
	Warnings Warnings
}

// Warnings is a set of what was put right in a line that is accepted nevertheless.
type Warnings uint8

// What Parse puts right.
const (
	// DataTruncated: DATA was longer than MaxData and lost its end (§3.5, check 12).
	DataTruncated Warnings = 1 << iota
	// DepthMissing: DEPTH was "-" and is read as 0 (the handshake of §14.3).
	DepthMissing
	// QuoteOpen: DATA has a double quote without its fellow, which protects nothing.
	QuoteOpen
)

// Has reports whether w is in the set.
func (s Warnings) Has(w Warnings) bool { return s&w != 0 }

// String names the warnings with a comma between them, as a list in DATA: "" where
// there are none.
func (s Warnings) String() string {
	var names []string
	if s.Has(DataTruncated) {
		names = append(names, "data_truncated")
	}
	if s.Has(DepthMissing) {
		names = append(names, "depth_missing")
	}
	if s.Has(QuoteOpen) {
		names = append(names, "quote_open")
	}
	return strings.Join(names, ",")
}
