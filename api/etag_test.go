package api

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
)

func TestEntityTag(t *testing.T) {
	t.Parallel()
	require.Regexp(t, `^"7\.[0-9a-f]{16}"$`, entityTag(7, []byte("x")))
	require.Regexp(t, `^"[0-9a-f]{16}"$`, entityTag(0, []byte("x")))
	require.NotEqual(t, entityTag(7, []byte("x")), entityTag(7, []byte("y")))
	require.Equal(t, `"ef46db3751d8e999"`, entityTag(0, nil), "XXH64 of nothing")
}

func TestParseTags(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]struct {
		tags     []tagRef
		star, ok bool
	}{
		`"a"`:                   {[]tagRef{{false, "a"}}, false, true},
		`W/"a"`:                 {[]tagRef{{true, "a"}}, false, true},
		` "a" , W/"b",,"c,d" `:  {[]tagRef{{false, "a"}, {true, "b"}, {false, "c,d"}}, false, true},
		`""`:                    {[]tagRef{{false, ""}}, false, true},
		`"é"`:                   {[]tagRef{{false, "é"}}, false, true},
		` * `:                   {nil, true, true},
		``:                      {},
		`,`:                     {},
		`a`:                     {},
		`"a`:                    {},
		`a"`:                    {},
		`w/"a"`:                 {},
		`W/ "a"`:                {},
		`"a" "b"`:               {},
		`"a", *`:                {},
		`*, "a"`:                {},
		"\"a b\"":               {},
		"\"a\x7f\"":             {},
		`"a", b`:                {},
		`'a'`:                   {},
		`"a";q=1`:               {},
		strings.Repeat(`"`, 7):  {},
		strings.Repeat(`,`, 99): {},
	} {
		c, ok := parseCondition([]string{line})
		require.Equal(t, want.ok, ok, line)
		require.Equal(t, want.star, c.star, line)
		require.Equal(t, want.tags, c.tags, line)
	}
	c, ok := parseCondition([]string{`"a"`, `"b"`})
	require.True(t, ok)
	require.Len(t, c.tags, 2, "several header values are one list")
}

func TestIfNoneMatch(t *testing.T) {
	t.Parallel()
	d := newTestServer(t, testServerOptions{})
	small, large, list := d.do("GET", "/things/a", "").Header.Get("ETag"), d.do("GET", "/things/large", "").Header.Get("ETag"), d.do("GET", "/things", "").Header.Get("ETag")
	require.Regexp(t, `^"3\.[0-9a-f]{16}"$`, small)
	require.Regexp(t, `^"[0-9a-f]{16}"$`, list)
	zipped := strings.TrimSuffix(large, `"`) + `-gzip"`

	for name, c := range map[string]struct {
		path, header string
		status       int
		tag          string
	}{
		"the tag itself":                       {"/things/a", small, 304, small},
		"the tag of a list":                    {"/things", list, 304, list},
		"a weak form of it":                    {"/things/a", "W/" + small, 304, small},
		"one of several":                       {"/things/a", `"x", ` + small + `, "y"`, 304, small},
		"anything":                             {"/things/a", "*", 304, small},
		"the tag of the compressed form":       {"/things/large", zipped, 304, zipped},
		"another tag":                          {"/things/a", `"x"`, 200, small},
		"the same version with another body":   {"/things/a", `"3.0000000000000000"`, 200, small},
		"the same hash with another version":   {"/things/a", strings.Replace(small, "3.", "4.", 1), 200, small},
		"a header that is no list of tags":     {"/things/a", strings.Trim(small, `"`), 200, small},
		"the tag of another thing":             {"/things/large", small, 200, large},
		"no quotes and a star among the words": {"/things/a", "* x", 200, small},
	} {
		for _, method := range []string{"GET", "HEAD"} {
			t.Run(method+" with "+name, func(t *testing.T) {
				t.Parallel()
				a := d.do(method, c.path, "", "If-None-Match", c.header)
				require.Equal(t, c.status, a.StatusCode)
				require.Equal(t, c.tag, a.Header.Get("ETag"))
				require.Equal(t, "private, no-cache", a.Header.Get("Cache-Control"))
				require.Contains(t, a.Header.Get("Vary"), "Accept-Encoding")
				if c.status == 304 || method == "HEAD" {
					require.Empty(t, a.body)
				}
			})
		}
	}
	t.Run("several header values are one list", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, 304, d.do("GET", "/things/a", "", "If-None-Match", `"x"`, "If-None-Match", small).StatusCode)
	})
	t.Run("a compressed response and its revalidation", func(t *testing.T) {
		t.Parallel()
		a := d.do("GET", "/things/large", "", "Accept-Encoding", "gzip")
		require.Equal(t, zipped, a.Header.Get("ETag"))
		a = d.do("GET", "/things/large", "", "Accept-Encoding", "gzip", "If-None-Match", a.Header.Get("ETag"))
		require.Equal(t, 304, a.StatusCode)
		require.Equal(t, zipped, a.Header.Get("ETag"))
		require.Empty(t, a.Header.Get("Content-Encoding"))
		require.Equal(t, 304, d.do("GET", "/things/large", "", "Accept-Encoding", "gzip", "If-None-Match", large).StatusCode)
	})
}

