package genesis

import "github.com/go-json-experiment/json/jsontext"

// Failure is the body of an ERROR message, which no agent's own response is behind (Genesis §4).
type Failure struct {
	// OriginalMessageID is the id of the message that failed, "" if it is unknown.
	OriginalMessageID string    `json:"originalMessageId,omitzero"`
	ErrorType         ErrorType `json:"errorType"`
	ErrorCode         string    `json:"errorCode"`
	Message           string    `json:"message"`
	// Details is an object, nil if it is missing.
	Details jsontext.Value `json:"details,omitzero"`
	// RetryAfterMS is nil if it is missing.
	RetryAfterMS *int64 `json:"retryAfter,omitzero"`
	// FallbackSuggestion is another agent, "" if it is missing.
	FallbackSuggestion string `json:"fallbackSuggestion,omitzero"`
}

// Type implements Body.
func (Failure) Type() Type { return TypeError }

// ErrorType is the class of an ERROR message.
type ErrorType string

// The types of errors.
const (
	ErrorRouting    ErrorType = "ROUTING_ERROR"
	ErrorTimeout    ErrorType = "TIMEOUT"
	ErrorValidation ErrorType = "VALIDATION_ERROR"
	ErrorAgent      ErrorType = "AGENT_ERROR"
)

// failure reads the members of an ERROR.
func (o *object) failure() Failure {
	return Failure{
		OriginalMessageID:  o.name("originalMessageId", optional, maxName, "the id of the message that failed"),
		ErrorType:          oneOf(o, "errorType", ErrorRouting, ErrorTimeout, ErrorValidation, ErrorAgent),
		ErrorCode:          o.name("errorCode", required, maxName, "the code of the error"),
		Message:            o.prose("message", "a message for people"),
		Details:            o.free("details", optional, "an object"),
		RetryAfterMS:       o.integer("retryAfter", optional, 0, maxMilliseconds, "a duration in milliseconds"),
		FallbackSuggestion: o.agent("fallbackSuggestion", optional),
	}
}
