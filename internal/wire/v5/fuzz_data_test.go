package v5_test

import (
	"errors"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"comet/internal/wire/v5"
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
		requireWalkable(t, v5.Data(data), key)

		text, err := new(v5.Writer).Text("desc", value).Text("more", data).Data()
		require.NoError(t, err)
		requireSayable(t, text)

		var w v5.Writer
		w.Add(key, value).List("list", first, second).Params(slices.Values([]v5.Param{{Name: "p", Value: first}, {Name: "q", Value: second}})).Flag("last")
		written, err := w.Data()
		if err != nil {
			var refused *v5.Error
			require.ErrorAs(t, err, &refused)
			require.Contains(t, []string{v5.ReasonOverflow, v5.ReasonUnsayable}, refused.Reason())
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
		require.Equal(t, []v5.Param{{Name: "p", Value: first}, {Name: "q", Value: second}}, slices.Collect(written.Params()))
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
func requireSayable(t *testing.T, d v5.Data) {
	t.Helper()
	require.LessOrEqual(t, utf8.RuneCountInString(string(d)), v5.MaxData)
	m, err := v5.Parse(with(v5.SegmentData, string(d)))
	require.NoError(t, err)
	require.Equal(t, d, m.Data)
	require.Zero(t, m.Warnings)
}

func requireWalkable(t *testing.T, d v5.Data, key string) {
	t.Helper()
	seen := 0
	for p := range d.Pairs() {
		seen += len(p.Key) + len(p.Raw)
		require.Contains(t, string(d), p.Key)
		require.Contains(t, p.Raw, p.Value())
		for element := range p.List() {
			require.Contains(t, p.Raw, element)
			if r, err := v5.ParseRef(element); err == nil {
				again, err := v5.ParseRef(r.String())
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
		_, err := new(v5.Writer).Retry(r).Data()
		require.NoError(t, err)
	}
	_, errParent := d.Parent()
	_, errAgents := d.Agents()
	for _, err := range []error{errParent, errAgents} {
		var refused *v5.Error
		require.True(t, err == nil || errors.As(err, &refused))
	}
}
