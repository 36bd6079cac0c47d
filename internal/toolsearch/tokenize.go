package toolsearch

import (
	"strings"
	"unicode"

	"github.com/kljensen/snowball/english"
	"github.com/kljensen/snowball/french"
	"golang.org/x/text/unicode/norm"
)

const (
	// maxWord is the longest word that is indexed, in bytes.
	maxWord = 40
	// maxFieldText is how much of one field of a tool is indexed, in bytes.
	maxFieldText = 20_000
)

// tokenize splits a text into lower-case words and numbers: identifiers at capitals and
// underscores ("readHTTPFile2" is read, http, file, 2), French words at elisions. Accents stay,
// composed, because the stemmers need them.
func tokenize(text string) []string {
	if len(text) > maxFieldText {
		text = strings.ToValidUTF8(text[:maxFieldText], "")
	}
	var out []string
	runes := []rune(norm.NFC.String(text))
	start := -1
	end := func(to int) {
		if start >= 0 {
			if w := strings.ToLower(string(runes[start:to])); len(w) <= maxWord {
				out = append(out, w)
			}
		}
		start = -1
	}
	for i, r := range runes {
		switch k := classOf(r); {
		case k == other:
			end(i)
		case start < 0:
			start = i
		case isBoundary(runes, i, k):
			end(i)
			start = i
		}
	}
	end(len(runes))
	return out
}

// characterClass decides where a word ends.
type characterClass uint8

const (
	other characterClass = iota
	lower
	upper
	digit
)

func classOf(r rune) characterClass {
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

// isBoundary reports whether a word begins at i inside an identifier.
func isBoundary(runes []rune, i int, k characterClass) bool {
	before := classOf(runes[i-1])
	switch {
	case (k == digit) != (before == digit):
		return true
	case k == upper && before == lower:
		return true
	case k == lower && before == upper && i >= 2:
		return false // "HTTPFile" already has a boundary before the F
	case k == upper && before == upper:
		return i+1 < len(runes) && classOf(runes[i+1]) == lower
	}
	return false
}

// withoutAccents removes accents: a word that is typed without them is the same word.
func withoutAccents(word string) string {
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

// language is that of a text.
type language uint8

const (
	inEnglish language = iota
	inFrench
	inUnknown
)

// stem returns the stem of a word in a language, without accents.
func stem(word string, l language) string {
	if l == inFrench {
		return withoutAccents(french.Stem(word, true))
	}
	return withoutAccents(english.Stem(word, true))
}

// frenchTerm returns the index term of a French word, which differs from every English one.
func frenchTerm(word string) string { return "fr:" + stem(word, inFrench) }

// isPlural reports whether a word looks like a plural in English or French.
func isPlural(word string) bool {
	n := len(word)
	return n > 3 && (word[n-1] == 's' && !strings.ContainsRune("sui", rune(word[n-2])) || strings.HasSuffix(word, "aux") || strings.HasSuffix(word, "eux"))
}
