package api

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWorkerIDs (PROTOCOL_V5 §2.1): each number has one id, and no other text is an id.
func TestWorkerIDs(t *testing.T) {
	t.Parallel()
	for n, id := range map[int64]string{1: "W1", 41: "W41", 99: "W99", 100: "W1.1", 198: "W99.1", 199: "W1.2", 98_000: "W89.989"} {
		require.Equal(t, id, workerID(n))
		got, ok := workerNumberOf(id)
		require.True(t, ok, id)
		require.Equal(t, n, got, id)
	}
	for _, invalid := range []string{"", "W", "41", "w1", "W0", "W-1", "W+1", "W01", "W100", "W1.", "W1.0", "W1.01", "W1.-1", "W100.1", "W1.1.1", "W99999999999", "W1.99999999999", "O1"} {
		_, ok := workerNumberOf(invalid)
		require.False(t, ok, invalid)
	}
}
