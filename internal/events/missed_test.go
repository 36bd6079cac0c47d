package events_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/store/storetest"
)

func TestMissed(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		feed := setup(t, db.Store)
		missed := func(after, resume int64, want bool) {
			t.Helper()
			got, missed, err := feed.Missed(t.Context(), after)
			require.NoError(t, err)
			require.Equal(t, []any{resume, want}, []any{got, missed})
		}
		missed(0, 0, false) // there is nothing yet
		missed(7, 0, true)  // of another database
		require.NoError(t, emit(db.Store, "a", "b", "c"))
		_, err := feed.Subscribe(2).Next(patient(t), 1)
		require.NoError(t, err)
		for after := range int64(4) {
			missed(after, after, false)
		}
		missed(4, 3, true)

		db.Clock.Advance(time.Hour)
		require.NoError(t, emit(db.Store, "d"))
		_, err = feed.Subscribe(3).Next(patient(t), 1)
		require.NoError(t, err)
		purge(t, db, time.Minute)
		missed(0, 3, true)
		missed(2, 3, true)
		missed(3, 3, false) // it has seen all that was deleted
		missed(4, 4, false)
		db.Clock.Advance(time.Hour)
		purge(t, db, time.Minute)
		missed(3, 4, true) // nothing is kept
		missed(4, 4, false)
	})
}
