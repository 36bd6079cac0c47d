package input_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/input"
)

func TestCanonical(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		`{ "b": 1.0, "a": [ 1e2, "\u0041" ] }`: `{"a":[100,"A"],"b":1}`,
		`{"a":1.10, "a": 2}`:                   `{"a":1.10,"a":2}`,
		`{"a":`:                                `{"a":`,
		"url=x":                                "url=x",
		"":                                     "",
	} {
		data := []byte(given)
		require.Equal(t, want, string(input.Canonical(data)), given)
		require.Equal(t, given, string(data), "the argument stays as it is")
	}
	require.Nil(t, input.Canonical(nil))
}
