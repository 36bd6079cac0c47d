package agent

import (
	"cmp"
	"net/http"

	"comet/internal/wire/envelope"
	"comet/internal/wire/pipe"
)

// codeOf is a code of the envelope protocol in PROTOCOL_V5 §8.1.
func codeOf(c envelope.Code) pipe.Code {
	switch c {
	case envelope.CodeTimeout:
		return pipe.E21
	case envelope.CodeUnavailable:
		return pipe.E30
	case envelope.CodeInvalidMessage:
		return pipe.E10
	case envelope.CodeResourceLimit:
		return pipe.E32
	case envelope.CodeUnsupportedWorkType:
		return pipe.E19
	}
	return pipe.E99
}

// refusedLine is the error of a line that says no.
func refusedLine(m pipe.Message) *Refused {
	return &Refused{Status: statusOf(m.Err), Detail: string(m.Err) + ": " + wordsOf(m)}
}

// wordsOf is what an E says to people.
func wordsOf(m pipe.Message) string {
	desc, _ := m.Data.Get("desc")
	details, _ := m.Data.Get("details")
	if desc != "" && details != "" {
		return desc + ": " + details
	}
	return cmp.Or(desc, details, string(m.Data))
}

// statusOf is the status of HTTP that goes with a code.
func statusOf(c pipe.Code) int {
	switch {
	case c == pipe.E31:
		return http.StatusTooManyRequests
	case c == pipe.E90:
		return http.StatusUnauthorized
	case c == pipe.E30 || c == pipe.E99 || c.Class() == pipe.ClassRetry:
		return http.StatusServiceUnavailable
	}
	return http.StatusBadRequest
}

// isMissing reports whether a piece before one that was refused is not there.
func isMissing(m pipe.Message) bool {
	reason, _ := m.Data.Get("reason")
	return m.Err == pipe.E10 && reason == "missing"
}

// isReplay reports whether a line was refused because another one had its number and NONCE,
// which chance gives to two of them now and then: said again it has others.
func isReplay(m pipe.Message) bool {
	reason, _ := m.Data.Get("reason")
	return m.Err == pipe.E90 && reason == pipe.ReasonReplay
}
