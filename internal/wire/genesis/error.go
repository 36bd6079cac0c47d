package genesis

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"

	"comet/internal/input"
)

// Code is the errorCode of an ERROR message.
type Code string

// The codes of the codec. The protocol adds those of its operations.
const (
	CodeInvalidMessage     Code = "INVALID_MESSAGE"
	CodeUnsupportedVersion Code = "UNSUPPORTED_VERSION"
	CodeSignatureRequired  Code = "SIGNATURE_REQUIRED"
	CodeSignatureInvalid   Code = "SIGNATURE_INVALID"
	CodeClockSkew          Code = "CLOCK_SKEW"
)

// maxProblems limits the problems in an error text.
const maxProblems = 10

// Error says why a message is rejected.
type Error struct {
	Code Code
	// Problems has at least one element, in the order of the document.
	Problems []Problem
}

// Problem is one mistake in a message.
type Problem struct {
	// Pointer is the JSON pointer of the value, "" for the message.
	Pointer string `json:"pointer"`
	// Detail is a sentence that begins with the pointer.
	Detail string `json:"detail"`
}

// Error implements error.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(string(e.Code) + ": ")
	for i, p := range e.Problems {
		if i == maxProblems {
			fmt.Fprintf(&b, "; and %d more", len(e.Problems)-i)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(p.Detail)
	}
	return b.String()
}

// Failure returns the body of the ERROR message that replies to the rejected one. Its details contain
// the first problems with their pointers.
func (e *Error) Failure() Failure {
	_, text, _ := strings.Cut(e.Error(), ": ")
	details, _ := json.Marshal(struct {
		Problems []Problem `json:"problems"`
	}{e.Problems[:min(len(e.Problems), maxProblems)]}) // valid UTF-8
	return Failure{ErrorType: ErrorValidation, ErrorCode: string(e.Code), Message: text, Details: details}
}

// problemAt returns a problem of the value at pointer. The texts contain no NUL, so that an ERROR may quote them.
func problemAt(pointer, format string, args ...any) Problem {
	pointer = input.Pointer(strings.ReplaceAll(strings.ToValidUTF8(pointer, "\uFFFD"), "\x00", "\uFFFD"))
	where := pointer
	if where == "" {
		where = "the message"
	}
	return Problem{Pointer: pointer, Detail: where + " " + fmt.Sprintf(format, args...)}
}

func invalid(problems ...Problem) *Error {
	return &Error{Code: CodeInvalidMessage, Problems: problems}
}
