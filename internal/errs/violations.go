package errs

import "fmt"

// Violation is one broken rule: its code and the place it was broken at.
type Violation struct {
	Code Code
	Field
}

// Violations collects violations so that a caller receives all of them at once.
type Violations []Violation

// Add records a rule broken at a JSON pointer.
func (v *Violations) Add(code Code, pointer, rule, format string, args ...any) {
	*v = append(*v, Violation{Code: code, Field: Field{Pointer: pointer, Rule: rule, Detail: fmt.Sprintf(format, args...)}})
}

// Has reports whether any violation points at pointer.
func (v Violations) Has(pointer string) bool {
	for _, x := range v {
		if x.Pointer == pointer {
			return true
		}
	}
	return false
}

// Err returns nil for an empty list, else one error. Its class is the lowest
// among the violations (400 before 409 before 422) and its code the first of
// that class that has a name of its own. Fields holds the violations of that
// class, as many as fit a response; the others could not be decided yet.
func (v Violations) Err() error {
	if len(v) == 0 {
		return nil
	}
	class := v[0].Code.Class()
	for _, x := range v {
		class = min(class, x.Code.Class())
	}
	e := &Error{}
	for _, x := range v {
		if x.Code.Class() != class {
			continue
		}
		if e.Code == "" || (e.Code == InvalidRequest && x.Code != InvalidRequest) {
			e.Code, e.Detail = x.Code, x.Detail
		}
		e.Fields = append(e.Fields, x.Field)
	}
	e.Fields = Capped(e.Fields)
	return e
}

// All is Err with every violation of every class in Fields, for reports on a
// whole document.
func (v Violations) All() error {
	err := v.Err()
	if err == nil {
		return nil
	}
	e := err.(*Error)
	e.Fields = e.Fields[:0:0]
	for _, x := range v {
		e.Fields = append(e.Fields, x.Field)
	}
	e.Fields = Capped(e.Fields)
	return e
}
