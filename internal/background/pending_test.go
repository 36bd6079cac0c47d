package background_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/background"
)

func TestPending(t *testing.T) {
	t.Parallel()
	p := background.NewPending[string]()
	p.Add("a", "b")
	p.Add("c")
	p.Add("a")
	require.Equal(t, 3, p.Len())
	require.Equal(t, []string{"b", "c", "a"}, p.Take(), "the last addition of a key counts")
	require.Empty(t, p.Take())
	require.Len(t, p.Signal, 1, "several additions wake once")
}
