package v5

import (
	"fmt"
	"iter"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"comet/internal/wire/v5/codes"
)

// The keys of DATA that the protocol itself uses (PROTOCOL_V5 §5.2, §8.2, §10.2, §11, and the
// pairs of hand-offs and depth).
const (
	keyCall         = "call"
	keyParams       = "params"
	keyRetry        = "retry"
	keyMax          = "max"
	keyFallback     = "fallback"
	keyFallbackFrom = "fallback_from"
	keyReason       = "reason"
	keyParent       = "pid"
	keyJustify      = "justify"
	keyAuth         = "auth"
)

// Data is the last segment of a message: pairs such as call=web_search, with semicolons between
// them (PROTOCOL_V5 §3.4). It is parsed leniently: delimiters between double quotes are text, a
// word without = is a flag, and empty pairs, a lone - and spaces around keys and values are
// ignored. An unpaired quote is a character like any other. There is no escape for a quote.
//
// Nothing here copies: results are parts of the Data.
type Data string

// Pair is one pair of DATA.
type Pair struct {
	Key string
	// Flag is set for a word without =, which is the Key.
	Flag bool

	raw string // the value with its quotes
}

// Value returns the value without the quotes around it.
func (p Pair) Value() string { return unquote(p.raw) }

// IsQuoted reports whether the value is in quotes, which makes it text even where it looks like a
// number.
func (p Pair) IsQuoted() bool { return p.raw != p.Value() }

// List yields the elements of a value such as W1,W2 without the quotes around each, none for an
// empty value.
func (p Pair) List() iter.Seq[string] {
	return func(yield func(string) bool) {
		for rest, more := p.raw, true; more; {
			var element string
			element, rest, more = cut(rest, ',')
			if element = trim(element); element != "" && !yield(unquote(element)) {
				return
			}
		}
	}
}

// Pairs yields the pairs in their order, none for "-".
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

// Cut returns DATA without the pairs with the key, "-" where nothing is left, and the value of the
// first. It removes what must not be stored, such as the token of a join.
func (d Data) Cut(key string) (rest Data, value string, found bool) {
	var kept strings.Builder
	for left, more := string(d), true; more; {
		before := left
		var p Pair
		var ok bool
		p, left, more, ok = nextPair(left)
		if ok && p.Key == key {
			if !found {
				value, found = p.Value(), true
			}
			continue
		}
		kept.WriteString(before[:len(before)-len(left)])
	}
	switch {
	case !found:
		return d, "", false
	case kept.Len() == 0:
		return none, value, true
	}
	return Data(kept.String()), value, true
}

// Call returns the capability in call=, "" for none.
func (d Data) Call() string {
	capability, _ := d.Get(keyCall)
	return capability
}

// Params yields the names and values in params= (§5.2), with a colon between them and a comma
// after them, quoted as in DATA. Only the first colon divides, so that a value can be a reference;
// a word without a colon is a name without a value.
func (d Data) Params() iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		rest, _ := d.Get(keyParams)
		for more := true; more; {
			var item string
			item, rest, more = cut(rest, ',')
			if item = trim(item); item == "" {
				continue
			}
			name, value, _ := cut(item, ':')
			if !yield(unquote(trim(name)), unquote(trim(value))) {
				return
			}
		}
	}
}

// IsReserved reports whether the protocol itself uses a key in a request, so that it is no argument
// of the call (§8.2, §10.2). max is reserved only beside retry.
func (d Data) IsReserved(key string) bool {
	switch key {
	case keyCall, keyParams, keyRetry, keyFallback, keyFallbackFrom, keyReason, keyParent, keyJustify:
		return true
	case keyMax:
		_, retried := d.Pair(keyRetry)
		return retried
	}
	return false
}

// Retry holds the pairs of a repeated request (PROTOCOL_V5 §8.2).
type Retry struct {
	// Attempt is retry=, 0 in a first request.
	Attempt int
	// Max is max=, the number of retries, 0 for absent. It is read beside retry= only.
	Max int
	// Fallback is the next worker, the zero Address for absent.
	Fallback Address
	// From is fallback_from=, the worker before.
	From Address
	// Reason is reason=, a code such as E31, or a word.
	Reason string
}

// Retry parses retry, max, fallback, fallback_from and reason. The error is an *Error with E10, or
// E13 for an agent.
func (d Data) Retry() (r Retry, err error) {
	if r.Attempt, err = d.count(keyRetry); err != nil {
		return Retry{}, err
	}
	if r.Fallback, err = d.agent(keyFallback); err != nil {
		return Retry{}, err
	}
	if r.From, err = d.agent(keyFallbackFrom); err != nil {
		return Retry{}, err
	}
	if _, ok := d.Pair(keyRetry); ok {
		if r.Max, err = d.count(keyMax); err != nil {
			return Retry{}, err
		}
	}
	r.Reason, _ = d.Get(keyReason)
	return r, nil
}

