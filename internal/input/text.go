package input

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// MaxName is the maximum length of a member's name in a document, in bytes. A longer name is an
// error, and the value below it is not checked, because each error below repeats the name.
const MaxName = 256

// The functions below repeat input in error texts. They limit its length, so that the size of a
// response does not depend on the request.
const (
	maxClip    = 64   // characters of a value; the maximum length of an agent's id
	maxField   = 240  // approximate bytes of a field's name
	maxPointer = 1024 // approximate bytes of a pointer
)

// Clip returns s, or its first 64 characters and an ellipsis.
func Clip(s string) string { return ClipTo(s, maxClip) }

// ClipTo returns s, or its first most characters and an ellipsis.
func ClipTo(s string, most int) string {
	if len(s) <= most {
		return s
	}
	count := 0
	for i := range s {
		if count == most {
			return s[:i] + "…"
		}
		count++
	}
	return s
}

// ClipBytes returns s, or at most its first most bytes and an ellipsis, cut between characters and
// with invalid UTF-8 replaced.
func ClipBytes(s string, most int) string {
	if len(s) > most {
		for most > 0 && !utf8.RuneStart(s[most]) {
			most--
		}
		s = s[:most] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// SplitRune splits off an incomplete character at the end of text.
func SplitRune(text []byte) (complete, rest []byte) {
	for at := len(text) - 1; at >= 0 && at > len(text)-utf8.UTFMax; at-- {
		if utf8.RuneStart(text[at]) {
			if !utf8.FullRune(text[at:]) {
				return text[:at], text[at:]
			}
			break
		}
	}
	return text, nil
}

// Quote returns Clip(s) in double quotes, with unprintable characters escaped.
func Quote(s string) string { return strconv.Quote(Clip(s)) }

// Field returns a JSON pointer in the form agents[3].level, or “the document”. A long one ends in
// an ellipsis.
func Field(pointer string) string {
	if pointer == "" {
		return "the document"
	}
	var b strings.Builder
	for token := range jsontext.Pointer(pointer).Tokens() {
		if b.Len() > maxField {
			b.WriteString("…")
			break
		}
		if _, err := strconv.ParseUint(token, 10, 32); err == nil && b.Len() > 0 {
			b.WriteString("[" + token + "]")
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(Clip(token))
	}
	return b.String()
}

// Escape returns the token of a JSON pointer that represents a name (RFC 6901 §4).
func Escape(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
}

// Pointer returns a JSON pointer with names longer than MaxName cut as in Clip. A very long pointer
// ends in an ellipsis.
func Pointer(pointer string) string {
	if len(pointer) <= MaxName {
		return pointer
	}
	var b strings.Builder
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if b.Len() > maxPointer {
			b.WriteString("/…")
			break
		}
		if len(token) > MaxName {
			token = strings.TrimSuffix(strings.TrimSuffix(Clip(token), "…"), "~") + "…" // no half of an escape
		}
		b.WriteString("/" + token)
	}
	return b.String()
}

// Duration formats d as 1m or 720h where the standard library has 1m0s or 720h0m0s.
func Duration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

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
