package v5_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/wire/v5"
)

// pairs spells the pairs of DATA with their raw values.
func pairs(d v5.Data) string {
	var all []string
	for p := range d.Pairs() {
		if p.Flag {
			all = append(all, p.Key)
			continue
		}
		all = append(all, p.Key+"→"+p.Raw)
	}
	return strings.Join(all, " / ")
}

// TestPairs: DATA is read leniently.
func TestPairs(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]string{
		"a=1;b=2":              "a→1 / b→2",
		"a=1;b=2;":             "a→1 / b→2",
		"registered;id=W3":     "registered / id→W3",
		"just some words":      "just some words",
		"a=b=c":                "a→b=c",
		"a=":                   "a→",
		"=b":                   "→b",
		"a=1;a=2":              "a→1 / a→2",
		" a = 1 ; b = 2 ":      "a→1 / b→2",
		";;a=1;; ;b":           "a→1 / b",
		"-":                    "",
		" - ":                  "",
		"a;-":                  "a",
		"a=-":                  "a→-",
		"":                     "",
		`q="a;b=c";d=1`:        `q→"a;b=c" / d→1`,
		`q=x"a;b"y;d`:          `q→x"a;b"y / d`,
		`"a;b"`:                `a;b`,
		`"a=b"`:                `a=b`,
		`"a=b"=c`:              `"a=b"→c`,
		`size=5";x=1`:          `size→5" / x→1`,
		`a="x;y";size=5";z=1`:  `a→"x;y" / size→5" / z→1`,
		`a=5";b=6";c=7`:        `a→5";b=6" / c→7`,
		`"a;b"c"`:              `"a;b"c"`,
		`a="";b`:               `a→"" / b`,
		"question=d'où?;é=ñ;x": "question→d'où? / é→ñ / x",
	} {
		require.Equal(t, want, pairs(v5.Data(data)), data)
	}
}

// TestGet: the first pair of a key, without the quotes around its value.
func TestGet(t *testing.T) {
	t.Parallel()
	d := v5.Data(`a=1;a=2;flag;q="x;y";p=k:"v";two="a" "b";empty=;none=""`)
	for key, want := range map[string]string{"a": "1", "flag": "", "q": "x;y", "p": `k:"v"`, "two": `"a" "b"`, "empty": "", "none": ""} {
		value, ok := d.Get(key)
		require.True(t, ok, key)
		require.Equal(t, want, value, key)
	}
	for _, key := range []string{"A", "b", "", "x", "k"} {
		_, ok := d.Get(key)
		require.False(t, ok, key)
	}
	p, ok := d.Pair("flag")
	require.True(t, ok && p.Flag)
	for range d.Pairs() {
		break // a walk may end early
	}
}

// TestList: elements between commas, each with its own quotes.
func TestList(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string][]string{
		"W1,W2,W3": {"W1", "W2", "W3"}, "one": {"one"}, "": nil, ",": nil, "a,,b,": {"a", "b"}, " a , b ": {"a", "b"},
		`"a,b",c`: {"a,b", "c"}, `"a,b"`: {"a,b"}, `5",6`: {`5"`, "6"},
	} {
		p, ok := v5.Data("caps=" + raw).Pair("caps")
		require.True(t, ok)
		require.Equal(t, want, slices.Collect(p.List()), raw)
	}
	p, _ := v5.Data("caps=a,b").Pair("caps")
	for first := range p.List() {
		require.Equal(t, "a", first)
		break
	}
}

// TestCut takes a pair out, wherever it stands, and leaves the others as they are.
func TestCut(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]struct {
		rest  v5.Data
		value string
	}{
		"token=s;caps=a":           {"caps=a", "s"},
		"caps=a;token=s":           {"caps=a;", "s"},
		"caps=a;token=s;desc=b":    {"caps=a;desc=b", "s"},
		"token=s":                  {"-", "s"},
		"token=s;":                 {"-", "s"},
		`caps=a; token = "s;t" ;b`: {"caps=a;b", "s;t"},
		"token=s;x;token=t":        {"x;", "s"},
		"token;x":                  {"x", ""},
	} {
		rest, value, found := v5.Data(data).Cut("token")
		require.True(t, found, data)
		require.Equal(t, want.rest, rest, data)
		require.Equal(t, want.value, value, data)
		_, _, found = rest.Cut("token")
		require.False(t, found)
	}
	rest, value, found := v5.Data("caps=a;q=\"token=s\"").Cut("token")
	require.False(t, found)
	require.Empty(t, value)
	require.Equal(t, v5.Data("caps=a;q=\"token=s\""), rest)
}