func TestPreconditions(t *testing.T) {
	t.Parallel()
	d := newTestServer(t, testServerOptions{})
	tag := d.do("GET", "/things/large", "").Header.Get("ETag")
	zipped := strings.TrimSuffix(tag, `"`) + `-gzip"`

	for name, c := range map[string]struct {
		header, value string
		failed        errs.Code
	}{
		"no header":                               {"If-Match", "", ""},
		"the tag":                                 {"If-Match", tag, ""},
		"the tag of the compressed form":          {"If-Match", zipped, ""},
		"the version with another hash":           {"If-Match", `"3.whatever"`, ""},
		"one of several":                          {"If-Match", `"1.a", "3.b"`, ""},
		"anything":                                {"If-Match", `*`, ""},
		"an older version":                        {"If-Match", strings.Replace(tag, "3.", "2.", 1), errs.PreconditionFailed},
		"a later version":                         {"If-Match", `"33.a"`, errs.PreconditionFailed},
		"a weak tag":                              {"If-Match", "W/" + tag, errs.PreconditionFailed},
		"a tag without a version":                 {"If-Match", `"3"`, errs.PreconditionFailed},
		"a tag that is not ours":                  {"If-Match", `"abc.def"`, errs.PreconditionFailed},
		"a version of 20 digits":                  {"If-Match", `"99999999999999999999.a"`, errs.PreconditionFailed},
		"an empty tag":                            {"If-Match", `""`, errs.PreconditionFailed},
		"no quotes":                               {"If-Match", strings.Trim(tag, `"`), errs.InvalidHeader},
		"one half of the quotes":                  {"If-Match", `"3.a`, errs.InvalidHeader},
		"a star among tags":                       {"If-Match", `*, "3.a"`, errs.InvalidHeader},
		"only a comma":                            {"If-Match", `,`, errs.InvalidHeader},
		"If-None-Match with another version":      {"If-None-Match", `"2.a"`, ""},
		"If-None-Match with this version":         {"If-None-Match", tag, errs.PreconditionFailed},
		"If-None-Match with this version, weakly": {"If-None-Match", "W/" + tag, errs.PreconditionFailed},
		"If-None-Match with anything":             {"If-None-Match", `*`, errs.PreconditionFailed},
		"If-None-Match without quotes":            {"If-None-Match", `x`, errs.InvalidHeader},
	} {
		for _, method := range []string{"PATCH", "DELETE"} {
			t.Run(method+" with "+name, func(t *testing.T) {
				t.Parallel()
				body := ""
				if method == "PATCH" {
					body = `{"name":"x"}`
				}
				a := d.do(method, "/things/large", body, c.header, c.value)
				switch c.failed {
				case "":
					require.Equal(t, map[string]int{"PATCH": 200, "DELETE": 204}[method], a.StatusCode, a.body)
					if method == "PATCH" {
						require.Regexp(t, `^"4\.`, a.Header.Get("ETag"), "the tag of the new version")
					}
				case errs.PreconditionFailed:
					requireField(t, a.problem(t, 412, errs.PreconditionFailed), errs.Field{Header: c.header, Rule: "entity_tag"})
					var meta struct {
						Current int64 `json:"current_version"`
					}
					require.NoError(t, json.Unmarshal([]byte(a.body), &meta))
					require.EqualValues(t, 3, meta.Current)
				default:
					requireField(t, a.problem(t, 400, errs.InvalidHeader), errs.Field{Header: c.header, Rule: "entity_tag", Detail: "double quotes"})
				}
			})
		}
	}
}

