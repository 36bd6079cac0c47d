package tools

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAttempts(t *testing.T) {
	t.Parallel()
	var u attempts
	begin := func(task string, number int) context.Context {
		ctx, cancel := context.WithCancel(t.Context())
		u.Store(attempt{task, number}, cancel)
		return ctx
	}
	first, second, other := begin("t", 1), begin("t", 2), begin("o", 1)
	u.finish(attempt{"t", 1})
	require.Error(t, first.Err())
	require.NoError(t, second.Err(), "the end of one attempt does not cancel the next")
	require.False(t, u.cancelUpTo(attempt{"unknown", 0}), "another replica may have the task")
	require.True(t, u.cancelUpTo(attempt{"t", 2}))
	require.Error(t, second.Err())
	require.NoError(t, other.Err())
	u.finish(attempt{"t", 2})
	u.finish(attempt{"o", 1})
	require.Error(t, other.Err())
	require.False(t, u.cancelUpTo(attempt{"t", 0}), "they are removed")
	require.False(t, u.cancelUpTo(attempt{"o", 0}), "they are removed")
}
