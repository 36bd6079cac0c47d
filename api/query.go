package api

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"comet/internal/httpkit"
	"comet/internal/input"
)

// query is a parsed query string with the types of parameters that only the API has.
type query struct{ *httpkit.Query }

// newQuery parses the query string of r; known are the parameters of the route.
func newQuery(r *http.Request, known ...string) *query {
	return &query{httpkit.NewQuery(r, known...)}
}

// The number of entries on a page.
const (
	defaultLimit = 100
	maxLimit     = 1000
)

// pageLimit returns the parameter limit, the maximum number of entries on a page.
func (q *query) pageLimit() int { return q.Int("limit", 1, maxLimit, defaultLimit) }

// OptBool parses true or false in any case, 1 or 0; nil if it is absent.
func (q *query) OptBool(name string) *bool {
	text, ok := q.Value(name)
	if !ok {
		return nil
	}
	switch strings.ToLower(text) {
	case "true", "1":
		return new(true)
	case "false", "0":
		return new(false)
	}
	q.Fail(name, "type", "%s must be true or false, not %s", name, input.Quote(text))
	return nil
}

// Bool is OptBool with false as the default.
func (q *query) Bool(name string) bool { return orZero(q.OptBool(name)) }

// OptString returns a text of 1 to most characters, nil if it is absent.
func (q *query) OptString(name string, most int) *string {
	text, ok := q.Value(name)
	if !ok || !q.checkLength(name, text, most) {
		return nil
	}
	return &text
}

// Strings returns the values of a parameter that may be repeated up to count times; each has 1 to
// most characters.
func (q *query) Strings(name string, count, most int) []string {
	values := q.Values(name)
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
	text, ok := q.Value(name)
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
	id, ok := q.cursor(100)
	if ok && (id == "" || !storable(id)) {
		q.failCursor()
	}
	return id
}

// numberCursor parses a cursor that contains a positive number, 0 if it is absent.
func (q *query) numberCursor() int64 {
	key, ok := q.cursor(100)
	if !ok {
		return 0
	}
	n, err := strconv.ParseInt(key, 10, 64)
	if err != nil || n <= 0 {
		q.failCursor()
	}
	return n
}

// cursor returns the content of a cursor of up to most characters.
func (q *query) cursor(most int) (key string, ok bool) {
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

func encodeCursor(key string) string { return base64.RawURLEncoding.EncodeToString([]byte(key)) }

// OptTime parses an RFC 3339 time, nil if it is absent.
func (q *query) OptTime(name string) *time.Time {
	return q.parseTime(name, "%s must be a date and time such as 2026-01-10T15:30:00Z (RFC 3339), not %s")
}

// parseTime parses an RFC 3339 time, nil if it is absent. wrong is the error text for an invalid
// time.
func (q *query) parseTime(name, wrong string) *time.Time {
	text, ok := q.Value(name)
	if !ok {
		return nil
	}
	var t time.Time
	if err := t.UnmarshalText([]byte(text)); err != nil { // stricter than time.Parse
		if strings.Contains(text, " ") { // a plus sign that was not escaped
			wrong += "; encode + as %%2B in a URL"
		}
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
