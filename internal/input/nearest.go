package input

import "unicode/utf8"

// maxWord is the maximum length of a word that is compared, in bytes.
const maxWord = 100

// DidYouMean returns “; did you mean X?” for the known word nearest to the given one, or "".
func DidYouMean(word string, known []string) string {
	if near, ok := Nearest(word, known); ok {
		return "; did you mean " + near + "?"
	}
	return ""
}

// Nearest returns the known word nearest to the given one. ok is false if more than a third of
// every word differs.
func Nearest(word string, known []string) (best string, ok bool) {
	if len(word) > maxWord {
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

// Distance returns the Levenshtein distance of two words in runes, with swapped neighbours counted
// as one edit.
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
