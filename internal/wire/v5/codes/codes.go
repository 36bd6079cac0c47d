// Package codes holds the error codes of PROTOCOL_V5 §8.1 and the reasons that distinguish their
// meanings.
package codes

// Code is an error code such as E10. The zero Code, "", is that of a message without an error.
type Code string

// The codes of the document.
const (
	E00 Code = "E00"
	E10 Code = "E10"
	E11 Code = "E11"
	E12 Code = "E12"
	E13 Code = "E13"
	E14 Code = "E14"
	E15 Code = "E15"
	E16 Code = "E16"
	E17 Code = "E17"
	E18 Code = "E18"
	E19 Code = "E19"
	E20 Code = "E20"
	E21 Code = "E21"
	E22 Code = "E22"
	E23 Code = "E23"
	E30 Code = "E30"
	E31 Code = "E31"
	E32 Code = "E32"
	E33 Code = "E33"
	E40 Code = "E40"
	E41 Code = "E41"
	E42 Code = "E42"
	E43 Code = "E43"
	E90 Code = "E90"
	E99 Code = "E99"
)

// The values of reason= in DATA, where a code has several meanings or the sender can act on it.
const (
	// E15: STATE is no state, or the task does not allow the transition.
	ReasonState      = "invalid_state"
	ReasonTransition = "invalid_transition"
	// E16: DEPTH is no depth, or it is beyond the receiver's limit.
	ReasonDepth    = "invalid_depth"
	ReasonMaxDepth = "max_depth"
	// E90: the version, or the signature (§11).
	ReasonVersion   = "version"
	ReasonAuth      = "auth_malformed"
	ReasonUnsigned  = "auth_missing"
	ReasonSignature = "auth_signature"
	ReasonReplay    = "auth_replay"
	ReasonSession   = "auth_session"
	ReasonNoKey     = "auth_no_key"
	// E10 and E12 of DATA that cannot be written: it is too long, or a value has characters that
	// DATA cannot hold. A #REF: can refer to such a value.
	ReasonOverflow     = "overflow"
	ReasonNotEncodable = "not_encodable"
)

// Valid reports whether the code is an E with two digits, which is all that check 8 of §3.5
// requires.
func (c Code) Valid() bool {
	return len(c) == 3 && c[0] == 'E' && c[1]-'0' <= 9 && c[2]-'0' <= 9
}

// Meaning returns the meaning of a code in a few words: that of its category for a code that the
// document does not list, and "" for an invalid code.
func (c Code) Meaning() string {
	switch c {
	case E00:
		return "no error"
	case E10:
		return "invalid message format"
	case E11:
		return "invalid priority"
	case E12:
		return "DATA has forbidden characters"
	case E13:
		return "invalid route"
	case E14:
		return "unknown message type"
	case E15:
		return "invalid state or transition"
	case E16:
		return "invalid depth or maximum depth exceeded"
	case E17:
		return "insufficient budget"
	case E18:
		return "maximum of clarifications reached"
	case E19:
		return "capability not supported"
	case E20:
		return "overall timeout"
	case E21:
		return "worker response timeout"
	case E22:
		return "heartbeat timeout"
	case E23:
		return "user clarification timeout"
	case E30:
		return "worker unavailable"
	case E31:
		return "worker busy"
	case E32:
		return "external resource unavailable"
	case E33:
		return "file not found"
	case E40:
		return "unknown task"
	case E41:
		return "unknown agent"
	case E42:
		return "unknown session"
	case E43:
		return "invalid reference"
	case E90:
		return "incompatible protocol version or authentication failed"
	case E99:
		return "uncategorised error"
	}
	if !c.Valid() {
		return ""
	}
	switch c[1] {
	case '2':
		return "timeout"
	case '3':
		return "resource unavailable"
	case '4':
		return "logic error"
	case '9':
		return "system error"
	}
	return "error without a category"
}

// V4 returns the code that replaces c in a message of V4: E99 for E16 to E19, which V5 has added,
// and c itself otherwise.
func (c Code) V4() Code {
	if c >= E16 && c <= E19 {
		return E99
	}
	return c
}
