package api

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"comet/internal/errs"
	"comet/internal/input"
)

// query reads the query string of a request strictly: every parameter must be
// known, given once and of its type. What is wrong is collected; Err reports all
// of it at once.
type query struct {
	known      []string
	values     map[string][]string
	violations errs.Violations
}

// newQuery parses the query string; known are the parameters of the route.
func newQuery(r *http.Request, known ...string) *query {
	q := &query{known: known, values: map[string][]string{}}
	for pair := range strings.SplitSeq(r.URL.RawQuery, "&") {
		if pair != "" {
			q.add(pair)
		}
	}
	return q
}

// add takes one name=value pair.
func (q *query) add(pair string) {
	rawName, rawValue, _ := strings.Cut(pair, "=")
	name, err := url.QueryUnescape(rawName)
	if err != nil || !utf8.ValidString(name) {
		q.Fail(input.Clip(rawName), "encoding", "the name of the parameter %s is not percent-encoded UTF-8", input.Quote(rawName))
		return
	}
	if !slices.Contains(q.known, name) {
		q.unknown(name)
		return
	}
	value, err := url.QueryUnescape(rawValue)
	switch {
	case err != nil || !utf8.ValidString(value):
		q.Fail(name, "encoding", "%s is not percent-encoded UTF-8", name)
	case strings.ContainsFunc(value, unicode.IsControl):
		q.Fail(name, "printable", "%s must not contain control characters", name)
	default:
		q.values[name] = append(q.values[name], value)
	}
}

func (q *query) unknown(name string) {
	if q.isFull() {
		return
	}
	known := "this request takes no parameters"
	if len(q.known) > 0 {
		known = "known are " + strings.Join(q.known, ", ")
	}
	q.Fail(input.Clip(name), "unknown_parameter", "%s is not a known parameter; %s%s", input.Quote(name), known, input.DidYouMean(name, q.known))
}

// maxViolations is how many bad parameters one answer names. More of them are one
// mistake repeated by a program; the first ones tell enough.
const maxViolations = 20

func (q *query) isFull() bool { return len(q.violations) == maxViolations }

// Fail records a rule that a parameter breaks.
func (q *query) Fail(parameter, rule, format string, args ...any) {
	if q.isFull() {
		return
	}
	q.violations = append(q.violations, errs.Violation{
		Code:  errs.InvalidParameter,
		Field: errs.Field{Parameter: parameter, Rule: rule, Detail: fmt.Sprintf(format, args...)},
	})
}

// Err returns nil or one errs.InvalidParameter that names every bad parameter.
func (q *query) Err() error { return q.violations.Err() }

// Has reports whether the parameter was sent with a value that could be read.
func (q *query) Has(name string) bool { return len(q.values[name]) > 0 }

// one returns the value of a parameter that may be given once.
func (q *query) one(name string) (string, bool) {
	values := q.values[name]
	if len(values) > 1 {
		q.Fail(name, "repeated", "%s is given %d times; it may be given once", name, len(values))
		return "", false
	}
	if len(values) == 0 {
		return "", false
	}
	return values[0], true
}

