package envelope

import (
	"bytes"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
)

// FuzzDepth checks that scanning valid JSON finds the same depth as a decoder.
func FuzzDepth(f *testing.F) {
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
		require.Equal(t, depthOf(t, value) > maxDepth, tooDeep(value))
	})
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
