package input_test

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/input"
)

func TestClip(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ in, want string }{
		"short text stays":               {"abc", "abc"},
		"64 characters stay":             {strings.Repeat("é", 64), strings.Repeat("é", 64)},
		"the 65th is cut":                {strings.Repeat("a", 65), strings.Repeat("a", 64) + "…"},
		"a cut is never inside a rune":   {strings.Repeat("a", 63) + "éé", strings.Repeat("a", 63) + "é…"},
		"bytes that are no text are cut": {strings.Repeat("\xff", 65), strings.Repeat("\xff", 64) + "…"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, input.Clip(c.in))
		})
	}
	require.Equal(t, `"a\nb"`, input.Quote("a\nb"))
	require.Equal(t, `"`+strings.Repeat("a", 64)+`…"`, input.Quote(strings.Repeat("a", 1<<20)))
}

func TestField(t *testing.T) {
	t.Parallel()
	for pointer, want := range map[string]string{
		"":                               "the document",
		"/level":                         "level",
		"/agents/3/level":                "agents[3].level",
		"/0/a":                           "0.a",
		"/a~1b~0c~01":                    "a/b~c~1",
		"/" + strings.Repeat("k", 99):    strings.Repeat("k", 64) + "…",
		"/" + strings.Repeat("k", 1<<20): strings.Repeat("k", 64) + "…",
	} {
		require.Equal(t, want, input.Field(pointer))
	}
	require.Less(t, len(input.Field(strings.Repeat("/"+strings.Repeat("é", 200), 64))), 500)
}

func TestPointer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ in, want string }{
		"the document":                 {"", ""},
		"an ordinary pointer":          {"/agents/3/a~1b", "/agents/3/a~1b"},
		"many short names":             {strings.Repeat("/abcd", 100), strings.Repeat("/abcd", 100)},
		"the longest name":             {"/a/" + strings.Repeat("k", input.MaxName), "/a/" + strings.Repeat("k", input.MaxName)},
		"a name that is longer":        {"/a/" + strings.Repeat("k", input.MaxName+1) + "/b", "/a/" + strings.Repeat("k", 64) + "…/b"},
		"an escape is not cut in half": {"/" + strings.Repeat("k", 63) + strings.Repeat("~1", 200), "/" + strings.Repeat("k", 63) + "…"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, input.Pointer(c.in))
		})
	}
	deep := input.Pointer(strings.Repeat("/"+strings.Repeat("é", 128), 64))
	require.Less(t, len(deep), 1500)
	require.True(t, utf8.ValidString(deep))
}

func TestEscape(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"": "", "a": "a", "a/b": "a~1b", "~": "~0", "~1/": "~01~1"} {
		require.Equal(t, want, input.Escape(name))
		require.Equal(t, input.Field("/x/"+want), "x."+name)
	}
}

func TestDuration(t *testing.T) {
	t.Parallel()
	for want, d := range map[string]time.Duration{
		"0s": 0, "100ms": 100 * time.Millisecond, "1m": time.Minute, "1m30s": 90 * time.Second,
		"720h": 720 * time.Hour, "1h1m": 61 * time.Minute, "10m": 10 * time.Minute, "1h0m10s": time.Hour + 10*time.Second,
	} {
		require.Equal(t, want, input.Duration(d))
	}
}

func TestClipBytesKeepsWholeCharacters(t *testing.T) {
	t.Parallel()
	require.Equal(t, "aé", input.ClipBytes("aé", 3))
	require.Equal(t, "a…", input.ClipBytes("aéb", 2))
	require.Equal(t, "aé…", input.ClipBytes("aéb", 3))
}

func TestSplitRune(t *testing.T) {
	t.Parallel()
	for text, rest := range map[string]string{
		"": "", "a": "", "aé": "", "a\xc3": "\xc3", "a\xf0\x9f\x98": "\xf0\x9f\x98", "\xe2\x82": "\xe2\x82", "a\x80": "", "\x80\x80\x80\x80": "",
	} {
		complete, end := input.SplitRune([]byte(text))
		require.Equal(t, rest, string(end), "%q", text)
		require.Equal(t, text, string(complete)+string(end))
	}
}

// TestRespell: an API spells the members of a core operation as its own requests do, also at the beginning of sentences.
func TestRespell(t *testing.T) {
	t.Parallel()
	names := map[string]string{"/delay_ms": "/delayMs", "/task/capabilities/0": "/intent"}
	for _, c := range []struct{ pointer, detail, wantPointer, want string }{
		{"/delay_ms", "delay_ms must be 1 to 5", "/payload/delayMs", "payload.delayMs must be 1 to 5"},
		{"/task/capabilities/0", "capabilities[0] must be text", "/payload/intent", "payload.intent must be text"},
		{"/task/capabilities/01", "task.capabilities[01] is wrong", "/payload/task/capabilities/01", "payload.task.capabilities[01] is wrong"},
		{"/delay_ms", "the value of delay_ms is wrong", "/payload/delayMs", "the value of delay_ms is wrong"},
		{"", "the document is wrong", "/payload", "payload is wrong"},
	} {
		core := input.Violated(c.pointer, "rule", "%s", c.detail)
		var e *errs.Error
		require.ErrorAs(t, input.Respell(core, "/payload", names), &e)
		require.Equal(t, []errs.Field{{Code: errs.InvalidRequest, Pointer: c.wantPointer, Rule: "rule", Detail: c.want}}, e.Fields)
		require.Equal(t, c.want, e.Detail)
		require.Equal(t, c.pointer, errs.From(core).Fields[0].Pointer, "the error of the core does not change")
	}
	var v errs.Violations
	v.Add(errs.Conflict, "/a", "rule", "a is wrong")
	v.Add(errs.Conflict, "/b", "rule", "b is wrong")
	e := errs.From(input.Respell(v.Err(), "", map[string]string{"/a": "/x"}))
	require.Equal(t, []any{errs.Conflict, "x is wrong", "b is wrong"}, []any{e.Code, e.Detail, e.Fields[1].Detail})
	require.NoError(t, input.Respell(nil, "/payload", names))
	broken := errors.New("broken")
	require.Equal(t, broken, input.Respell(broken, "/payload", names))
}
