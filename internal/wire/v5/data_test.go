package v5_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	v5 "comet/internal/wire/v5"
	"comet/internal/wire/v5/codes"
)

// pairs writes the pairs of DATA with their raw values.
func pairs(d v5.Data) string {
	var all []string
	for p := range d.Pairs() {
		if p.Flag {
			all = append(all, p.Key)
			continue
		}
		all = append(all, p.Key+"→"+p.Raw())
	}
	return strings.Join(all, " / ")
}

// TestPairs: DATA is parsed leniently.
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

// TestGet: Get returns the first pair of a key, without the quotes around its value.
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

// TestList: elements are separated by commas, each with its own quotes.
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

// TestCut: Cut removes a pair at any position, and leaves the others unchanged.
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

// TestCall tests call= and params= (§5.2).
func TestCall(t *testing.T) {
	t.Parallel()
	type params [][2]string
	for data, want := range map[string]struct {
		capability string
		params     params
	}{
		`call=web_search;params=query:"AI, or ""so"" it; seems",max:3`: {"web_search", params{{"query", `"AI, or ""so"" it; seems"`}, {"max", "3"}}},
		`call=x;params="a:1,b:2"`:                                      {"x", params{{"a", "1"}, {"b", "2"}}},
		`call=x;params=main.py,,:`:                                     {"x", params{{"main.py", ""}, {"", ""}}},
		"call=web_search;query=AI":                                     {"web_search", nil},
		"answer=json":                                                  {"", nil},
		"call":                                                         {"", nil},
		"-":                                                            {"", nil},
	} {
		d := v5.Data(data)
		require.Equal(t, want.capability, d.Call(), data)
		var got params
		for name, value := range d.Params() {
			got = append(got, [2]string{name, value})
		}
		require.Equal(t, want.params, got, data)
	}
	for range v5.Data("params=a:1,b:2;c=3").Params() {
		break // the iteration can end early
	}
}

// TestIsReserved tests the keys that are no arguments of a call.
func TestIsReserved(t *testing.T) {
	t.Parallel()
	d := v5.Data("call=x;retry=1;max=2;fallback=W2;fallback_from=W1;reason=E31;pid=M1;justify=deep;params=a:1;y=z")
	for pair := range d.Pairs() {
		require.Equal(t, pair.Key != "y", d.IsReserved(pair.Key), pair.Key)
	}
	require.False(t, v5.Data("call=x;max=3").IsReserved("max"), "without retry it is an argument")
}

// TestRefs parses and writes the references of §6.3.
func TestRefs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]v5.Ref{
		"#REF:T1:S":      {Task: v5.NewTask(1), Field: "S"},
		"#REF:T41:raw":   {Task: v5.NewTask(41), Field: "raw"},
		"#REF:T1":        {Task: v5.NewTask(1)},
		"#REF:id":        {Field: "id"},
		"#REF:T1000":     {Field: "T1000"},
		"#CTX:key":       {Context: true, Field: "key"},
		"#CTX:clé.a/b-c": {Context: true, Field: "clé.a/b-c"},
		"#MSG:M3":        {Number: 3},
		"#MSG:M9999":     {Number: 9999},
	} {
		require.True(t, v5.IsRef(text))
		r, err := v5.ParseRef(text)
		require.NoError(t, err, text)
		require.Equal(t, want, r, text)
		require.Equal(t, text, r.String())
	}
	for _, text := range []string{
		"", "x", "#REF:", "#REF:T1:", "#REF::raw", "#REF:T1:a:b", "#REF:x:y", "#REF:a b", "#REF:T1:a,b", `#REF:T1:"a"`, "#REF:T1:a|b", "#REF:T1:a\xff",
		"#CTX:", "#CTX:a:b", "#CTX:a=b", "#CTX:a;b", "#CTX:#a", "#MSG:", "#MSG:3", "#MSG:M0", "#MSG:M10000", "#ref:T1", "see #REF:T1:raw",
	} {
		_, err := v5.ParseRef(text)
		var e *v5.Error
		require.ErrorAs(t, err, &e, text)
		require.Equal(t, codes.E43, e.Code())
	}
	require.False(t, v5.IsRef("see #REF:T1:raw"))
	for _, invalid := range []v5.Ref{
		{}, {Field: "T1"}, {Context: true}, {Context: true, Field: "a b"},
		{Number: 10_000}, {Number: 1, Field: "x"}, {Task: v5.NewTask(-1), Field: "x"},
	} {
		require.Empty(t, invalid.String())
	}
}

// TestRetry parses and writes the pairs of a repeated request (§8.2).
func TestRetry(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]v5.Retry{
		"retry=1;max=2":                    {Attempt: 1, Max: 2},
		"retry=1;max=2;fallback=W2":        {Attempt: 1, Max: 2, Fallback: v5.WorkerAddress(2)},
		"fallback_from=W1;reason=E31":      {From: v5.WorkerAddress(1), Reason: "E31"},
		"reason=specialized":               {Reason: "specialized"},
		"retry=9999":                       {Attempt: 9999},
		"retry=0;max=2;fallback_from=W1.1": {Max: 2, From: v5.WorkerAddress(100)},
	} {
		r, err := v5.Data(data).Retry()
		require.NoError(t, err, data)
		require.Equal(t, want, r, data)
		written, err := new(v5.Writer).Retry(r).Data()
		require.NoError(t, err)
		require.Equal(t, v5.Data(data), written)
	}
	r, err := v5.Data("call=top;max=10000").Retry()
	require.NoError(t, err, "without retry max is an argument")
	require.Zero(t, r)
	for data, code := range map[string]codes.Code{
		"retry=": codes.E10, "retry": codes.E10, "retry=x": codes.E10, "retry=-1": codes.E10, "retry=+1": codes.E10, "retry=10000": codes.E10, "retry=1.5": codes.E10,
		"retry=1;max=x": codes.E10, "fallback=V4": codes.E13, "fallback=W*": codes.E13, "fallback_from=": codes.E13, "fallback_from=*": codes.E13,
	} {
		r, err := v5.Data(data).Retry()
		var e *v5.Error
		require.ErrorAs(t, err, &e, data)
		require.Equal(t, code, e.Code(), data)
		require.Zero(t, r)
	}
}

// TestParent: pid=M5 (§10.2).
func TestParent(t *testing.T) {
	t.Parallel()
	n, err := v5.Data("pid=M5;result=x").Parent()
	require.NoError(t, err)
	require.Equal(t, 5, n)
	n, err = v5.Data("result=x").Parent()
	require.NoError(t, err)
	require.Zero(t, n)
	for _, bad := range []string{"pid=", "pid", "pid=5", "pid=M0", "pid=M10000", "pid=m5", "pid=M<n"} {
		_, err := v5.Data(bad).Parent()
		var e *v5.Error
		require.ErrorAs(t, err, &e, bad)
		require.Equal(t, codes.E10, e.Code())
		require.Contains(t, e.Error(), "pid in DATA must be")
	}
}
