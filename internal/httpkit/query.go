package httpkit

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"comet/internal/errs"
	"comet/internal/input"
)

// Query parses a query string strictly: every parameter must be known, sent once and valid. It
// collects all errors; Err returns them together.
type Query struct {
	known      []string
	values     map[string][]string
	violations errs.Violations
}

// NewQuery parses the query string of r; known are the parameters of the route.
func NewQuery(r *http.Request, known ...string) *Query {
	q := &Query{known: known, values: map[string][]string{}}
	for pair := range strings.SplitSeq(r.URL.RawQuery, "&") {
		if pair != "" {
			q.add(pair)
		}
	}
	return q
}

// add parses one name=value pair.
func (q *Query) add(pair string) {
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

func (q *Query) unknown(name string) {
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

func (q *Query) isFull() bool { return len(q.violations) == maxViolations }

// Fail adds an error of a parameter.
func (q *Query) Fail(parameter, rule, format string, args ...any) {
	if q.isFull() {
		return
	}
	q.violations = append(q.violations, errs.Field{
		Code: errs.InvalidParameter, Parameter: parameter, Rule: rule, Detail: fmt.Sprintf(format, args...),
	})
}

// Err returns one errs.InvalidParameter with all errors, nil without any.
func (q *Query) Err() error { return q.violations.Err() }

// Has reports whether the parameter has a readable value.
func (q *Query) Has(name string) bool { return len(q.values[name]) > 0 }

// Values returns the readable values of a parameter.
func (q *Query) Values(name string) []string { return q.values[name] }

// Value returns the value of a parameter that may be sent once.
func (q *Query) Value(name string) (string, bool) {
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
func (q *Query) OptInt(name string, low, high int) *int {
	text, ok := q.Value(name)
	if !ok {
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) || strings.HasPrefix(text, "+") {
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
func (q *Query) Int(name string, low, high, def int) int {
	return *cmp.Or(q.OptInt(name, low, high), &def)
}