func TestCompression(t *testing.T) {
	t.Parallel()
	d := newTestServer(t, testServerOptions{})

	t.Run("a large response is compressed and has its own tag", func(t *testing.T) {
		t.Parallel()
		plain := d.do("GET", "/things/large", "")
		zipped := d.do("GET", "/things/large", "", "Accept-Encoding", "gzip, br;q=0.5")
		require.Equal(t, "gzip", zipped.Header.Get("Content-Encoding"))
		require.Equal(t, strings.TrimSuffix(plain.Header.Get("ETag"), `"`)+`-gzip"`, zipped.Header.Get("ETag"))
		require.Less(t, len(zipped.body), len(plain.body)/4)
		require.Equal(t, plain.body, zipped.plain(t).body)
		require.EqualValues(t, len(plain.body), plain.ContentLength)
		require.Equal(t, "application/json", zipped.Header.Get("Content-Type"))
	})
	t.Run("a small response is not", func(t *testing.T) {
		t.Parallel()
		a := d.do("GET", "/things/a", "", "Accept-Encoding", "gzip")
		require.Empty(t, a.Header.Get("Content-Encoding"))
		require.JSONEq(t, `{"id":"a"}`, a.body)
		require.EqualValues(t, len(a.body), a.ContentLength)
	})
	t.Run("a client that does not accept gzip gets the identity coding", func(t *testing.T) {
		t.Parallel()
		for _, accept := range []string{"", "identity", "gzip;q=0", "zstd", "br"} {
			require.Empty(t, d.do("GET", "/things/large", "", "Accept-Encoding", accept).Header.Get("Content-Encoding"), accept)
		}
	})
	t.Run("a problem document is compressed, too", func(t *testing.T) {
		t.Parallel()
		a := d.do("GET", "/things/a/"+strings.Repeat("x", 3000), "", "Accept-Encoding", "gzip").plain(t)
		doc := a.problem(t, 404, errs.NotFound)
		require.Less(t, len(doc.Instance), 520, "a path is clipped")
	})
}

func TestStoredResponses(t *testing.T) {
	t.Parallel()
	d := newTestServer(t, testServerOptions{})
	a := d.do("GET", "/things", "")
	require.Equal(t, `{"a":[],"b":1,"c":"<>&"}`, a.body, "members of maps are sorted and nothing is escaped without need")
	require.Equal(t, "application/json", a.Header.Get("Content-Type"))
	require.Equal(t, "nosniff", a.Header.Get("X-Content-Type-Options"))

	a = d.do("POST", "/things", `{"id":"a","name":"A","level":3,"frequency_hz":444}`)
	require.Equal(t, 201, a.StatusCode, a.body)
	require.Regexp(t, `^"1\.`, a.Header.Get("ETag"))

	head := d.do("HEAD", "/things/a", "")
	require.Equal(t, 200, head.StatusCode)
	require.Equal(t, "10", head.Header.Get("Content-Length"))
	require.Empty(t, head.body)
}

// FuzzParseCondition checks that what is read as a list of tags reads the same when it
// is written again.
func FuzzParseCondition(f *testing.F) {
	for _, seed := range []string{`"a"`, `W/"a", "b"`, `*`, `"a" "b"`, `W/`, `"`, `,"",`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		c, ok := parseCondition([]string{line})
		if !ok || c.star {
			require.Empty(t, c.tags)
			return
		}
		var written []string
		for _, tag := range c.tags {
			prefix := ""
			if tag.weak {
				prefix = "W/"
			}
			written = append(written, prefix+`"`+tag.opaque+`"`)
		}
		again, ok := parseCondition(written)
		require.True(t, ok)
		require.Equal(t, c.tags, again.tags)
	})
}
