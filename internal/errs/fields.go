package errs

import "fmt"

// What one answer lists. A request of many small mistakes would otherwise be
// answered with a document many times its size.
const (
	// MaxFields is how many broken rules an answer names.
	MaxFields = 1000
	// MaxFieldBytes is about how many bytes of an answer they fill.
	MaxFieldBytes = 1 << 20
)

// Size is about how many bytes the field fills in an answer.
func (f Field) Size() int {
	const around = 64 // names, quotes and the line
	return around + len(f.Rule) + encoded(f.Pointer) + encoded(f.Parameter) + encoded(f.Header) + encoded(f.Detail)
}

// encoded is about how long a text is in JSON, in which a control character takes
// six bytes.
func encoded(s string) int {
	n := len(s)
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' {
			n += 5
		}
	}
	return n
}

// Capped returns the fields that fit a response: all of them, or the first
// ones and a last one of the rule "max" that counts the others.
func Capped(fields []Field) []Field {
	size, fit := 0, len(fields)
	for i, f := range fields {
		if size += f.Size(); size > MaxFieldBytes || i == MaxFields {
			fit = i
			break
		}
	}
	if fit == len(fields) {
		return fields
	}
	kept := max(0, fit-1) // the last one counts, too
	last := Field{Rule: "max", Detail: fmt.Sprintf("there are %d more like these", len(fields)-kept)}
	if kept > 0 {
		last.Line = fields[kept-1].Line
	}
	return append(fields[:kept:kept], last)
}
