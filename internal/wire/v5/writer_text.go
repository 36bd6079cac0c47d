package v5

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text writes a text that people read, such as desc. What cannot be said is replaced
// by what looks like it, and what would make DATA too long is cut off and its place
// taken by an ellipsis; where not even that has room, the pair is left out.
func (w *Writer) Text(key, text string) *Writer {
	room := MaxData - utf8.RuneCount(w.data) - len(key) - 4 // a semicolon, =, two quotes
	if w.err == nil && room < 1 {
		return w
	}
	text = trim(strings.Map(lookalike, strings.ToValidUTF8(text, "\uFFFD")))
	text = strings.ReplaceAll(text, ";auth=", "; auth=")
	if utf8.RuneCountInString(text) > room {
		text = firstRunes(text, room-1) + "…"
	}
	return w.Add(key, text)
}

// lookalike replaces what cannot stand in a value.
func lookalike(r rune) rune {
	switch {
	case r == '|':
		return '¦'
	case r == '>':
		return '›'
	case r == '"':
		return '\''
	case unicode.IsControl(r):
		return ' '
	}
	return r
}
