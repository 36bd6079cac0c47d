package envelope

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// tokenStatus is what every 5004 says of the token: to tell wrong from expired would
// help an attacker.
const tokenStatus = "invalid"

// Timeout is 5001: no answer came within the deadline. lastAttempt is when the
// message was sent last.
func Timeout(attemptedRetries int, lastAttempt time.Time) Failure {
	return failure(CodeTimeout, "Timeout: no response within the deadline", func(w *writer) {
		w.integer("attempted_retries", int64(attemptedRetries))
		w.time("last_attempt", lastAttempt)
	})
}

// Unavailable is 5002: there is no way to the agent. agentID is an agent, or the type
// of which none is up; lastHeartbeat is nil where there was none.
func Unavailable(agentID string, lastHeartbeat *time.Time) Failure {
	return failure(CodeUnavailable, "Agent unavailable", func(w *writer) {
		w.string("agent_id", agentID)
		if lastHeartbeat == nil {
			w.null("last_heartbeat")
			return
		}
		w.time("last_heartbeat", *lastHeartbeat)
	})
}

// InvalidMessage is 5003. The first problem names the field; the sentences of all
// are in the context.
func InvalidMessage(problems ...Problem) Failure {
	text, field := joinProblems(problems), ""
	if len(problems) > 0 {
		field = problems[0].Field
	}
	return failure(CodeInvalidMessage, "Invalid message: "+text, func(w *writer) {
		w.string("validation_error", text)
		if field == "" {
			w.null("field_name")
			return
		}
		w.string("field_name", field)
	})
}

// AuthenticationFailed is 5004, which never says why. agentID is who the sender
// claims to be, "" where it claims nothing.
func AuthenticationFailed(agentID string) Failure {
	return failure(CodeAuthenticationFailed, "Authentication failed", func(w *writer) {
		w.string("agent_id", agentID)
		w.string("token_status", tokenStatus)
	})
}

// ResourceLimit is 5005: the work needs more of a resource than there is. limit names
// the resource and its unit, such as gpu_vram_mb.
func ResourceLimit(limit string, available, required int64) Failure {
	return failure(CodeResourceLimit, "Resource limit exceeded", func(w *writer) {
		w.string("limit_name", limit)
		w.integer("available", available)
		w.integer("required", required)
	})
}

// UnsupportedWorkType is 5006: nobody who could be asked does such work.
func UnsupportedWorkType(requested string, supported []string) Failure {
	return failure(CodeUnsupportedWorkType, "Unsupported work type", func(w *writer) {
		w.string("work_type_requested", requested)
		w.strings("supported_types", supported)
	})
}

// UnsupportedVersion is the 5006 with which a message of another protocol version is
// answered (Chiffon §Protocol Versioning).
func UnsupportedVersion(requested string, supported []string) Failure {
	const prefix = "protocol_version "
	message := "Unsupported work type: protocol version " + requested + " is not spoken here, only " + strings.Join(supported, ", ")
	return failure(CodeUnsupportedWorkType, message, func(w *writer) {
		types := slices.Clone(supported)
		for i := range types {
			types[i] = prefix + types[i]
		}
		w.string("work_type_requested", prefix+requested)
		w.strings("supported_types", types)
	})
}

// failure makes the content of an error message. Texts that a message cannot hold are
// mended rather than refused: an error about an error helps nobody.
func failure(code Code, message string, context func(w *writer)) Failure {
	raw, _ := objectWriter{fill: context, replaceInvalid: true}.bytes() // nothing but mended texts, numbers and times
	message = strings.ReplaceAll(validUTF8(message), "\x00", replacement)
	return Failure{Code: code, Message: message, Context: raw}
}

// maxProblems is how many problems the text of one error names.
const maxProblems = 10

// Error is why Parse or Format refused a message.
type Error struct {
	// Problems are in the order of the document's tables, at least one.
	Problems []Problem
	// Failure is the answer: 5003, or 5006 for a protocol version that is not spoken
	// here.
	Failure Failure
}

// Problem is one thing that is wrong with a message.
type Problem struct {
	// Field is the dotted path of the member, such as payload.step.number, "" where
	// the JSON itself is broken.
	Field string
	// Detail is one sentence for a person, the field included.
	Detail string
}

// Error implements error.
func (e *Error) Error() string {
	return fmt.Sprintf("%d %s: %s", e.Failure.Code, e.Failure.Code.Name(), joinProblems(e.Problems))
}

func invalid(problems ...Problem) *Error {
	return &Error{Problems: problems, Failure: InvalidMessage(problems...)}
}

func joinProblems(problems []Problem) string {
	var b strings.Builder
	for i, p := range problems {
		if i == maxProblems {
			fmt.Fprintf(&b, "; and %d more", len(problems)-i)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(p.Detail)
	}
	return b.String()
}
