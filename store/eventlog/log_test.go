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

// TestFollow reads events of a database that other processes write.
func TestFollow(t *testing.T) {
	t.Parallel()
	var stored []models.Event
	reads := 0
	newest := func() (int64, error) {
		if len(stored) == 0 {
			return 0, nil
		}
		return stored[len(stored)-1].Position, nil
	}
	read := func(after int64, limit int) (next []models.Event, err error) {
		reads++
		for _, e := range stored {
			if e.Position > after && len(next) < limit {
				next = append(next, e)
			}
		}
		return next, nil
	}
	number := func(from, to int64) {
		for n := from; n <= to; n++ {
			stored = append(stored, models.Event{Position: n})
		}
	}
	log := &Log{}
	follow := func(want int64) {
		t.Helper()
		head, err := log.Follow(newest, read)
		require.NoError(t, err)
		require.Equal(t, want, head)
	}
	between := func(after, upTo int64) (positions []int64, ok bool) {
		t.Helper()
		list, ok := log.Between(after, upTo, nil, 10_000)
		for _, e := range list {
			positions = append(positions, e.Position)
		}
		return positions, ok
	}

	follow(0)
	number(1, 3)
	follow(3)
	require.Zero(t, reads, "older events are not read at first")
	_, ok := between(0, 3)
	require.False(t, ok)
	number(4, 6)
	follow(6)
	got, ok := between(3, 6)
	require.True(t, ok)
	require.Equal(t, []int64{4, 5, 6}, got)

	number(7, 6+2*followBatch+1)
	follow(6 + 2*followBatch + 1)
	got, ok = between(3, 6+2*followBatch+1)
	require.True(t, ok)
	require.Len(t, got, 2*followBatch+4)

	number(3000, 3001) // the events between were purged
	follow(3001)
	_, ok = between(2007, 3001)
	require.False(t, ok, "SQL says what is left")
	got, ok = between(2999, 3001)
	require.True(t, ok)
	require.Equal(t, []int64{3000, 3001}, got)
	number(3005, 3005)
	number(3007, 3008) // a gap within what is read together
	follow(3008)
	_, ok = between(3004, 3008)
	require.False(t, ok)

	stored = []models.Event{{Position: 2}} // the database has lost commits
	follow(2)
	number(3, 4)
	follow(4)
	got, ok = between(2, 4)
	require.True(t, ok)
	require.Equal(t, []int64{3, 4}, got)

	log.Add([]models.Event{{Position: 3}, {Position: 4}, {Position: 5}}) // as of a call at the same time
	got, _ = between(2, 5)
	require.Equal(t, []int64{3, 4, 5}, got)
}
