package envelope

import "net/http"

// Code is the number of an error, 5001 to 5999 (Chiffon §Error Codes).
type Code int

// The codes of protocol 1.0.
const (
	CodeTimeout              Code = 5001
	CodeUnavailable          Code = 5002
	CodeInvalidMessage       Code = 5003
	CodeAuthenticationFailed Code = 5004
	CodeResourceLimit        Code = 5005
	CodeUnsupportedWorkType  Code = 5006
)

// The range of codes.
const (
	minCode Code = 5001
	maxCode Code = 5999
)

// codeSpec is a row of the document's table of codes.
type codeSpec struct {
	name      string
	retryable bool
	status    int
}

func (c Code) spec() codeSpec {
	switch c {
	case CodeTimeout:
		return codeSpec{"Timeout", true, http.StatusGatewayTimeout}
	case CodeUnavailable:
		return codeSpec{"Agent Unavailable", true, http.StatusServiceUnavailable}
	case CodeInvalidMessage:
		return codeSpec{"Invalid Message", false, http.StatusBadRequest}
	case CodeAuthenticationFailed:
		return codeSpec{"Authentication Failed", false, http.StatusUnauthorized}
	case CodeResourceLimit:
		return codeSpec{"Resource Limit Exceeded", true, http.StatusTooManyRequests}
	case CodeUnsupportedWorkType:
		return codeSpec{"Unsupported Work Type", false, http.StatusUnprocessableEntity}
	}
	return codeSpec{status: http.StatusInternalServerError}
}

// Name returns the code's name in the document, "" for another code.
func (c Code) Name() string { return c.spec().name }

// Retryable reports whether the message may be sent again. It is false for a code that is not in
// the document.
func (c Code) Retryable() bool { return c.spec().retryable }

// HTTPStatus returns the HTTP status of a response with the code, 500 for a code that is not in the
// document.
func (c Code) HTTPStatus() int { return c.spec().status }

// contextKind is the type of a member of error_context.
type contextKind int

const (
	contextText contextKind = iota
	contextTexts
	contextCount
	contextNumber
	contextTime
)

// contextField is a required member of a code's context. A nullable one may be missing.
type contextField struct {
	name     string
	kind     contextKind
	nullable bool
}

// context returns the members of the code's context in the document's order, none for a code that
// is not in the document.
func (c Code) context() []contextField {
	switch c {
	case CodeTimeout:
		return []contextField{{name: "attempted_retries", kind: contextCount}, {name: "last_attempt", kind: contextTime}}
	case CodeUnavailable:
		return []contextField{{name: "agent_id"}, {name: "last_heartbeat", kind: contextTime, nullable: true}}
	case CodeInvalidMessage:
		return []contextField{{name: "validation_error"}, {name: "field_name", nullable: true}}
	case CodeAuthenticationFailed:
		return []contextField{{name: "agent_id"}, {name: "token_status"}}
	case CodeResourceLimit:
		return []contextField{{name: "limit_name"}, {name: "available", kind: contextNumber}, {name: "required", kind: contextNumber}}
	case CodeUnsupportedWorkType:
		return []contextField{{name: "work_type_requested"}, {name: "supported_types", kind: contextTexts}}
	}
	return nil
}
