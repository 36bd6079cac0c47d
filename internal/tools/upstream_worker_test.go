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
	require.True(t, u.cancelUpTo(attempt{"t", 1}))
	require.Error(t, first.Err())
	require.NoError(t, second.Err(), "a cancellation does not concern later attempts")
	require.False(t, u.cancelUpTo(attempt{"unknown", 0}), "another replica may have the task")
	require.True(t, u.cancelUpTo(attempt{"t", 2}))
	require.Error(t, second.Err())
	require.NoError(t, other.Err())
	require.True(t, u.cancelUpTo(attempt{"o", 0}), "all of them")
	require.Error(t, other.Err())
}