// withParent returns DATA with pid=, the number of the message that caused this one (§10.2). It omits
// the pair for a message without a number, and where DATA has no space for it.
func (d Data) withParent(number int) Data {
	with := Data(fmt.Sprintf("%s;%s=M%d", d, keyParent, number))
	if d == none {
		with = with[len(none)+1:]
	}
	if number == 0 || utf8.RuneCountInString(string(with)) > MaxData {
		return d
	}
	return with
}

// Parent returns the number of the message that caused this one, pid=M5 (§10.2), 0 for none. The
// error is an *Error with E10.
func (d Data) Parent() (int, error) {
	text, ok := d.Get(keyParent)
	if !ok {
		return 0, nil
	}
	n, ok := parseNumber(text, 'M', 4)
	if !ok || n == 0 {
		return 0, pairError(codes.E10, keyParent, "M and a number, such as M5", text)
	}
	return n, nil
}

// count parses a number of at most four digits, 0 for absent.
func (d Data) count(key string) (int, error) {
	text, ok := d.Get(key)
	if !ok {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || len(text) > 4 {
		return 0, pairError(codes.E10, key, "a number of at most four digits", text)
	}
	return int(n), nil
}

// agent parses the address of one agent, the zero Address for absent.
func (d Data) agent(key string) (Address, error) {
	text, ok := d.Get(key)
	if !ok {
		return Address{}, nil
	}
	a, err := ParseAddress(text)
	if err != nil || a.IsMulticast() {
		return Address{}, pairError(codes.E13, key, "the id of an agent", text)
	}
	return a, nil
}

func pairError(code codes.Code, key, want, found string) error {
	return newError(code, "", key+" in DATA must be "+want+", not "+quote(found))
}

// nextPair parses the first pair of a text. more is whether a semicolon follows it, and ok false
// for an empty pair.
func nextPair(text string) (p Pair, rest string, more, ok bool) {
	item, rest, more := cut(text, ';')
	item = trim(item)
	if item == "" || item == none {
		return Pair{}, rest, more, false
	}
	key, value, isPair := cut(item, '=')
	if !isPair {
		return Pair{Key: unquote(item), Flag: true}, rest, more, true
	}
	return Pair{Key: trim(key), raw: trim(value)}, rest, more, true
}

// cut is strings.Cut for a delimiter that is not between quotes.
func cut(text string, delimiter byte) (before, after string, found bool) {
	i := strings.IndexByte(text, delimiter)
	if i < 0 {
		return text, "", false
	}
	if q := strings.IndexByte(text[:i], '"'); q >= 0 {
		if i = indexUnquoted(text, delimiter, q); i < 0 {
			return text, "", false
		}
	}
	return text[:i], text[i+1:], true
}

// indexUnquoted returns the index of the first delimiter that is not between quotes, -1 for none.
// from is the index of the first quote.
func indexUnquoted(text string, delimiter byte, from int) int {
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

// unquote removes the quotes around a text that is one quoted string.
func unquote(text string) string {
	if n := len(text); n >= 2 && text[0] == '"' && strings.IndexByte(text[1:], '"') == n-2 {
		return text[1 : n-1]
	}
	return text
}

func trim(text string) string { return strings.Trim(text, " ") }

// defect is the reason why DATA cannot hold a text, 0 for none.
type defect byte

const (
	// forbidden: a bar, a > or a control character.
	forbidden defect = iota + 1
	// notUTF8: bytes that are not UTF-8.
	notUTF8
)

// inspection is the result of one pass over a text. It ends at the first defect, and runes then
// means nothing.
type inspection struct {
	runes  int
	quotes int
	defect defect
	at     int // the byte of the defect
}

func inspect(text string) inspection {
	found := inspection{runes: len(text)}
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case '>' < c && c < '|': // letters, most of a text
		case c < ' ' || c == '|' || c == '>' || c == 0x7f:
			found.defect, found.at = forbidden, i
			return found
		case c == '"':
			found.quotes++
		case c >= utf8.RuneSelf:
			r, size := utf8.DecodeRuneInString(text[i:])
			switch {
			case r == utf8.RuneError && size == 1:
				found.defect = notUTF8
			case unicode.IsControl(r):
				found.defect = forbidden
			}
			if found.defect != 0 {
				found.at = i
				return found
			}
			i += size - 1
			found.runes -= size - 1
		}
	}
	return found
}

// firstRunes cuts a text that is known to have more than n characters.
func firstRunes(text string, n int) string {
	for i := range text {
		if n == 0 {
			return text[:i]
		}
		n--
	}
	return text
}
