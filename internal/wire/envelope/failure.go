package envelope

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// tokenStatus is the token_status of every 5004: a more specific value would help an attacker.
const tokenStatus = "invalid"

// Timeout returns a 5001: no response within the deadline. lastAttempt is when the message was sent
// last.
func Timeout(attemptedRetries int, lastAttempt time.Time) Failure {
	return failure(CodeTimeout, "Timeout: no response within the deadline", struct {
		Retries     int       `json:"attempted_retries"`
		LastAttempt time.Time `json:"last_attempt"`
	}{attemptedRetries, lastAttempt.UTC()})
}

// Unavailable returns a 5002: the agent cannot be reached. agentID is an agent, or a type without
// online agents. lastHeartbeat is nil if there was none.
func Unavailable(agentID string, lastHeartbeat *time.Time) Failure {
	if lastHeartbeat != nil {
		lastHeartbeat = new(lastHeartbeat.UTC())
	}
	return failure(CodeUnavailable, "Agent unavailable", struct {
		AgentID       string     `json:"agent_id"`
		LastHeartbeat *time.Time `json:"last_heartbeat"`
	}{agentID, lastHeartbeat})
}

// InvalidMessage returns a 5003. The field is that of the first problem; the context contains all
// details.
func InvalidMessage(problems ...Problem) Failure {
	text := joinProblems(problems)
	var field *string
	if len(problems) > 0 && problems[0].Field != "" {
		field = &problems[0].Field
	}
	return failure(CodeInvalidMessage, "Invalid message: "+text, struct {
		Text  string  `json:"validation_error"`
		Field *string `json:"field_name"`
	}{text, field})
}

// AuthenticationFailed returns a 5004, which never says why. agentID is the claimed sender, "" if
// there is none.
func AuthenticationFailed(agentID string) Failure {
	return failure(CodeAuthenticationFailed, "Authentication failed", struct {
		AgentID string `json:"agent_id"`
		Status  string `json:"token_status"`
	}{agentID, tokenStatus})
}

// ResourceLimit returns a 5005: a resource is insufficient. limit is the name of the resource with
// its unit, such as gpu_vram_mb.
func ResourceLimit(limit string, available, required int64) Failure {
	return failure(CodeResourceLimit, "Resource limit exceeded", struct {
		Limit     string `json:"limit_name"`
		Available int64  `json:"available"`
		Required  int64  `json:"required"`
	}{limit, available, required})
}

// UnsupportedWorkType returns a 5006: no available agent offers the work type.
func UnsupportedWorkType(requested string, supported []string) Failure {
	return unsupported("Unsupported work type", requested, supported)
}

// UnsupportedVersion returns the 5006 for another protocol version (Chiffon §Protocol Versioning).
func UnsupportedVersion(requested string, supported []string) Failure {
	const prefix = "protocol_version "
	types := slices.Clone(supported)
	for i := range types {
		types[i] = prefix + types[i]
	}
	return unsupported("Unsupported protocol version "+requested+"; supported: "+strings.Join(supported, ", "), prefix+requested, types)
}

func unsupported(message, requested string, supported []string) Failure {
	return failure(CodeUnsupportedWorkType, message, struct {
		Requested string   `json:"work_type_requested"`
		Supported []string `json:"supported_types"`
	}{requested, supported})
}

// failure returns the payload of an error message. It replaces text that a message cannot contain, so
// that it never fails itself.
func failure(code Code, message string, context any) Failure {
	raw, _ := json.Marshal(context, jsontext.AllowInvalidUTF8(true)) // cannot fail for these types
	return Failure{Code: code, Message: Clean(message), Context: raw}
}

// maxProblems limits the problems in an error text.
const maxProblems = 10

// Error says why Parse or Format rejected a message.
type Error struct {
	// Problems has at least one element, in the order of the document's tables.
	Problems []Problem
	// Failure is the reply: 5003, or 5006 for an unsupported protocol version.
	Failure Failure
}

// Problem is one mistake in a message.
type Problem struct {
	// Field is the dotted path of a member, such as payload.step.number, "" for malformed JSON.
	Field string
	// Detail is a sentence that includes the field.
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
