package v5

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"comet/internal/wire/v5/codes"
)

// Writer writes DATA, pair by pair. The zero Writer is ready; Data returns the first error.
//
// A value with a semicolon or with a space at an end is written in quotes. DATA cannot hold |, >,
// control characters, a double quote, ;auth= and bytes that are not UTF-8, not even in quotes. The
// document has no escape for them, so they are E12 with codes.ReasonNotEncodable, and the caller
// stores the value and writes a reference. Only Text, which is for people, replaces them.
type Writer struct {
	data []byte
	err  *Error
}

// Data returns what was written, "-" for nothing. The error is an *Error; with codes.ReasonOverflow
// DATA is longer than MaxData.
func (w *Writer) Data() (Data, error) {
	switch {
	case w.err != nil:
		return "", w.err
	case len(w.data) == 0:
		return none, nil
	case utf8.RuneCount(w.data) > MaxData:
		return "", errOverflow()
	}
	return Data(w.data), nil
}

// Add writes key=value so that Get returns the same value.
func (w *Writer) Add(key, value string) *Writer {
	if w.writeKey(key) && w.isEncodable(key, value) {
		w.data = append(w.data, '=')
		w.writeValue(value, ";")
	}
	return w
}

// Number writes key=n.
func (w *Writer) Number(key string, n int64) *Writer { return w.Add(key, strconv.FormatInt(n, 10)) }

// Flag writes a word without a value.
func (w *Writer) Flag(word string) *Writer {
	w.writeKey(word)
	return w
}

// Quoted writes key="value", for text that would otherwise look like a number or flag.
func (w *Writer) Quoted(key, value string) *Writer {
	if w.writeKey(key) && w.isEncodable(key, value) {
		w.data = append(append(append(w.data, '=', '"'), value...), '"')
	}
	return w
}

// List writes key=a,b,c so that Pair.List yields the same values. DATA cannot hold an empty
// element.
func (w *Writer) List(key string, values ...string) *Writer {
	if !w.writeKey(key) {
		return w
	}
	w.data = append(w.data, '=')
	for i, value := range values {
		if value == "" {
			w.fail(key, "an empty element")
		}
		if i > 0 {
			w.data = append(w.data, ',')
		}
		if w.isEncodable(key, value) {
			w.writeValue(value, ";,")
		}
	}
	return w
}

// Ref writes key=#REF:… or another reference.
func (w *Writer) Ref(key string, r Ref) *Writer {
	if w.writeKey(key) {
		text := r.String()
		if text == "" {
			w.fail(key, "such a reference")
		}
		w.data = append(append(w.data, '='), text...)
	}
	return w
}

// Retry writes what is set of r, as Data.Retry parses it.
func (w *Writer) Retry(r Retry) *Writer {
	if r.Attempt != 0 || r.Max != 0 {
		w.Number(keyRetry, int64(r.Attempt))
	}
	if r.Max != 0 {
		w.Number(keyMax, int64(r.Max))
	}
	if r.Fallback != (Address{}) {
		w.Add(keyFallback, r.Fallback.String())
	}
	if r.From != (Address{}) {
		w.Add(keyFallbackFrom, r.From.String())
	}
	if r.Reason != "" {
		w.Add(keyReason, r.Reason)
	}
	return w
}

// Text writes a text for people, such as desc. Similar characters replace what DATA cannot hold,
// and a text that would make DATA too long, with the pair pid of a reply, is cut and ends in an
// ellipsis; where not even that fits, the pair is omitted.
func (w *Writer) Text(key, text string) *Writer {
	space := MaxData - utf8.RuneCount(w.data) - len(key) - len(`;="";pid=M9999`)
	if w.err == nil && space < 1 {
		return w
	}
	text = trim(strings.Map(replaceForbidden, strings.ToValidUTF8(text, "\uFFFD")))
	text = strings.ReplaceAll(text, authMark, "; auth=")
	if utf8.RuneCountInString(text) > space {
		text = firstRunes(text, space-1) + "…"
	}
	return w.Add(key, text)
}

func replaceForbidden(r rune) rune {
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

// writeKey writes the delimiter before a pair and its key, and reports whether a value can follow.
func (w *Writer) writeKey(key string) bool {
	switch {
	case w.err != nil:
		return false
	case !isKey(key):
		w.fail(quote(key), "such a key")
		return false
	case key == keyAuth:
		w.fail(key, "a pair that only Sign writes")
		return false
	}
	if len(w.data) > 0 {
		w.data = append(w.data, ';')
	}
	w.data = append(w.data, key...)
	return true
}

// writeValue writes an encodable value, in quotes where it has one of the delimiters or a space at
// an end.
func (w *Writer) writeValue(value, delimiters string) {
	if trim(value) != value || strings.ContainsAny(value, delimiters) {
		w.data = append(append(append(w.data, '"'), value...), '"')
		return
	}
	w.data = append(w.data, value...)
}

// isEncodable reports whether DATA can hold a value, and records the error where it cannot.
func (w *Writer) isEncodable(key, value string) bool {
	if w.err != nil {
		return false
	}
	found := inspect(value)
	switch {
	case found.defect != 0:
		w.fail(key, quote(value[found.at:])+", which has |, >, a control character or bytes that are not UTF-8")
	case found.quotes > 0:
		w.fail(key, "a double quote")
	case strings.Contains(value, authMark):
		w.fail(key, authMark)
	}
	return w.err == nil
}

func (w *Writer) fail(key, what string) {
	if w.err == nil {
		w.err = newError(codes.E12, codes.ReasonNotEncodable, "DATA cannot hold "+what+" in "+key)
	}
}

// isKey reports whether a text is parsed as the same key before = and alone.
func isKey(text string) bool {
	return text != "" && text != none && trim(text) == text && !strings.ContainsAny(text, "\";=") && inspect(text).defect == 0
}
