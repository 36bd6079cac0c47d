// Package errs is the error type of all packages below the APIs: an error has a Code, which the
// APIs and protocols translate into an HTTP status, a JSON-RPC error or a code of their own.
package errs

import (
	"errors"
	"fmt"
	"strings"
)

// Error is an error with a code. Detail, Fields and Meta are shown to the caller; the cause is
// only logged.
type Error struct {
	// Code is the broken rule.
	Code Code
	// Detail is one sentence for a person, safe to show.
	Detail string
	// Fields names each bad part of the request.
	Fields []Field
	// Meta holds further members of a problem document, e.g. "scope".
	Meta map[string]any
	// Permanent says that the same request fails at any later time, although its code is usually
	// that of a temporary condition. Only the core uses it.
	Permanent bool

	cause error
}

// Field is an error in one part of the request. At most one of pointer, parameter and header is
// set; without one the error concerns the whole body.
type Field struct {
	Code Code `json:"-"`
	// An RFC 6901 JSON pointer into the body, e.g. "/capabilities/2".
	Pointer string `json:"pointer,omitempty" example:"/frequency_hz"`
	// The name of a query or path parameter.
	Parameter string `json:"parameter,omitempty" example:"limit"`
	// The name of a request header.
	Header string `json:"header,omitempty" example:"If-Match"`
	// The violated rule, a stable word, e.g. "required", "max", "frequency_level".
	Rule string `json:"rule" example:"frequency_level"`
	// An explanation of the error.
	Detail string `json:"detail" example:"an L3 agent runs at 444 Hz, not 555 Hz"`
	// The line in an imported document, from 1; absent without one.
	Line int `json:"line,omitempty" example:"42"`
} // @name FieldError

// New returns an error with a code and a sentence for the caller.
func New(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Detail: fmt.Sprintf(format, args...)}
}

// Wrap is New with a cause that is logged and never shown.
func Wrap(code Code, cause error, format string, args ...any) *Error {
	e := New(code, format, args...)
	e.cause = cause
	return e
}

// Error implements error; it is for logs, so it includes the cause.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(string(e.Code) + ": " + e.Detail)
	for _, f := range e.Fields {
		fmt.Fprintf(&b, "; %s%s%s: %s", f.Pointer, f.Parameter, f.Header, f.Detail)
	}
	if e.cause != nil {
		b.WriteString(": " + e.cause.Error())
	}
	return b.String()
}

// Unwrap returns the cause, nil where there is none.
func (e *Error) Unwrap() error { return e.cause }

// With adds a member to the problem document and returns the same error.
func (e *Error) With(key string, value any) *Error {
	if e.Meta == nil {
		e.Meta = map[string]any{}
	}
	e.Meta[key] = value
	return e
}

// From returns the *Error inside err, or an Internal one that wraps it.
func From(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return Wrap(Internal, err, "an internal error occurred")
}

// CodeOf returns the code of err: "" for nil, Internal for an error without one.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return Internal
}

// Is reports whether err carries the code.
func Is(err error, code Code) bool { return err != nil && CodeOf(err) == code }
