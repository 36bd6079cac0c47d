package orchestrator

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/models"
)

func TestDigestComparesContent(t *testing.T) {
	t.Parallel()
	digest := func(parameters string) [32]byte {
		return Submission{RequestID: "r", Parameters: json.RawMessage(parameters)}.digest()
	}
	require.Equal(t, digest(`{"a":1,"b":[2]}`), digest(`{ "b": [2.0], "a": 1e0 }`))
	require.NotEqual(t, digest(`{"a":1,"b":[2,3]}`), digest(`{"a":1,"b":[3,2]}`))
	require.Zero(t, Submission{Parameters: json.RawMessage(`{"a":1}`)}.digest(), "without a request id nothing is compared")
}

func TestTransactionDoesNotReadLongParameters(t *testing.T) {
	t.Parallel()
	sub := Submission{RequestID: "r", Parameters: json.RawMessage(`{"a":1}`)}
	sub.requestDigest = sub.digest()
	request := (&operation{}).request(models.Principal{}, sub)
	require.Equal(t, sub.requestDigest, request.Digest)
	sub.Parameters = json.RawMessage(`{"a":2}`)
	require.Equal(t, request, (&operation{}).request(models.Principal{}, sub), "the digest of before the transaction is used")
}
