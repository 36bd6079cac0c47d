package testkit

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// SeedEnv is the variable with the seed of random tests: the number that a failed test printed, or
// "random" for a new one in each test. Without it the seed is always the same, so that a test fails
// only because of what was changed.
const SeedEnv = "COMET_TEST_SEED"

// Seed returns the seed of a random test and logs it.
func Seed(t *testing.T) uint64 {
	t.Helper()
	s := uint64(20261125)
	switch text := os.Getenv(SeedEnv); text {
	case "":
	case "random":
		s = rand.Uint64()
	default:
		var err error
		s, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err, SeedEnv)
	}
	t.Logf("repeat with %s=%d", SeedEnv, s)
	return s
}
