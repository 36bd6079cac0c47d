package errs

import (
	"fmt"
	"slices"
)

// The limits of what one response lists: a request with many small mistakes would otherwise get a
// response many times its size.
const (
	// maxFields is the largest number of fields.
	maxFields = 1000
	// maxFieldBytes is their largest size in bytes, about.
	maxFieldBytes = 1 << 20
)

// Violations are all rules that a request breaks.
type Violations []Field

// Add records a rule broken at a JSON pointer.
func (v *Violations) Add(code Code, pointer, rule, format string, args ...any) {
	*v = append(*v, Field{Code: code, Pointer: pointer, Rule: rule, Detail: fmt.Sprintf(format, args...)})
}

// Has reports whether any violation points at pointer.
func (v Violations) Has(pointer string) bool {
	return slices.ContainsFunc(v, func(x Field) bool { return x.Pointer == pointer })
}

// Err returns nil for an empty list, else one error. Violations that the request alone shows are
// reported before conflicts with stored state, and those before broken limits, because the later
// ones cannot be decided yet. The code is the first that is not InvalidRequest. Fields holds as
// many of these violations as fit a response.
func (v Violations) Err() error {
	if len(v) == 0 {
		return nil
	}
	rank := v[0].Code.rank()
	for _, x := range v {
		rank = min(rank, x.Code.rank())
	}
	e := &Error{}
	var fields Violations
	for _, x := range v {
		if x.Code.rank() != rank {
			continue
		}
		if e.Code == "" || (e.Code == InvalidRequest && x.Code != InvalidRequest) {
			e.Code, e.Detail = x.Code, x.Detail
		}
		fields = append(fields, x)
	}
	e.Fields = fields.Capped()
	return e
}

// All is Err with every violation in Fields, for reports on a whole document.
func (v Violations) All() error {
	err := v.Err()
	if err != nil { // Err returns no other type
		err.(*Error).Fields = v.Capped()
	}
	return err
}

// Capped returns the violations that fit a response: all of them, or the first ones and a last
// one of the rule "max" that counts the others.
func (v Violations) Capped() Violations {
	size, fit := 0, len(v)
	for i, f := range v {
		if size += f.Size(); size > maxFieldBytes || i == maxFields {
			fit = i
			break
		}
	}
	if fit == len(v) {
		return v
	}
	kept := max(0, fit-1) // the last one counts, too
	last := Field{Rule: "max", Detail: fmt.Sprintf("there are %d more like these", len(v)-kept)}
	if kept > 0 {
		last.Line = v[kept-1].Line
	}
	return append(v[:kept:kept], last)
}

// Size is the size of the field in a response, in bytes, about.
func (f Field) Size() int {
	const around = 64 // names, quotes and the line
	return around + len(f.Rule) + encodedSize(f.Pointer) + encodedSize(f.Parameter) + encodedSize(f.Header) + encodedSize(f.Detail)
}

// encodedSize is the size of a text in JSON, in which a control character takes six bytes.
func encodedSize(s string) int {
	n := len(s)
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' {
			n += 5
		}
	}
	return n
}
