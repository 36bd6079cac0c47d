package v5

import "strconv"

// Nth is the reverse of NthWorker; ok is false for an address that it never returns.
func (a Address) Nth() (n int, ok bool) {
	if a.Role != Worker || a.Number == 0 {
		return 0, false
	}
	round := 0
	if sub := a.Sub(); sub != "" {
		var err error
		if round, err = strconv.Atoi(sub); err != nil {
			return 0, false
		}
	}
	n = round*99 + int(a.Number)
	return n, NthWorker(n) == a
}
