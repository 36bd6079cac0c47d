// Package v5 is the codec of PROTOCOL_V5: it parses and writes messages of eleven segments with a
// bar between them, each on one line, the last segment being pairs such as call=web_search. It
// knows which text is a message, which code rejects one that is not, and how DATA is parsed,
// written and signed. What a message means, and who may send it, is decided by its callers.
// Messages of V4 have eight segments (ParseV4, FormatV4).
package v5

import (
	"strings"

	"comet/internal/wire/v5/codes"
)

// The limits of a message (PROTOCOL_V5 §3.2).
const (
	// MaxLine is the length of the longest message that is parsed, in bytes.
	MaxLine = 64 << 10
	// MaxNumber is the highest message number; the next is 1 again.
	MaxNumber = 9999
	// maxTask is the highest task number.
	maxTask = 999
	// MaxDepth is the highest DEPTH.
	MaxDepth = 5
	// MaxData is the length of the longest DATA without the pair auth, in characters (runes).
	MaxData = 200

	maxBudget  = 9999 // tokens
	maxAddress = 10   // characters
	maxContext = 8    // characters, with its S
)

// SystemContext is the CTX of system traffic, which belongs to no conversation.
const SystemContext = "S0"

// none is a segment without a value.
const none = "-"

// Message is one message (PROTOCOL_V5 §3). Messages can be compared with ==.
type Message struct {
	// Number is 1 to MaxNumber, per session and sender; 0 in system traffic only.
	Number int
	From   Address
	To     Address
	Type   Type
	// Task is the zero Task for none. T0 is for system traffic only.
	Task Task
	// Priority is 0 for "-", which means P1, and State 0 for "-".
	Priority Priority
	State    State
	// Err is "" for "-".
	Err   codes.Code
	Depth int
	// Context is the session with its S, such as S1, "" for "-". SystemContext is for system
	// traffic only.
	Context string
	// Budget is the zero Budget for "-", which means unlimited.
	Budget Budget
	// Data is never empty; "-" is DATA without content. It is without the pair auth.
	Data Data
	// Auth is the pair auth, the zero Auth for none. Parse does not verify it: see Verify.
	Auth Auth
	// Warnings is what Parse corrected. Format ignores it.
	Warnings Warnings
}

// Warnings is the set of corrections to an accepted message.
type Warnings uint8

const (
	// dataTruncated: DATA was longer than MaxData and was cut (§3.5, check 12).
	dataTruncated Warnings = 1 << iota
	// depthMissing: DEPTH was "-" and is parsed as 0 (the handshake of §14.3).
	depthMissing
	// quoteOpen: DATA has an unpaired double quote, which protects nothing.
	quoteOpen
)

// Truncated reports whether DATA was longer than MaxData and was cut (§3.5, check 12).
func (s Warnings) Truncated() bool { return s.has(dataTruncated) }

func (s Warnings) has(w Warnings) bool { return s&w != 0 }

// String returns the names of the warnings with commas between them, "" for none.
func (s Warnings) String() string {
	var names []string
	for bit, name := range []string{"data_truncated", "depth_missing", "quote_open"} {
		if s.has(1 << bit) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// Reply returns a reply to m, with its task, priority, depth, session and budget (PROTOCOL_V5 §4.3,
// rule 6). from is the sender of the reply, which a message to many does not name. Number is that of
// the reply; the caller sets State and Err. DATA of a reply from an orchestrator ends with the number
// of m, such as pid=M5 (§10.2), if it has space for it; that of a worker is its result.
//
// m may be the result of Parse with an error. Where its sender could not be parsed, Format rejects
// the reply.
func (m Message) Reply(from Address, number int, t Type, data Data) Message {
	r := m
	r.Number, r.From, r.To, r.Type, r.Data = number, from, m.From, t, data
	if from.Role == Orchestrator {
		r.Data = data.withParent(m.Number)
	}
	r.State, r.Err, r.Auth, r.Warnings = 0, "", Auth{}, 0
	if n, ok := r.Task.Number(); ok && n == 0 && !t.isSystem() {
		r.Task = Task{}
	}
	if r.Context == SystemContext && !t.isSystem() {
		r.Context = ""
	}
	return r
}

// Reply returns the E that rejects an invalid message (§8.3): state F, the code of the first failed
// check, and the problem as DATA.
func (e *Error) Reply(to Message, from Address, number int) Message {
	m := to.Reply(from, number, Failure, e.Data())
	m.State = Failed
	m.Err = e.Code()
	return m
}
