package errs

// WithLines sets the line of every violation that has none to the line its
// pointer stands on in the document, and returns the violations.
func (v Violations) WithLines(document interface{ Line(pointer string) int }) Violations {
	for i := range v {
		if v[i].Line == 0 {
			v[i].Line = document.Line(v[i].Pointer)
		}
	}
	return v
}
