package envelope

import (
	"fmt"
	"strings"
)

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
