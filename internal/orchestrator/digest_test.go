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
		return Submission{RequestID: "r", Parameters: json.RawMessage(parameters)}.digest(Policy{})
	}
	require.Equal(t, digest(`{"a":1,"b":[2]}`), digest(`{ "b": [2.0], "a": 1e0 }`))
	require.NotEqual(t, digest(`{"a":1,"b":[2,3]}`), digest(`{"a":1,"b":[3,2]}`))
	require.NotEqual(t, digest(`{"n":9007199254740993}`), digest(`{"n":9007199254740992}`))
	require.Zero(t, Submission{Parameters: json.RawMessage(`{"a":1}`)}.digest(Policy{}), "without a request id nothing is compared")
}

func TestTransactionDoesNotReadLongParameters(t *testing.T) {
	t.Parallel()
	sub := Submission{RequestID: "r", Parameters: json.RawMessage(`{"a":1}`)}
	sub.requestDigest = sub.digest(Policy{})
	request := (&operation{}).request(models.Principal{}, sub)
	require.Equal(t, sub.requestDigest, request.Digest)
	sub.Parameters = json.RawMessage(`{"a":2}`)
	require.Equal(t, request, (&operation{}).request(models.Principal{}, sub), "the digest of before the transaction is used")
}

// TestDigestComparesMeaning checks that defaults count as omitted, and that custom: does not matter.
func TestDigestComparesMeaning(t *testing.T) {
	t.Parallel()
	policy := classes()[ClassDefault]
	digest := func(o Override, capabilities ...string) [32]byte {
		return Submission{RequestID: "r", Override: o, Capabilities: capabilities}.digest(policy)
	}
	named := []string{"custom:d7", "a"}
	require.Equal(t, digest(Override{}, "d7", "a"), digest(Override{}, named...))
	require.Equal(t, []string{"custom:d7", "a"}, named, "the argument stays as it is")
	require.NotEqual(t, digest(Override{}, "d7"), digest(Override{}, "d8"))
	require.Equal(t, digest(Override{}, "d7"), digest(Override{TimeoutMS: 30_000, Retries: new(3)}, "d7"))
	require.NotEqual(t, digest(Override{}, "d7"), digest(Override{TimeoutMS: 30_001}, "d7"))
	require.NotEqual(t, digest(Override{}, "d7"), digest(Override{Retries: new(0)}, "d7"))
}
