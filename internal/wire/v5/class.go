package v5

// Class says what is done about an error (PROTOCOL_V5 §8.2, and the decisions on it).
type Class byte

// What is done about an error.
const (
	// ClassNone: E00, and no code at all.
	ClassNone Class = iota
	// ClassRetry: the same worker is asked again, Retries times.
	ClassRetry
	// ClassFallback: the next worker is asked.
	ClassFallback
	// ClassNever: the message must be put right first.
	ClassNever
	// ClassUser: whoever asked is told.
	ClassUser
	// ClassOption: E23, the first option of the question is taken.
	ClassOption
	// ClassBudget: E17, the budget policy of the request decides.
	ClassBudget
)

// String is the class as one word.
func (c Class) String() string {
	switch c {
	case ClassNone:
		return "none"
	case ClassRetry:
		return "retry"
	case ClassFallback:
		return "fallback"
	case ClassNever:
		return "never"
	case ClassUser:
		return "user"
	case ClassOption:
		return "option"
	case ClassBudget:
		return "budget"
	}
	return ""
}

// Valid reports whether the code is an E with two digits, which is all that check 8 of
// §3.5 asks for.
func (c Code) Valid() bool {
	return len(c) == 3 && c[0] == 'E' && c[1]-'0' <= 9 && c[2]-'0' <= 9
}

// Meaning is the code's meaning in a few words, that of its category for a code the
// table does not name, and "" for no code.
func (c Code) Meaning() string { return c.spec().meaning }

// Class says what is done about the code. One that the table does not name is treated
// as its category is; one outside of every category goes to the user.
func (c Code) Class() Class { return c.spec().class }

// Retries is how often the same worker is asked again, 0 but for ClassRetry.
func (c Code) Retries() int { return c.spec().retries }

// category is what is known of a code that the table does not name; E1x are all named.
func (c Code) category() codeSpec {
	if !c.Valid() {
		return codeSpec{}
	}
	switch c[1] {
	case '2':
		return codeSpec{"timeout", ClassRetry, 2}
	case '3':
		return codeSpec{"resource unavailable", ClassUser, 0}
	case '4':
		return codeSpec{"logic error", ClassUser, 0}
	case '9':
		return codeSpec{"system error", ClassNever, 0}
	}
	return codeSpec{"error without a category", ClassUser, 0}
}
