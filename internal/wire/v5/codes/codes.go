// Package codes holds the error codes of PROTOCOL_V5 §8.1 and the reasons that distinguish their
// meanings.
package codes

import "cmp"

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

// meanings are the meanings of the document's codes; a code with one digit is a category.
var meanings = map[Code]string{ //nolint:gochecknoglobals // a constant
	E00:  "no error",
	E10:  "invalid message format",
	E11:  "invalid priority",
	E12:  "DATA has forbidden characters",
	E13:  "invalid route",
	E14:  "unknown message type",
	E15:  "invalid state or transition",
	E16:  "invalid depth or maximum depth exceeded",
	E17:  "insufficient budget",
	E18:  "maximum of clarifications reached",
	E19:  "capability not supported",
	E20:  "overall timeout",
	E21:  "worker response timeout",
	E22:  "heartbeat timeout",
	E23:  "user clarification timeout",
	E30:  "worker unavailable",
	E31:  "worker busy",
	E32:  "external resource unavailable",
	E33:  "file not found",
	E40:  "unknown task",
	E41:  "unknown agent",
	E42:  "unknown session",
	E43:  "invalid reference",
	E90:  "incompatible protocol version or authentication failed",
	E99:  "uncategorised error",
	"E2": "timeout", "E3": "resource unavailable", "E4": "logic error", "E9": "system error",
}

// Meaning returns the meaning of a code in a few words: that of its category for a code that the
// document does not list, and "" for an invalid code.
func (c Code) Meaning() string {
	if !c.Valid() {
		return ""
	}
	return cmp.Or(meanings[c], meanings[c[:2]], "error without a category")
}

// V4 returns the code that replaces c in a message of V4: E99 for E16 to E19, which V5 has added,
// and c itself otherwise.
func (c Code) V4() Code {
	if c >= E16 && c <= E19 {
		return E99
	}
	return c
}
