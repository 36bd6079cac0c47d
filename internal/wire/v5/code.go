package v5

// Code is an error code such as E10 (PROTOCOL_V5 §8.1). The zero Code, "", is that of
// a line which says nothing.
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

// The words that DATA carries as reason= where a code has more than one meaning, or
// where who made the message can do something about it.
const (
	// E15: the letter of STATE is none, or the task may not go there.
	ReasonState      = "invalid_state"
	ReasonTransition = "invalid_transition"
	// E16: DEPTH is none, or the receiver goes no deeper.
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
	// ReasonOverflow: DATA to be written is longer than MaxData. A #REF: can say it.
	ReasonOverflow = "overflow"
	// ReasonUnsayable: a value to be written has what DATA cannot say. A #REF: can.
	ReasonUnsayable = "unsayable"
)

// codeSpec is a row of the document's table.
type codeSpec struct {
	meaning string
	class   Class
	retries int
}

func (c Code) spec() codeSpec {
	switch c {
	case E00:
		return codeSpec{"no error", ClassNone, 0}
	case E10:
		return codeSpec{"invalid message format", ClassNever, 0}
	case E11:
		return codeSpec{"invalid priority", ClassNever, 0}
	case E12:
		return codeSpec{"DATA has forbidden characters", ClassNever, 0}
	case E13:
		return codeSpec{"invalid route", ClassNever, 0}
	case E14:
		return codeSpec{"unknown message type", ClassNever, 0}
	case E15:
		return codeSpec{"invalid state or transition", ClassNever, 0}
	case E16:
		return codeSpec{"invalid depth or maximum depth exceeded", ClassNever, 0}
	case E17:
		return codeSpec{"insufficient budget", ClassBudget, 0}
	case E18:
		return codeSpec{"maximum of clarifications reached", ClassNever, 0}
	case E19:
		return codeSpec{"capability not supported", ClassNever, 0}
	case E20:
		return codeSpec{"overall timeout", ClassRetry, 2}
	case E21:
		return codeSpec{"worker response timeout", ClassRetry, 2}
	case E22:
		return codeSpec{"heartbeat timeout", ClassRetry, 2}
	case E23:
		return codeSpec{"user clarification timeout", ClassOption, 0}
	case E30:
		return codeSpec{"worker unavailable", ClassFallback, 0}
	case E31:
		return codeSpec{"worker busy", ClassFallback, 0}
	case E32:
		return codeSpec{"external resource unavailable", ClassRetry, 1}
	case E33:
		return codeSpec{"file not found", ClassUser, 0}
	case E40:
		return codeSpec{"unknown task", ClassUser, 0}
	case E41:
		return codeSpec{"unknown agent", ClassUser, 0}
	case E42:
		return codeSpec{"unknown session", ClassUser, 0}
	case E43:
		return codeSpec{"invalid reference", ClassUser, 0}
	case E90:
		return codeSpec{"incompatible protocol version or authentication failed", ClassNever, 0}
	case E99:
		return codeSpec{"uncategorised error", ClassNever, 0}
	}
	return c.category()
}

// Codes returns the codes of the document in their order.
func Codes() []Code {
	return []Code{
		E00, E10, E11, E12, E13, E14, E15, E16, E17, E18, E19, E20, E21,
		E22, E23, E30, E31, E32, E33, E40, E41, E42, E43, E90, E99,
	}
}
