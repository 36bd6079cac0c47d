package tools

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAttempts(t *testing.T) {
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
	require.NoError(t, second.Err(), "the end of one attempt does not cancel the next")
	require.False(t, u.cancelUpTo("unknown", 0), "another replica may have the task")
	require.True(t, u.cancelUpTo("t", 2))
	require.Error(t, second.Err())
	require.NoError(t, other.Err())
	u.finish("t", 2)
	u.finish("o", 1)
	require.Empty(t, u.tasks)
}
