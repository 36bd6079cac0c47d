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

// query parses a query string strictly: every parameter must be known, sent once and valid. It
// collects all errors; Err returns them together.
type query struct {
	known      []string
	values     map[string][]string
	violations errs.Violations
}

// newQuery parses the query string of r; known are the parameters of the route.
func newQuery(r *http.Request, known ...string) *query {
	q := &query{known: known, values: map[string][]string{}}
	for pair := range strings.SplitSeq(r.URL.RawQuery, "&") {
		if pair != "" {
			q.add(pair)
		}
	}
	return q
}

// add parses one name=value pair.
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

// maxViolations is the maximum number of errors in one response.
const maxViolations = 20

func (q *query) isFull() bool { return len(q.violations) == maxViolations }

// Fail adds an error of a parameter.
func (q *query) Fail(parameter, rule, format string, args ...any) {
	if q.isFull() {
		return
	}
	q.violations = append(q.violations, errs.Field{
		Code: errs.InvalidParameter, Parameter: parameter, Rule: rule, Detail: fmt.Sprintf(format, args...),
	})
}

// Err returns one errs.InvalidParameter with all errors, nil without any.
func (q *query) Err() error { return q.violations.Err() }

// Has reports whether the parameter has a readable value.
func (q *query) Has(name string) bool { return len(q.values[name]) > 0 }

// one returns the value of a parameter that may be sent once.
func (q *query) one(name string) (string, bool) {
	values := q.values[name]
	if len(values) > 1 {
		q.Fail(name, "repeated", "%s is sent %d times; send it once", name, len(values))
		return "", false
	}
	if len(values) == 0 {
		return "", false
	}
	return values[0], true
}

// OptInt returns an integer from low to high, nil if it is absent.
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

// The number of entries on a page.
const (
	defaultLimit = 100
	maxLimit     = 1000
)

// pageLimit returns the parameter limit, the maximum number of entries on a page.
func (q *query) pageLimit() int { return q.Int("limit", 1, maxLimit, defaultLimit) }

// OptBool parses true, false, 1 or 0; nil if it is absent.
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

// OptString returns a text of 1 to most characters, nil if it is absent.
func (q *query) OptString(name string, most int) *string {
	text, ok := q.one(name)
	if !ok || !q.checkLength(name, text, most) {
		return nil
	}
	return &text
}

// Strings returns the values of a parameter that may be repeated up to count times; each has 1 to
// most characters.
func (q *query) Strings(name string, count, most int) []string {
	values := q.values[name]
	if len(values) > count {
		q.Fail(name, "max", "%s can be repeated at most %d times, not %d", name, count, len(values))
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

// Enum returns one of the allowed values, def if it is absent.
func (q *query) Enum(name, def string, allowed ...string) string {
	text, ok := q.one(name)
	if !ok {
		return def
	}
	if !slices.Contains(allowed, text) {
		q.Fail(name, "enum", "%s must be one of %s, not %s%s", name, strings.Join(allowed, ", "), input.Quote(text), input.DidYouMean(text, allowed))
		return def
	}
	return text
}

// idCursor parses a cursor that contains an id, "" if it is absent.
func (q *query) idCursor() string {
	id, ok := q.cursor()
	if ok && (id == "" || !storable(id)) {
		q.failCursor()
	}
	return id
}

// numberCursor parses a cursor that contains a positive number, 0 if it is absent.
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

// cursor returns the content of a cursor of up to 100 characters.
func (q *query) cursor() (key string, ok bool) { return q.cursorOf(100) }

// cursorOf returns the content of a cursor of up to most characters.
func (q *query) cursorOf(most int) (key string, ok bool) {
	text := q.OptString("cursor", most)
	if text == nil {
		return "", false
	}
	raw, err := base64.RawURLEncoding.DecodeString(*text)
	if err != nil {
		return "", true // not a valid key
	}
	return string(raw), true
}

func (q *query) failCursor() {
	q.Fail("cursor", "cursor", "cursor is invalid; use the next_cursor of the previous page")
}

// encodeCursor returns a cursor with the content key.
func encodeCursor(key string) string { return base64.RawURLEncoding.EncodeToString([]byte(key)) }

// isDigits reports whether text is an integer of any size.
func isDigits(text string) bool {
	text = strings.TrimPrefix(text, "-")
	return text != "" && strings.Trim(text, "0123456789") == ""
}

// OptTime parses an RFC 3339 time, nil if it is absent.
func (q *query) OptTime(name string) *time.Time {
	return q.parseTime(name, "%s must be a date and time such as 2026-01-10T15:30:00Z (RFC 3339; a + is written %%2B), not %s")
}

// parseTime parses an RFC 3339 time, nil if it is absent. wrong is the sentence about a malformed one.
func (q *query) parseTime(name, wrong string) *time.Time {
	text, ok := q.one(name)
	if !ok {
		return nil
	}
	var t time.Time
	if err := t.UnmarshalText([]byte(text)); err != nil { // stricter than time.Parse
		q.Fail(name, "date_time", wrong, name, input.Quote(text))
		return nil
	}
	return &t
}

// period reads the parameters since and until, zero if they are absent.
func (q *query) period() (since, until time.Time) {
	from, to := q.OptTime("since"), q.OptTime("until")
	if from != nil && to != nil && !to.After(*from) {
		q.Fail("until", "after", "until must be later than since")
	}
	return orZero(from), orZero(to)
}
