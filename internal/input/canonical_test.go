package input_test

import (
	"math/big"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
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

func TestCanonicalNumbers(t *testing.T) {
	t.Parallel()
	numbers := map[string]bool{} // of the earlier groups
	nines := strings.Repeat("9", 40)
	for _, equal := range [][]string{
		{"1", "1.0", "10e-1", "1e0", "1E+0", "0.1e1", "0.0010e+003"},
		{"0", "-0", "0.000", "0e5", "-0e-999999999999999999999"},
		{"-15e-1", "-1.50", "-1.5"},
		{"1e30", "1000000000000000000000000000000"},
		{"9007199254740992"}, {"9007199254740993", "9007199254740993.0", "900719925474099.3e1"}, {"-9007199254740993"},
		{"1234567890123456789", "1.234567890123456789e18"}, {"1234567890123456700"}, {"1234567890123456800"},
		{"0.1", "1e-1"}, {"0.10000000000000000555", "10000000000000000555e-20"},
		{"1e-400", "0.1E-399"}, {"1e-401"}, {"1.7976931348623157e308"}, {"1e400", "10e399"}, {"1e401"}, {"-1e401"},
		{"1e999999999", "10e999999998"}, {"1e999999998"}, {"1e-999999999"},
		{"1e" + nines}, {"2e" + nines}, {"1e-" + nines}, {"1e" + nines + "9"},
		{nines, nines + "e0"}, {nines + "9"}, {`"1"`},
	} {
		for _, text := range equal {
			require.Equal(t, canonical(equal[0]), canonical(text), text)
			require.NotContains(t, numbers, canonical(text), text)
		}
		numbers[canonical(equal[0])] = true
	}
	require.Equal(t, `{"a":[9007199254740993e0,"1.0",1],"b":-0.5}`, canonical(`{"b": -5e-1, "a": [9007199254740993, "1.0", 1.0]}`))
}

func canonical(text string) string { return string(input.Canonical([]byte(text))) }

// FuzzCanonicalNumbers checks that two numbers have the same canonical form if and only if their
// values are equal, and that the canonical form has the same value and canonical form.
func FuzzCanonicalNumbers(f *testing.F) {
	f.Add("9007199254740993", "9007199254740992")
	f.Add("1e-400", "0")
	f.Add("1.0", "10e-1")
	f.Add("-0", "0e7")
	f.Add("1e999999999999999999999", "1.0e999999999999999999999")
	f.Fuzz(func(t *testing.T, a, b string) {
		x, y := exactValue(a), exactValue(b)
		if x == nil || y == nil {
			return
		}
		require.Equal(t, x.Cmp(y) == 0, canonical(a) == canonical(b), "%s and %s", a, b)
		require.Zero(t, x.Cmp(exactValue(canonical(a))), a)
		require.Equal(t, canonical(a), canonical(canonical(a)))
	})
}

// exactValue returns the value of a JSON number, nil for other text and for a long exponent.
func exactValue(text string) *big.Rat {
	_, exponent, _ := strings.Cut(strings.ToLower(text), "e")
	if len(exponent) > 4 || !jsontext.Value(text).IsValid() || jsontext.Value(text).Kind() != '0' {
		return nil
	}
	value, _ := new(big.Rat).SetString(strings.TrimSpace(text))
	return value
}