// OptInt returns an integer between low and high, nil where it was not sent.
func (q *query) OptInt(name string, low, high int) *int {
	text, ok := q.one(name)
	if !ok {
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil && !isDigits(text) || strings.HasPrefix(text, "+") {
		q.Fail(name, "type", "%s must be an integer, not %s", name, input.Quote(text))
		return nil
	}
	switch {
	case n < int64(low):
		q.Fail(name, "min", "%s must be at least %d, not %s", name, low, input.Clip(text))
	case n > int64(high):
		q.Fail(name, "max", "%s must be at most %d, not %s", name, high, input.Clip(text))
	default:
		return new(int(n))
	}
	return nil
}

// Int is OptInt with a default.
func (q *query) Int(name string, low, high, def int) int {
	if n := q.OptInt(name, low, high); n != nil {
		return *n
	}
	return def
}

// OptBool returns a truth value, nil where it was not sent: true, false, 1 or 0.
func (q *query) OptBool(name string) *bool {
	text, ok := q.one(name)
	if !ok {
		return nil
	}
	switch text {
	case "true", "1":
		return new(true)
	case "false", "0":
		return new(false)
	}
	q.Fail(name, "type", "%s must be true or false, not %s", name, input.Quote(text))
	return nil
}

// Bool is OptBool with false as the default.
func (q *query) Bool(name string) bool {
	b := q.OptBool(name)
	return b != nil && *b
}

// OptString returns a text of 1 to most characters, nil where it was not sent.
func (q *query) OptString(name string, most int) *string {
	text, ok := q.one(name)
	if !ok || !q.checkLength(name, text, most) {
		return nil
	}
	return &text
}

// Strings returns the values of a parameter that may be given up to count times,
// each of 1 to most characters.
func (q *query) Strings(name string, count, most int) []string {
	values := q.values[name]
	if len(values) > count {
		q.Fail(name, "max", "%s may be given at most %d times, not %d", name, count, len(values))
		return nil
	}
	for _, text := range values {
		if !q.checkLength(name, text, most) {
			return nil
		}
	}
	return values
}

func (q *query) checkLength(name, text string, most int) bool {
	switch n := utf8.RuneCountInString(text); {
	case n == 0:
		q.Fail(name, "min", "%s must not be empty", name)
	case n > most:
		q.Fail(name, "max", "%s must be at most %d characters long, not %d", name, most, n)
	default:
		return true
	}
	return false
}

// Enum returns one of the allowed words, def where it was not sent.
func (q *query) Enum(name, def string, allowed ...string) string {
	text, ok := q.one(name)
	if !ok {
		return def
	}
	if !slices.Contains(allowed, text) {
		q.Fail(name, "enum", "%s must be one of %s, not %s", name, strings.Join(allowed, ", "), input.Quote(text))
		return def
	}
	return text
}

// idCursor reads the cursor of a list that goes by id, "" where it was not sent.
func (q *query) idCursor() string {
	id, ok := q.cursor()
	if ok && (id == "" || !storable(id)) {
		q.failCursor()
	}
	return id
}

// numberCursor reads the cursor of a list that goes by a number from 1 on, 0 where it
// was not sent.
func (q *query) numberCursor() int64 {
	key, ok := q.cursor()
	if !ok {
		return 0
	}
	n, err := strconv.ParseInt(key, 10, 64)
	if err != nil || n <= 0 {
		q.failCursor()
	}
	return n
}

// cursor returns the key of which opaque made the cursor.
func (q *query) cursor() (key string, ok bool) { return q.cursorOf(100) }

// cursorOf is cursor for one of at most so many characters.
func (q *query) cursorOf(most int) (key string, ok bool) {
	text := q.OptString("cursor", most)
	if text == nil {
		return "", false
	}
	raw, err := base64.RawURLEncoding.DecodeString(*text)
	if err != nil {
		return "", true // which is no key
	}
	return string(raw), true
}

func (q *query) failCursor() {
	q.Fail("cursor", "cursor", "cursor is not one this server gave out")
}

// encodeCursor makes a cursor of a simple key.
func encodeCursor(key string) string { return base64.RawURLEncoding.EncodeToString([]byte(key)) }

// isDigits reports whether text is a whole number, perhaps one too large to hold.
func isDigits(text string) bool {
	text = strings.TrimPrefix(text, "-")
	return text != "" && strings.Trim(text, "0123456789") == ""
}

// OptTime returns a moment as RFC 3339 writes it, nil where it was not sent.
func (q *query) OptTime(name string) *time.Time {
	text, ok := q.one(name)
	if !ok {
		return nil
	}
	var t time.Time
	if err := t.UnmarshalText([]byte(text)); err != nil { // stricter than time.Parse
		q.Fail(name, "date_time", "%s must be a date and time such as 2026-01-10T15:30:00Z (RFC 3339; a + is written %%2B), not %s", name, input.Quote(text))
		return nil
	}
	return &t
}
