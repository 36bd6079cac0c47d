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

// response reads the members of a RESPONSE.
func (o *object) response() Response {
	r := Response{
		RequestID: o.uuid("requestId"),
		Status:    oneOf(o, "status", Succeeded, Failed, Partial),
		Data:      o.anyValue("data", optional),
	}
	if r.Error = o.errorDetails(presence(r.Status == Failed)); r.Status == Succeeded && r.Error != nil {
		o.report("error", "must be left out if status is SUCCESS")
	}
	r.Confidence = o.confidence(optional)
	const want = "an array of strings"
	if array := o.array("sources", optional, maxSources, want); array != nil {
		r.Sources = make([]string, len(array.members))
		for i := range r.Sources {
			r.Sources[i] = array.prose(array.members[i].name, "a source")
		}
	}
	r.ProcessingTimeMS = o.number("processingTime", optional, float64(maxMilliseconds), "a duration in milliseconds of 0 or more")
	return r
}

func (o *object) errorDetails(p presence) *ErrorDetails {
	in, ok := o.inner("error", p, "an object with code, message and retryable")
	if !ok {
		return nil
	}
	e := &ErrorDetails{
		Code:      in.name("code", required, maxName, "the code of the error"),
		Message:   in.prose("message", "a message for people"),
		Details:   in.free("details", optional, "an object"),
		Retryable: valueOf(in.boolean("retryable", required)),
	}
	in.kind("stack", optional, '"', "a string")
	in.end()
	return e
}
