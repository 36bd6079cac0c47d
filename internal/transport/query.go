package transport

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"comet/internal/errs"
	"comet/internal/words"
)

// query reads the parameters of a request. Errors are kept until they are asked for.
type query struct {
	values url.Values
	err    error
}

func parseQuery(r *http.Request, known ...string) *query {
	q := &query{}
	q.values, q.err = url.ParseQuery(r.URL.RawQuery)
	if q.err != nil {
		q.err = errs.Wrap(errs.InvalidParameter, q.err, "the query of the address cannot be read")
	}
	for name, all := range q.values {
		switch {
		case !slices.Contains(known, name):
			q.fail("there is no parameter %s here, only %s", words.Quote(name), strings.Join(known, ", "))
		case len(all) > 1:
			q.fail("the parameter %s is given more than once", name)
		}
	}
	return q
}

func (q *query) fail(format string, args ...any) {
	if q.err == nil {
		q.err = errs.New(errs.InvalidParameter, format, args...)
	}
}

// intParam reads a whole number of a range.
func (q *query) intParam(name string, least, most, otherwise int) int {
	text := q.values.Get(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		q.fail("%s must be a whole number from %d to %d, not %s", name, least, most, words.Quote(text))
	}
	return n
}

// listParam reads words that are separated by commas.
func (q *query) listParam(name string) []string {
	text := q.values.Get(name)
	if text == "" {
		return nil
	}
	all := strings.Split(text, ",")
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
	}
	return all
}
