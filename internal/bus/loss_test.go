package bus

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// However drops and handled messages follow on each other, a drop is told: while it goes
// on every limit messages, and at the latest when nothing waits any more.
func TestEveryLossIsTold(t *testing.T) {
	t.Parallel()
	var l loss
	tell := func(dropped, waiting int, handled bool) bool {
		if handled {
			l.handled++
		}
		_, tell := l.note(dropped, waiting, 3)
		return tell
	}
	require.False(t, tell(0, 5, true), "nothing was lost")
	require.True(t, tell(1, 5, false), "the first one")
	require.False(t, tell(2, 5, false), "who was told has not got on since")
	require.False(t, tell(3, 5, true))
	require.False(t, tell(4, 5, true))
	require.True(t, tell(5, 5, true), "another limit's worth was handled")
	require.False(t, tell(6, 5, true))
	require.True(t, tell(6, 0, true), "it is through")
	require.False(t, tell(6, 0, true), "and nothing was lost since")
	require.True(t, tell(7, 5, false), "the first one of the next time")
	require.False(t, tell(7, 0, true), "that was all")
}
