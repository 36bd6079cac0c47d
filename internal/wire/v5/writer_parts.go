package v5

import "strings"

// key writes the delimiter before a pair and its key, and reports whether a value may
// follow.
func (w *Writer) key(key string) bool {
	switch {
	case w.err != nil:
		return false
	case !isKey(key):
		w.refuse(quote(key), "such a key")
		return false
	case key == keyAuth:
		w.refuse(key, "a pair that only Sign writes")
		return false
	}
	if len(w.data) > 0 {
		w.data = append(w.data, ';')
	}
	w.data = append(w.data, key...)
	return true
}

// value writes a value that is known to be sayable, in quotes where it has one of the
// delimiters or ends in a space.
func (w *Writer) value(value, delimiters string) {
	if trim(value) != value || strings.ContainsAny(value, delimiters) {
		w.data = append(append(append(w.data, '"'), value...), '"')
		return
	}
	w.data = append(w.data, value...)
}

// sayable reports whether a value can stand in DATA, and keeps the error where not.
func (w *Writer) sayable(key, value string) bool {
	if w.err != nil {
		return false
	}
	found := inspect(value)
	switch {
	case found.problem != sound:
		w.refuse(key, quote(value[found.at:])+", which has |, >, a control character or bytes that are not UTF-8")
	case found.quotes > 0:
		w.refuse(key, "a double quote")
	case strings.Contains(value, authMark):
		w.refuse(key, authMark)
	}
	return w.err == nil
}

func (w *Writer) refuse(key, what string) {
	if w.err == nil {
		w.err = refusal(E12, ReasonUnsayable, SegmentData, "DATA cannot say "+what+" in "+key)
	}
}

// isKey reports whether a text reads as itself in front of = and alone.
func isKey(text string) bool {
	return text != "" && text != none && trim(text) == text && !strings.ContainsAny(text, "\";=") && inspect(text).problem == sound
}
