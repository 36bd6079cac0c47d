package envelope

import (
	"bytes"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
)

// FuzzScan: scanning valid JSON finds what a decoder finds.
func FuzzScan(f *testing.F) {
	for _, text := range []string{
		`{}`, `[]`, ` { } `, `{"a":1}`, `{"a" : [1 , "]" , {"b\"}":null}] , "\u0061b" : -1.5e+10 }`,
		"{\r\n\t\"x\":true,\"y\":\"\\\\\",\"z\":\"\\\\\\\"\"}", `[1,2 , [ ] ,{"":false}]`, `"x"`, `[[[[[[]]]]]]`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		require.NotPanics(t, func() { tooDeep(text) })
		value := jsontext.Value(bytes.Trim(text, " \t\r\n"))
		if !value.IsValid() {
			return
		}
		if value.Kind() == '{' {
			requireMembers(t, value)
		}
		require.Equal(t, len(value), valueEnd(value, 0))
		require.Equal(t, depthOf(t, value) > maxDepth, tooDeep(value))
	})
}

func requireMembers(t *testing.T, object jsontext.Value) {
	t.Helper()
	dec := decoderInside(t, object)
	for name, value := range members(object) {
		token, err := dec.ReadToken()
		require.NoError(t, err)
		require.Equal(t, token.String(), string(name))
		want, err := dec.ReadValue()
		require.NoError(t, err)
		require.Equal(t, string(want), string(value))
	}
	require.Equal(t, jsontext.KindEndObject, dec.PeekKind())
}

func decoderInside(t *testing.T, value jsontext.Value) *jsontext.Decoder {
	t.Helper()
	dec := jsontext.NewDecoder(bytes.NewReader(value))
	_, err := dec.ReadToken()
	require.NoError(t, err)
	return dec
}

func depthOf(t *testing.T, value jsontext.Value) int {
	t.Helper()
	dec, deepest := jsontext.NewDecoder(bytes.NewReader(value)), 0
	for dec.InputOffset() < int64(len(value)) {
		_, err := dec.ReadToken()
		require.NoError(t, err)
		deepest = max(deepest, dec.StackDepth())
	}
	return deepest
}

// TestMembersStopsEarly: iteration ends when the loop does.
func TestMembersStopsEarly(t *testing.T) {
	t.Parallel()
	seen := 0
	for range members([]byte(`{"a":1,"b":2}`)) {
		seen++
		break
	}
	require.Equal(t, 1, seen)
}
