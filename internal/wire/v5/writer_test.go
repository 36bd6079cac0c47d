package v5_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	v5 "comet/internal/wire/v5"
	"comet/internal/wire/v5/codes"
)

// TestWriter: Writer writes what Data reads, with quotes only where they are needed.
func TestWriter(t *testing.T) {
	t.Parallel()
	var w v5.Writer
	data, err := w.Data()
	require.NoError(t, err)
	require.Equal(t, v5.Data("-"), data)

	w.Flag("registered").Add("id", "W3").Number("page", 2).Add("q", "a;b").Add("edge", " a ").Add("eq", "a=b,c").Add("none", "").
		List("caps", "x", "y,z").List("empty").Ref("src", v5.Ref{Task: v5.NewTask(1), Field: "raw"})
	data, err = w.Data()
	require.NoError(t, err)
	require.Equal(t, v5.Data(`registered;id=W3;page=2;q="a;b";edge=" a ";eq=a=b,c;none=;caps=x,"y,z";empty=;src=#REF:T1:raw`), data)
}

// TestNotEncodable: Writer rejects what DATA cannot hold, so that the caller writes a reference.
func TestNotEncodable(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(*v5.Writer){
		"a bar":                 func(w *v5.Writer) { w.Add("k", "a|b") },
		"a >":                   func(w *v5.Writer) { w.Add("k", "a>b") },
		"a double quote":        func(w *v5.Writer) { w.Add("k", `a"b`) },
		"a line break":          func(w *v5.Writer) { w.Add("k", "a\nb") },
		"a control character":   func(w *v5.Writer) { w.Add("k", "a\u0085b") },
		"not UTF-8":             func(w *v5.Writer) { w.Add("k", "a\xff") },
		"what looks like auth":  func(w *v5.Writer) { w.Add("k", "a;auth=S1:00aa:01234567") },
		"the pair auth":         func(w *v5.Writer) { w.Add("auth", "S1:00aa:01234567") },
		"no key":                func(w *v5.Writer) { w.Add("", "a") },
		"the key -":             func(w *v5.Writer) { w.Flag("-") },
		"a key with =":          func(w *v5.Writer) { w.Add("a=b", "c") },
		"a key with a quote":    func(w *v5.Writer) { w.Flag(`a"`) },
		"a key with a space":    func(w *v5.Writer) { w.Flag("a ") },
		"a key with a bar":      func(w *v5.Writer) { w.List("a|", "b") },
		"an empty element":      func(w *v5.Writer) { w.List("a", "b", "") },
		"an element with a bar": func(w *v5.Writer) { w.List("a", "b|", "c") },
		"no reference":          func(w *v5.Writer) { w.Ref("src", v5.Ref{}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := new(v5.Writer).Add("first", "1")
			write(w)
			first, err := w.Data()
			require.Empty(t, first)
			var e *v5.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, codes.E12, e.Code())
			require.Equal(t, codes.ReasonNotEncodable, e.Reason())

			w.Add("k", "fine").Flag("f").List("l", "x").Text("t", "x").Add("bad", "|")
			_, again := w.Data()
			require.Equal(t, err, again, "the first error is kept")
		})
	}
}

// TestOverflow: Writer rejects long DATA and never truncates it.
func TestOverflow(t *testing.T) {
	t.Parallel()
	data, err := new(v5.Writer).Add("k", strings.Repeat("é", v5.MaxData-2)).Data()
	require.NoError(t, err)
	require.Equal(t, v5.MaxData, utf8.RuneCountInString(string(data)))
	_, err = new(v5.Writer).Add("k", strings.Repeat("é", v5.MaxData-1)).Data()
	var e *v5.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, codes.ReasonOverflow, e.Reason())
}

// TestText: Text replaces and truncates, and is never rejected.
func TestText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"plain":                     "plain",
		"a|b>c\"d\"\n\te\x00\u0085": "a¦b›c'd'  e",
		" spaces ":                  "spaces",
		"not \xff UTF-8":            "not \uFFFD UTF-8",
		"a;auth=S1:00aa:01234567":   "a; auth=S1:00aa:01234567",
		"":                          "",
	} {
		data, err := new(v5.Writer).Text("desc", text).Data()
		require.NoError(t, err, text)
		got, ok := data.Get("desc")
		require.True(t, ok)
		require.Equal(t, want, got)
	}
	w := new(v5.Writer).Text("desc", strings.Repeat("é;", 500))
	data, err := w.Data()
	require.NoError(t, err)
	require.LessOrEqual(t, utf8.RuneCountInString(string(data)), v5.MaxData)
	require.True(t, strings.HasSuffix(string(data), `…"`))
	data2, err := w.Text("more", "x").Data()
	require.NoError(t, err)
	require.Equal(t, data, data2, "a pair that does not fit is omitted")
}

func TestQuoted(t *testing.T) {
	t.Parallel()
	data, err := new(v5.Writer).Quoted("a", "5").Number("b", 5).Quoted("c", "").Data()
	require.NoError(t, err)
	require.Equal(t, v5.Data(`a="5";b=5;c=""`), data)
	for key, quoted := range map[string]bool{"a": true, "b": false, "c": true} {
		p, ok := data.Pair(key)
		require.True(t, ok)
		require.Equal(t, quoted, p.IsQuoted(), key)
	}
	_, err = new(v5.Writer).Quoted("a", `say "hi"`).Data()
	require.Error(t, err)
}
