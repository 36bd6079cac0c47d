package api

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
)

// page is what readPage reads.
type page struct {
	Sphere *int
	Active *bool
	Limit  int
	Text   *string
	Tags   []string
	Sort   string
	Total  bool
}

func readPage(rawQuery string) (page, error) {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.URL.RawQuery = rawQuery
	q := newQuery(r, "sphere_id", "active", "limit", "q", "capability", "sort", "total")
	p := page{
		Sphere: q.OptInt("sphere_id", 1, 9), Active: q.OptBool("active"), Limit: q.Int("limit", 1, 1000, 100),
		Text: q.OptString("q", 5), Tags: q.Strings("capability", 3, 8), Sort: q.Enum("sort", "id", "id", "-id", "name"), Total: q.Bool("total"),
	}
	return p, q.Err()
}

func TestQueryReads(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]page{
		"":                          {Limit: 100, Sort: "id"},
		"&&":                        {Limit: 100, Sort: "id"},
		"sphere_id=1&limit=1000":    {Sphere: new(1), Limit: 1000, Sort: "id"},
		"active=true":               {Active: new(true), Limit: 100, Sort: "id"},
		"active=False&total=TRUE":   {Active: new(false), Limit: 100, Sort: "id", Total: true},
		"active=0&total=1":          {Active: new(false), Limit: 100, Sort: "id", Total: true},
		"q=a%20b%2B":                {Text: new("a b+"), Limit: 100, Sort: "id"},
		"q=%C3%A9%F0%9F%98%80+":     {Text: new("é😀 "), Limit: 100, Sort: "id"},
		"q=';--":                    {Text: new("';--"), Limit: 100, Sort: "id"},
		"capability=a&capability=b": {Tags: []string{"a", "b"}, Limit: 100, Sort: "id"},
		"sort=-id":                  {Limit: 100, Sort: "-id"},
		"%6cimit=7":                 {Limit: 7, Sort: "id"},
	} {
		got, err := readPage(raw)
		require.NoError(t, err, raw)
		require.Equal(t, want, got, raw)
	}
}

func TestQueryRejects(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string][]errs.Field{
		"limit=0":                           {{Parameter: "limit", Rule: "min", Detail: "limit must be at least 1, not 0"}},
		"limit=1001":                        {{Parameter: "limit", Rule: "max", Detail: "limit must be at most 1000, not 1001"}},
		"limit=-1":                          {{Parameter: "limit", Rule: "min"}},
		"limit=":                            {{Parameter: "limit", Rule: "type", Detail: `limit must be an integer, not ""`}},
		"limit":                             {{Parameter: "limit", Rule: "type"}},
		"limit=ten":                         {{Parameter: "limit", Rule: "type", Detail: `not "ten"`}},
		"limit=1.0":                         {{Parameter: "limit", Rule: "type"}},
		"limit=1e2":                         {{Parameter: "limit", Rule: "type"}},
		"limit=0x10":                        {{Parameter: "limit", Rule: "type"}},
		"limit=%2B5":                        {{Parameter: "limit", Rule: "type"}},
		"limit=+5":                          {{Parameter: "limit", Rule: "type"}},
		"limit=1_0":                         {{Parameter: "limit", Rule: "type"}},
		"limit=%D9%A1":                      {{Parameter: "limit", Rule: "type"}},
		"limit=99999999999999999999999":     {{Parameter: "limit", Rule: "max"}},
		"limit=-99999999999999999999999":    {{Parameter: "limit", Rule: "min"}},
		"limit=5;DROP":                      {{Parameter: "limit", Rule: "type"}},
		"limit=5&limit=6":                   {{Parameter: "limit", Rule: "repeated", Detail: "limit is sent 2 times"}},
		"limit=5&limit=5":                   {{Parameter: "limit", Rule: "repeated"}},
		"active=yes":                        {{Parameter: "active", Rule: "type", Detail: `active must be true or false, not "yes"`}},
		"active=TRUES":                      {{Parameter: "active", Rule: "type"}},
		"active=":                           {{Parameter: "active", Rule: "type"}},
		"q=":                                {{Parameter: "q", Rule: "min", Detail: "q must not be empty"}},
		"q=123456":                          {{Parameter: "q", Rule: "max", Detail: "q must be at most 5 characters long, not 6"}},
		"q=%00":                             {{Parameter: "q", Rule: "printable"}},
		"q=a%0Ab":                           {{Parameter: "q", Rule: "printable"}},
		"q=%FF":                             {{Parameter: "q", Rule: "encoding", Detail: "q is not percent-encoded UTF-8"}},
		"q=\xff":                            {{Parameter: "q", Rule: "encoding"}},
		"q=%":                               {{Parameter: "q", Rule: "encoding"}},
		"q=%zz":                             {{Parameter: "q", Rule: "encoding"}},
		"%zz=1":                             {{Parameter: "%zz", Rule: "encoding"}},
		"capability=":                       {{Parameter: "capability", Rule: "min"}},
		"capability=a&capability=123456789": {{Parameter: "capability", Rule: "max"}},
		"capability=a&capability=b&capability=c&capability=d": {{Parameter: "capability", Rule: "max", Detail: "at most 3 times, not 4"}},
		"sort=level":              {{Parameter: "sort", Rule: "enum", Detail: `sort must be one of id, -id, name, not "level"`}},
		"sort=":                   {{Parameter: "sort", Rule: "enum"}},
		"sphere=1":                {{Parameter: "sphere", Rule: "unknown_parameter", Detail: `"sphere" is not a known parameter; known are sphere_id, active,`}},
		"limt=1":                  {{Parameter: "limt", Rule: "unknown_parameter", Detail: "did you mean limit?"}},
		"Limit=1":                 {{Parameter: "Limit", Rule: "unknown_parameter", Detail: "did you mean limit?"}},
		"=1":                      {{Parameter: "", Rule: "unknown_parameter"}},
		"limit=0&limt=1&active=2": {{Parameter: "limt", Rule: "unknown_parameter"}, {Parameter: "active", Rule: "type"}, {Parameter: "limit", Rule: "min"}},
	} {
		t.Run(raw, func(t *testing.T) {
			t.Parallel()
			_, err := readPage(raw)
			var e *errs.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, errs.InvalidParameter, e.Code)
			require.Len(t, e.Fields, len(want), "%v", e)
			for i, w := range want {
				require.Equal(t, w.Parameter, e.Fields[i].Parameter)
				require.Equal(t, w.Rule, e.Fields[i].Rule)
				require.Contains(t, e.Fields[i].Detail, w.Detail)
			}
		})
	}
}

func TestQueryErrorsAreLimited(t *testing.T) {
	t.Parallel()
	for what, pairs := range map[string]string{
		"of the encoding of a name":  strings.Repeat("%&", 30_000),
		"of the encoding of a value": strings.Repeat("q=%&", 30_000),
		"of control characters":      strings.Repeat("q=%00&", 30_000),
		"of the name":                strings.Repeat("x=1&", 30_000),
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			_, err := readPage(pairs + "limit=0")
			var e *errs.Error
			require.ErrorAs(t, err, &e)
			require.Len(t, e.Fields, 20)
		})
	}
}

func TestQueryWithoutParameters(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest(http.MethodGet, "/?"+strings.Repeat("x=1&", 1000), nil)
	var e *errs.Error
	require.ErrorAs(t, newQuery(r).Err(), &e)
	require.Contains(t, e.Detail, "takes no parameters")
	require.Len(t, e.Fields, 20, "an answer stays short")
}
