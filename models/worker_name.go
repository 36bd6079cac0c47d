package models

import (
	"strconv"
	"strings"
)

// WorkerNumber is the reverse of WorkerName; ok is false for a name that no agent has.
func WorkerNumber(name string) (n int64, ok bool) {
	digits, is := strings.CutPrefix(name, "W")
	first, round, again := strings.Cut(digits, ".")
	n, err := strconv.ParseInt(first, 10, 32)
	if !is || err != nil {
		return 0, false
	}
	if again {
		rounds, err := strconv.ParseInt(round, 10, 32)
		if err != nil {
			return 0, false
		}
		n += 99 * rounds
	}
	return n, n > 0 && WorkerName(n) == name
}
