package stdio

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDecodeErrorReturnsTheID checks that a client learns which of its requests is invalid.
func TestDecodeErrorReturnsTheID(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"id":7,"method":"ping"}`: "7", `{"id":"a","method":5}`: `"a"`, `{"id":[],"method":"ping"}`: "", `{"id":null}`: "", `[`: "", ``: "",
	} {
		id, mistake := DecodeError([]byte(text))
		require.NotNil(t, mistake)
		require.Equal(t, want, string(id), text)
	}
}
