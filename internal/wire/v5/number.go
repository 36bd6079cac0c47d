package v5

import "strconv"

// Task is the number of a task (PROTOCOL_V5 §3.2, segment 4), or none: the zero Task.
type Task struct {
	// next is the number plus one, so that the zero Task is none.
	next int16
}

// TaskOf returns the task of a number, 0 to MaxTask. Format refuses what TaskOf makes
// of another.
func TaskOf(number int) Task {
	if number < 0 || number > MaxTask {
		return Task{next: -1}
	}
	return Task{next: int16(number) + 1}
}

// ParseTask reads a task such as T1. false is returned for all else, "-" included.
func ParseTask(text string) (Task, bool) {
	n, ok := number(text, 'T', 3)
	if !ok {
		return Task{}, false
	}
	return TaskOf(n), true
}

// Number is the task's number, false for none.
func (t Task) Number() (int, bool) { return int(t.next) - 1, t.next > 0 }

// String is the task as it stands in a line: T1, or "-".
func (t Task) String() string { return string(t.append(nil)) }

func (t Task) append(line []byte) []byte {
	switch {
	case t.next == 0:
		return append(line, none...)
	case t.next < 0:
		return append(line, "T?"...)
	}
	return strconv.AppendInt(append(line, 'T'), int64(t.next)-1, 10)
}

// Budget is how many tokens may still be spent (§9.1), or none: the zero Budget, which
// is unlimited.
type Budget struct {
	next int16 // the number plus one
}

// BudgetOf returns a budget as a line can state it: below 0 is 0, and above MaxBudget
// is MaxBudget, for who is told less spends less.
func BudgetOf(tokens int64) Budget {
	return Budget{next: int16(max(0, min(tokens, MaxBudget))) + 1}
}

// Tokens is the budget in tokens, false for none.
func (b Budget) Tokens() (int, bool) { return int(b.next) - 1, b.next > 0 }

// String is the budget as it stands in a line: B500, or "-".
func (b Budget) String() string { return string(b.append(nil)) }

func (b Budget) append(line []byte) []byte {
	if b.next == 0 {
		return append(line, none...)
	}
	return strconv.AppendInt(append(line, 'B'), int64(b.next)-1, 10)
}

// number reads a letter and one to so many digits. The first may be 0: M\d{1,4} of
// §3.5 has M0001 too.
func number(text string, letter byte, digits int) (int, bool) {
	if len(text) < 2 || len(text) > digits+1 || text[0] != letter {
		return 0, false
	}
	n := 0
	for i := 1; i < len(text); i++ {
		digit := text[i] - '0'
		if digit > 9 {
			return 0, false
		}
		n = n*10 + int(digit)
	}
	return n, true
}

// isContext reports whether text is a session id (§6.1).
func isContext(text string) bool {
	if len(text) < 2 || len(text) > MaxContext || text[0] != 'S' {
		return false
	}
	for i := 1; i < len(text); i++ {
		if c := text[i]; c-'0' > 9 && c-'a' > 25 {
			return false
		}
	}
	return true
}
