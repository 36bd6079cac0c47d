package shortid

import (
	"strconv"
	"strings"
)

// The names of contexts: S1 to S9999999, then with letters: Sa000000 and on
// (PROTOCOL_V5 §6.1).
const (
	contextBase   = 36
	firstLettered = 10 * contextBase * contextBase * contextBase * contextBase * contextBase * contextBase
	contextDigits = 10_000_000
)

// ContextName returns the name of the context with a number.
func ContextName(n int64) string {
	if n < contextDigits {
		return "S" + strconv.FormatInt(n, 10)
	}
	return "S" + strconv.FormatInt(n-contextDigits+firstLettered, contextBase)
}

// ContextNumber returns the number of the context with a name; ok is false for a name that no
// context has.
func ContextNumber(name string) (n int64, ok bool) {
	digits, is := strings.CutPrefix(name, "S")
	if !is {
		return 0, false
	}
	if n, err := strconv.ParseInt(digits, 10, 64); err == nil {
		return n, ContextName(n) == name
	}
	n, err := strconv.ParseInt(digits, contextBase, 64)
	n += contextDigits - firstLettered
	return n, err == nil && ContextName(n) == name
}
