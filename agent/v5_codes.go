package agent

import (
	"cmp"
	"net/http"

	"comet/internal/wire/envelope"
	"comet/internal/wire/v5"
)

// codeOf is a code of the envelope protocol in PROTOCOL_V5 §8.1.
func codeOf(c envelope.Code) v5.Code {
	switch c {
	case envelope.CodeTimeout:
		return v5.E21
	case envelope.CodeUnavailable:
		return v5.E30
	case envelope.CodeInvalidMessage:
		return v5.E10
	case envelope.CodeResourceLimit:
		return v5.E32
	case envelope.CodeUnsupportedWorkType:
		return v5.E19
	}
	return v5.E99
}

// refusedLine is the error of a line that says no.
func refusedLine(m v5.Message) *Refused {
	return &Refused{Status: statusOf(m.Err), Detail: string(m.Err) + ": " + wordsOf(m)}
}

// wordsOf is what an E says to people.
func wordsOf(m v5.Message) string {
	desc, _ := m.Data.Get("desc")
	details, _ := m.Data.Get("details")
	if desc != "" && details != "" {
		return desc + ": " + details
	}
	return cmp.Or(desc, details, string(m.Data))
}

// statusOf is the status of HTTP that goes with a code.
func statusOf(c v5.Code) int {
	switch {
	case c == v5.E31:
		return http.StatusTooManyRequests
	case c == v5.E90:
		return http.StatusUnauthorized
	case c == v5.E30 || c == v5.E99 || c.Class() == v5.ClassRetry:
		return http.StatusServiceUnavailable
	}
	return http.StatusBadRequest
}

// isMissing reports whether a piece before one that was refused is not there.
func isMissing(m v5.Message) bool {
	reason, _ := m.Data.Get("reason")
	return m.Err == v5.E10 && reason == "missing"
}

// isReplay reports whether a line was refused because another one had its number and NONCE,
// which chance gives to two of them now and then: said again it has others.
func isReplay(m v5.Message) bool {
	reason, _ := m.Data.Get("reason")
	return m.Err == v5.E90 && reason == v5.ReasonReplay
}
