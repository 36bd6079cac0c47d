package storetest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// TestTheLockOfAWhole keeps nobody from changing a part: the whole is locked before its
// parts, and whoever has a part must not wait for it.
func TestTheLockOfAWhole(t *testing.T) {
	t.Parallel()
	rule(t, "DoesNotStopWhoChangesAPartTwice", func(t *testing.T, db *storetest.DB) {
		whole := insertTask(t, db, "w", nil).ID
		insertTask(t, db, "p", func(t *models.Task) { t.ParentID = &whole })
		twice := func(tx *store.Tx) error {
			part, err := tx.Task("p")
			for range 2 {
				before := part
				if part.Progress++; err == nil {
					err = tx.SaveTask(before, &part)
				}
			}
			return err
		}
		if db.Options.DatabaseURL == "" { // one writer, and no locks
			write(t, db, twice)
			return
		}
		write(t, db, func(tx *store.Tx) error {
			if _, err := tx.Task(whole); err != nil {
				return err
			}
			done := make(chan error, 1)
			go func() { done <- db.Write(context.Background(), twice) }()
			select {
			case err := <-done:
				return err
			case <-time.After(time.Minute):
				return errors.New("the change of the part waits for its whole")
			}
		})
		part, err := db.Task(t.Context(), "p")
		require.NoError(t, err)
		require.Equal(t, 2, part.Progress)
	})
}
