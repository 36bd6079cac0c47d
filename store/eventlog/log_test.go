package eventlog

import (
	"testing"

	"github.com/stretchr/testify/require"

	"comet/models"
)

func TestLog(t *testing.T) {
	t.Parallel()

	t.Run("IsBoundedByTheBytesOfItsData", func(t *testing.T) {
		t.Parallel()
		log := &Log{}
		for i := range int64(100) {
			log.Add([]models.Event{{Position: i + 1, Data: make([]byte, maxBytes/8)}})
			require.LessOrEqual(t, log.bytes, maxBytes)
		}
		require.Equal(t, len(log.events)*maxBytes/8, log.bytes)
		require.EqualValues(t, 100, log.start+int64(len(log.events)))
	})

	t.Run("IsBoundedByTheNumberOfEvents", func(t *testing.T) {
		t.Parallel()
		log := &Log{}
		for i := range int64(3 * maxEvents) {
			log.Add([]models.Event{{Position: i + 1}})
			require.LessOrEqual(t, len(log.events), maxEvents)
		}
		_, ok := log.Between(log.start-1, 3*maxEvents, nil, 1)
		require.False(t, ok)
	})

	t.Run("GivesCopiesThatStay", func(t *testing.T) {
		t.Parallel()
		log := &Log{}
		log.Add([]models.Event{{Position: 1, Key: "a"}, {Position: 2, Key: "b"}})
		got, ok := log.Between(0, 2, nil, 10)
		require.True(t, ok)
		got[0].Key = "changed"
		again, _ := log.Between(0, 2, nil, 10)
		require.Equal(t, "a", again[0].Key)
		log.Reset(2)
		_, ok = log.Between(0, 2, nil, 10)
		require.False(t, ok, "they were deleted")
		got, ok = log.Between(2, 2, nil, 10)
		require.True(t, ok)
		require.Empty(t, got)
	})
}
