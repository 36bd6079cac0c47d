package pipe_test

import (
	"errors"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"comet/internal/wire/pipe"
)

// FuzzData: whatever stands in DATA is walked without panic and without a byte that is
// not there; what is written, or else refused, is read as the same.
func FuzzData(f *testing.F) {
	for _, x := range examples(f) {
		if x.kind == "data" {
			f.Add(x.sent, "key", "value", "a", "b")
		}
	}
	f.Add(`a="b;c";d="`, "k", " v;,", `"`, "é|")
	f.Add("token=x;;retry=1;max=2;fallback=W1;agents=W1,W2;pid=M5", "a", ";auth=", "", "-")
	f.Fuzz(func(t *testing.T, data, key, value, first, second string) {
		requireWalkable(t, pipe.Data(data), key)

		text, err := new(pipe.Writer).Text("desc", value).Text("more", data).Data()
		require.NoError(t, err)
		requireSayable(t, text)

		var w pipe.Writer
		w.Add(key, value).List("list", first, second).Params(slices.Values([]pipe.Param{{Name: "p", Value: first}, {Name: "q", Value: second}})).Flag("last")
		written, err := w.Data()
		if err != nil {
			var refused *pipe.Error
			require.ErrorAs(t, err, &refused)
			require.Contains(t, []string{pipe.ReasonOverflow, pipe.ReasonUnsayable}, refused.Reason())
			return
		}
		requireSayable(t, written)
		got, ok := written.Get(key)
		require.True(t, ok)
		require.Equal(t, value, got)
		if key == "list" || key == "params" {
			return // the first of two so named
		}
		list, _ := written.Pair("list")
		require.Equal(t, []string{first, second}, slices.Collect(list.List()))
		require.Equal(t, []pipe.Param{{Name: "p", Value: first}, {Name: "q", Value: second}}, slices.Collect(written.Params()))
		require.Len(t, slices.Collect(written.Pairs()), 4)
		if key != "last" {
			rest, cut, found := written.Cut(key)
			require.True(t, found)
			require.Equal(t, value, cut)
			require.Len(t, slices.Collect(rest.Pairs()), 3)
		}
	})
}

// requireSayable: the line around the DATA is a line, and DATA comes back.
func requireSayable(t *testing.T, d pipe.Data) {
	t.Helper()
	require.LessOrEqual(t, utf8.RuneCountInString(string(d)), pipe.MaxData)
	m, err := pipe.Parse(with(pipe.SegmentData, string(d)))
	require.NoError(t, err)
	require.Equal(t, d, m.Data)
	require.Zero(t, m.Warnings)
}

func requireWalkable(t *testing.T, d pipe.Data, key string) {
	t.Helper()
	seen := 0
	for p := range d.Pairs() {
		seen += len(p.Key) + len(p.Raw)
		require.Contains(t, string(d), p.Key)
		require.Contains(t, p.Raw, p.Value())
		for element := range p.List() {
			require.Contains(t, p.Raw, element)
			if r, err := pipe.ParseRef(element); err == nil {
				again, err := pipe.ParseRef(r.String())
				require.NoError(t, err)
				require.Equal(t, r, again)
			}
		}
	}
	require.LessOrEqual(t, seen, len(d))
	for p := range d.Arguments() {
		require.Contains(t, string(d), p.Name)
	}
	require.LessOrEqual(t, len(d.Call()), len(d))
	rest, _, found := d.Cut(key)
	_, ok := rest.Pair(key)
	require.False(t, found && ok, "%q without %q is %q", d, key, rest)
	if r, err := d.Retry(); err == nil && len(r.Reason) == 0 {
		_, err := new(pipe.Writer).Retry(r).Data()
		require.NoError(t, err)
	}
	_, errParent := d.Parent()
	_, errAgents := d.Agents()
	for _, err := range []error{errParent, errAgents} {
		var refused *pipe.Error
		require.True(t, err == nil || errors.As(err, &refused))
	}
}
