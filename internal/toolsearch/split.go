package toolsearch

import (
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

const (
	// maxWord is the longest word that is looked at, in bytes; longer ones are nobody's.
	maxWord = 40
	// maxText is how much of one field of a tool is read, in bytes.
	maxText = 20_000
)

// split cuts a text into words of small letters, or of digits: identifiers at their humps
// and underscores ("readHTTPFile2" is read, http, file, 2), French ones at their elisions.
// Accents are kept, composed, for the stemmers know them.
func split(text string) []string {
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "")
	}
	var out []string
	runes := []rune(norm.NFC.String(text))
	from := -1
	end := func(to int) {
		if from >= 0 {
			if w := strings.ToLower(string(runes[from:to])); len(w) <= maxWord {
				out = append(out, w)
			}
		}
		from = -1
	}
	for i, r := range runes {
		switch k := kindOf(r); {
		case k == other:
			end(i)
		case from < 0:
			from = i
		case boundary(runes, i, k):
			end(i)
			from = i
		}
	}
	end(len(runes))
	return out
}

// kind is what a character is to split.
type kind uint8

const (
	other kind = iota
	lower
	upper
	digit
)

func kindOf(r rune) kind {
	switch {
	case unicode.IsDigit(r):
		return digit
	case unicode.IsUpper(r):
		return upper
	case unicode.IsLetter(r), unicode.IsMark(r):
		return lower
	}
	return other
}

// boundary reports whether a word begins at i inside of an identifier.
func boundary(runes []rune, i int, k kind) bool {
	before := kindOf(runes[i-1])
	switch {
	case (k == digit) != (before == digit):
		return true
	case k == upper && before == lower:
		return true
	case k == lower && before == upper && i >= 2:
		return false // the last capital of "HTTPFile" was its boundary already
	case k == upper && before == upper:
		return i+1 < len(runes) && kindOf(runes[i+1]) == lower
	}
	return false
}

// fold takes the accents off: what is typed without them is the same word.
func fold(word string) string {
	plain := true
	for i := range len(word) {
		plain = plain && word[i] < 0x80
	}
	if plain {
		return word
	}
	var b strings.Builder
	for _, r := range norm.NFD.String(word) {
		switch {
		case unicode.Is(unicode.Mn, r):
		case r == 'œ':
			b.WriteString("oe")
		case r == 'æ':
			b.WriteString("ae")
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
