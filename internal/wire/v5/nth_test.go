package v5_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/wire/v5"
)

func TestNth(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 99, 100, 198, 199, 9900, 9801, 98_000} {
		a := v5.NthWorker(n)
		got, ok := a.Nth()
		require.True(t, ok, a)
		require.Equal(t, n, got, a)
		again, err := v5.ParseAddress(a.String())
		require.NoError(t, err)
		require.Equal(t, a, again)
	}
	for _, text := range []string{"O1", "W1.x", "W1.01", "W1.0", "User", "*", "W*", "G3"} {
		a, err := v5.ParseAddress(text)
		require.NoError(t, err)
		_, ok := a.Nth()
		require.False(t, ok, text)
	}
}

func TestQuoted(t *testing.T) {
	t.Parallel()
	data, err := new(v5.Writer).Quoted("a", "5").Number("b", 5).Quoted("c", "").Data()
	require.NoError(t, err)
	require.Equal(t, v5.Data(`a="5";b=5;c=""`), data)
	for key, quoted := range map[string]bool{"a": true, "b": false, "c": true} {
		p, ok := data.Pair(key)
		require.True(t, ok)
		require.Equal(t, quoted, p.Quoted(), key)
	}
	_, err = new(v5.Writer).Quoted("a", `say "hi"`).Data()
	require.Error(t, err)
	d := v5.Data("call=x;max=3;query=a")
	require.True(t, d.Own("call"))
	require.False(t, d.Own("max"), "without retry it is an argument")
	require.True(t, v5.Data("retry=1;max=3").Own("max"))
}
