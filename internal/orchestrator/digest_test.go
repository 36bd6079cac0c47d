package orchestrator

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDigestComparesContent(t *testing.T) {
	t.Parallel()
	digest := func(parameters string) [32]byte { return Submission{Parameters: json.RawMessage(parameters)}.digest() }
	require.Equal(t, digest(`{"a":1,"b":[2]}`), digest(`{ "b": [2.0], "a": 1e0 }`))
	require.NotEqual(t, digest(`{"a":1,"b":[2,3]}`), digest(`{"a":1,"b":[3,2]}`))
}
