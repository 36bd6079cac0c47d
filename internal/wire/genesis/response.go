package genesis

import "github.com/go-json-experiment/json/jsontext"

// Response is the response to a REQUEST (Genesis §2).
type Response struct {
	// RequestID is the id of the REQUEST.
	RequestID string `json:"requestId"`
	Status    Status `json:"status"`
	// Data is any JSON value, nil if it is missing.
	Data jsontext.Value `json:"data,omitzero"`
	// Error is not nil if the status is Failed.
	Error *ErrorDetails `json:"error,omitzero"`
	// Confidence is from 0 to 1, nil if it is missing.
	Confidence *float64 `json:"confidence,omitzero"`
	Sources    []string `json:"sources,omitzero"`
	// ProcessingTimeMS is nil if it is missing.
	ProcessingTimeMS *float64 `json:"processingTime,omitzero"`
	// Sequence counts the partial responses to a REQUEST from 1, 0 if it is missing. The document does not have it.
	Sequence int64 `json:"sequence,omitzero"`
	// Usage is what the work has used, nil if it is missing. The document does not have it.
	Usage *Usage `json:"usage,omitzero"`
}

// Usage is what the work for a REQUEST has used.
type Usage struct {
	Tokens int64 `json:"tokens"`
	// Model is the language model that has used them, "" if it is missing.
	Model string `json:"model,omitzero"`
}

// Type implements Body.
func (Response) Type() Type { return TypeResponse }

// Status is the status of a RESPONSE.
type Status string

// The statuses.
const (
	Succeeded Status = "SUCCESS"
	Failed    Status = "FAILURE"
	Partial   Status = "PARTIAL"
)

// ErrorDetails is the error of a RESPONSE. Parse accepts the document's stack and drops it.
type ErrorDetails struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	// Details is an object, nil if it is missing.
	Details   jsontext.Value `json:"details,omitzero"`
	Retryable bool           `json:"retryable"`
}

// responseRules are the rules of the members of a RESPONSE with the given status.
func responseRules(status Status) []rule {
	failure := rule{name: "error", required: status == Failed, kind: '{', want: "an object with code, message and retryable", check: hasFields, fields: []rule{
		name("code", required, maxName, "the code of the error"),
		prose("message", "a message for people"),
		details("details"),
		boolean("retryable", required),
		{name: "stack", kind: '"', want: "a string"},
	}}
	if status == Succeeded {
		failure = rule{name: "error", check: func(c *checker, path string, r rule, _ member) {
			c.report(path, r.name, "must be left out if status is SUCCESS")
		}}
	}
	return []rule{
		{name: "requestId", required: required, kind: '"', want: uuidWant, check: isUUID},
		word("status", string(Succeeded), string(Failed), string(Partial)),
		{name: "data", want: "a JSON value"},
		failure,
		confidence(optional),
		{name: "sources", kind: '[', want: "an array of strings", check: hasElements, most: maxSources, fields: []rule{prose("", "a source")}},
		{name: "processingTime", kind: '0', want: "a duration in milliseconds of 0 or more", check: isNumber, most: maxMilliseconds},
		integer("sequence", 1, maxOffset, "the number of a partial response"),
		{name: "usage", kind: '{', want: "an object with tokens", check: hasFields, fields: []rule{
			integer("tokens", 0, maxTokens, "a number of tokens"), name("model", optional, maxName, "the name of a language model"),
		}},
	}
}
