package genesis

import "github.com/go-json-experiment/json/jsontext"

// Failure is the body of an ERROR message, which reports a failure that is not an agent's own response
// (Genesis §4).
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

// failureRules are the rules of the members of an ERROR.
func failureRules() []rule {
	return []rule{
		name("originalMessageId", optional, maxName, "the id of the message that failed"),
		word("errorType", string(ErrorRouting), string(ErrorTimeout), string(ErrorValidation), string(ErrorAgent)),
		name("errorCode", required, maxName, "the code of the error"),
		prose("message", "a message for people"),
		details("details"),
		milliseconds("retryAfter", 0),
		agent("fallbackSuggestion", optional),
	}
}
