// Package nearest finds the known word that was probably meant, so that an
// error about an unknown name can say so.
package nearest

import "unicode/utf8"

// maxLength is the longest word, in bytes, that is worth comparing.
const maxLength = 100

// Word returns the known word closest to the given one; ok is false when none
// is close enough to be worth suggesting (more than a third of it differs).
func Word(word string, known []string) (best string, ok bool) {
	if len(word) > maxLength {
		return "", false
	}
	limit := max(1, utf8.RuneCountInString(word)/3)
	for _, k := range known {
		if d := Distance(word, k); d <= limit && k != word {
			best, ok, limit = k, true, d-1
		}
	}
	return best, ok
}

// Distance is the Levenshtein distance with swapped neighbours counted as one
// edit, in runes.
func Distance(from, to string) int {
	a, b := []rune(from), []rune(to)
	n := len(b) + 1
	var few [3 * 32]int // enough for most words, without the heap
	rows := few[:]
	if 3*n > len(rows) {
		rows = make([]int, 3*n)
	}
	before, last, row := rows[:n], rows[n:2*n], rows[2*n:3*n]
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
