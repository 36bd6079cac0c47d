package tools

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUnderway(t *testing.T) {
	t.Parallel()
	u := &attempts{tasks: map[string]map[int]context.CancelFunc{}}
	begin := func(task string, attempt int) context.Context {
		ctx, cancel := context.WithCancel(t.Context())
		u.add(task, attempt, cancel)
		return ctx
	}
	first, second, other := begin("t", 1), begin("t", 2), begin("o", 1)
	u.finish("t", 1)
	require.Error(t, first.Err())
	require.NoError(t, second.Err(), "the end of an attempt is not that of the next")
	require.False(t, u.cancelUpTo("nobody's", 0), "it is for another replica")
	require.True(t, u.cancelUpTo("t", 2))
	require.Error(t, second.Err())
	require.NoError(t, other.Err())
	u.finish("t", 2)
	u.finish("o", 1)
	require.Empty(t, u.tasks)
}
