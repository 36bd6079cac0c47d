package v5

import (
	"iter"
	"strings"
)

// Data is the last segment of a line: pairs such as call=web_search, with a semicolon
// between them (PROTOCOL_V5 §3.4). It is read leniently: double quotes protect what
// stands between them from being a delimiter, a word without = is a flag, and empty
// places, a bare - and spaces around keys and values are passed over. A quote without its fellow
// is a character as any other. There is no escape for a quote.
//
// Nothing here copies: what is returned is part of the Data.
type Data string

// Pair is one pair of DATA.
type Pair struct {
	Key string
	// Raw is the value as it stands in the line, with its quotes.
	Raw string
	// Flag is set for a word without =, which is the Key.
	Flag bool
}

// Value is the value without the quotes around it.
func (p Pair) Value() string { return unquote(p.Raw) }

// List yields the elements of a value such as W1,W2 without the quotes around each,
// none for an empty value.
func (p Pair) List() iter.Seq[string] {
	return func(yield func(string) bool) {
		for rest, more := p.Raw, true; more; {
			var element string
			element, rest, more = cut(rest, ',')
			if element = trim(element); element != "" && !yield(unquote(element)) {
				return
			}
		}
	}
}

// Pairs yields the pairs in their order. DATA that is "-" has none.
func (d Data) Pairs() iter.Seq[Pair] {
	return func(yield func(Pair) bool) {
		for rest, more := string(d), true; more; {
			var p Pair
			var ok bool
			if p, rest, more, ok = nextPair(rest); ok && !yield(p) {
				return
			}
		}
	}
}

// Pair returns the first pair with the key, flags included.
func (d Data) Pair(key string) (Pair, bool) {
	for p := range d.Pairs() {
		if p.Key == key {
			return p, true
		}
	}
	return Pair{}, false
}

// Get returns the value of the first pair with the key. A flag has the value "".
func (d Data) Get(key string) (string, bool) {
	p, ok := d.Pair(key)
	return p.Value(), ok
}

// Cut returns DATA without the pairs with the key, "-" where nothing is left, and the
// value of the first: what must not be kept, such as the token of a join, is taken out
// with it.
func (d Data) Cut(key string) (rest Data, value string, found bool) {
	var kept strings.Builder
	for left, more := string(d), true; more; {
		whole := left
		var p Pair
		var ok bool
		p, left, more, ok = nextPair(left)
		if ok && p.Key == key {
			if !found {
				value, found = p.Value(), true
			}
			continue
		}
		kept.WriteString(whole[:len(whole)-len(left)])
	}
	switch {
	case !found:
		return d, "", false
	case kept.Len() == 0:
		return none, value, true
	}
	return Data(kept.String()), value, true
}

// nextPair reads the first pair of a text. more is whether a semicolon stands behind
// it, and ok false for an empty place.
func nextPair(text string) (p Pair, rest string, more, ok bool) {
	place, rest, more := cut(text, ';')
	place = trim(place)
	if place == "" || place == none {
		return Pair{}, rest, more, false
	}
	key, value, isPair := cut(place, '=')
	if !isPair {
		return Pair{Key: unquote(place), Flag: true}, rest, more, true
	}
	return Pair{Key: trim(key), Raw: trim(value)}, rest, more, true
}

// cut is strings.Cut for a delimiter that is not between quotes.
func cut(text string, delimiter byte) (before, after string, found bool) {
	i := strings.IndexByte(text, delimiter)
	if i < 0 {
		return text, "", false
	}
	if q := strings.IndexByte(text[:i], '"'); q >= 0 {
		if i = outside(text, delimiter, q); i < 0 {
			return text, "", false
		}
	}
	return text[:i], text[i+1:], true
}

// outside returns where the first delimiter stands that is not between quotes, -1 for
// none. from is where the first quote stands.
func outside(text string, delimiter byte, from int) int {
	for i := from; i < len(text); i++ {
		switch text[i] {
		case delimiter:
			return i
		case '"':
			end := strings.IndexByte(text[i+1:], '"')
			if end < 0 {
				end = strings.IndexByte(text[i:], delimiter)
				if end < 0 {
					return -1
				}
				return i + end
			}
			i += end + 1
		}
	}
	return -1
}

// unquote takes away the quotes around a text that is one quoted piece.
func unquote(text string) string {
	if n := len(text); n >= 2 && text[0] == '"' && strings.IndexByte(text[1:], '"') == n-2 {
		return text[1 : n-1]
	}
	return text
}

// trim takes away the spaces around a text.
func trim(text string) string { return strings.Trim(text, " ") }
