package models_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"comet/models"
)

// TestWorkerNames (PROTOCOL_V5 §2.1): a name is that of one number and the other way round.
func TestWorkerNames(t *testing.T) {
	t.Parallel()
	for n, name := range map[int64]string{1: "W1", 41: "W41", 99: "W99", 100: "W1.1", 198: "W99.1", 199: "W1.2", 98_000: "W89.989"} {
		require.Equal(t, name, models.WorkerName(n))
		got, ok := models.WorkerNumber(name)
		require.True(t, ok, name)
		require.Equal(t, n, got, name)
	}
	for _, bad := range []string{"", "W", "41", "w1", "W0", "W-1", "W+1", "W01", "W100", "W1.", "W1.0", "W1.01", "W1.-1", "W100.1", "W1.1.1", "W99999999999", "W1.99999999999", "O1"} {
		_, ok := models.WorkerNumber(bad)
		require.False(t, ok, bad)
	}
}
