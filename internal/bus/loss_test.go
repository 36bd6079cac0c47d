package bus

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEveryLossIsReported checks that drops are reported in every order of dropped and handled messages:
// while they continue every limit messages, and at the latest when the backlog is empty.
func TestEveryLossIsReported(t *testing.T) {
	t.Parallel()
	var l loss
	isDue := func(dropped, waiting int, handled bool) bool {
		if handled {
			l.handled++
		}
		_, isDue := l.update(dropped, waiting, 3)
		return isDue
	}
	require.False(t, isDue(0, 5, true), "no message was lost")
	require.True(t, isDue(1, 5, false), "the first one")
	require.False(t, isDue(2, 5, false), "no message was handled since the report")
	require.False(t, isDue(3, 5, true))
	require.False(t, isDue(4, 5, true))
	require.True(t, isDue(5, 5, true), "limit messages were handled")
	require.False(t, isDue(6, 5, true))
	require.True(t, isDue(6, 0, true), "the backlog is empty")
	require.False(t, isDue(6, 0, true), "no message was lost since")
	require.True(t, isDue(7, 5, false), "the first one after an empty backlog")
	require.False(t, isDue(7, 0, true), "no message was lost since the report")
}
