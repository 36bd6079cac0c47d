package columns

import (
	"testing"

	"github.com/stretchr/testify/require"

	"comet/models"
)

func TestNilSliceIsAnEmptyList(t *testing.T) {
	t.Parallel()
	for _, value := range []any{[]string(nil), []models.EventType(nil), []int(nil), []models.EventType{}} {
		stored, err := Value(value)
		require.NoError(t, err)
		require.Equal(t, "[]", stored)
	}
	stored, err := Value(map[string]int(nil))
	require.NoError(t, err)
	require.Equal(t, "null", stored, "a map is not a list")
}

func TestUnknownIndexOfAnEnumerationIsAnError(t *testing.T) {
	t.Parallel()
	var state models.TaskState
	require.NoError(t, (&column{&state}).Scan(int64(Index(models.TaskDone))))
	require.Equal(t, models.TaskDone, state)
	for _, index := range []int64{-1, 99} {
		require.ErrorContains(t, (&column{&state}).Scan(index), "is not the index of a value of models.TaskState")
	}
	require.Equal(t, -1, Index(models.TaskState("lost")))
}
