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

// TestParentLock tests that the lock of a parent does not block changes of its subtasks: the parent
// is locked first, so a transaction that holds a subtask must not wait for it.
func TestParentLock(t *testing.T) {
	t.Parallel()
	rule(t, "DoesNotBlockTwoChangesOfASubtask", func(t *testing.T, db *storetest.DB) {
		whole := insertTask(t, db, "w", nil).ID
		insertTask(t, db, "p", func(t *models.Task) { t.ParentID = &whole })
		twice := func(tx *store.Tx) error {
			part, err := tx.Tasks().Lock("p")
			for range 2 {
				before := part
				if part.Progress++; err == nil {
					err = tx.Tasks().Save(before, &part)
				}
			}
			return err
		}
		if db.Options.DatabaseURL == "" { // one writer, and no locks
			write(t, db, twice)
			return
		}
		write(t, db, func(tx *store.Tx) error {
			if _, err := tx.Tasks().Lock(whole); err != nil {
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
		part, err := db.Tasks(t.Context()).Get("p")
		require.NoError(t, err)
		require.Equal(t, 2, part.Progress)
	})
}
