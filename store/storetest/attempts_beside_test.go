package storetest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// TestAttemptsBeside are those at the other parts of a whole, each of them.
func TestAttemptsBeside(t *testing.T) {
	t.Parallel()
	rule(t, "AreThoseOfTheOtherSubtasksOfAParent", func(t *testing.T, db *storetest.DB) {
		for _, whole := range []string{"w", "x"} {
			insertTask(t, db, whole, nil)
			for _, n := range []string{"1", "2", "3"} {
				id := whole + n
				insertTask(t, db, id, func(t *models.Task) { t.ParentID = &whole })
				write(t, db, func(tx *store.Tx) error {
					for attempt := range 2 {
						err := tx.Tasks().InsertAttempt(models.Attempt{TaskID: id, Attempt: attempt + 1, AgentID: "a" + id, State: models.AttemptFailed, AssignedAt: db.Now()})
						if err != nil {
							return err
						}
					}
					return nil
				})
			}
		}
		var got []string
		write(t, db, func(tx *store.Tx) error {
			all, err := tx.Tasks().AttemptsBeside("w", "w2")
			for _, a := range all {
				got = append(got, a.AgentID)
			}
			return err
		})
		require.Equal(t, []string{"aw1", "aw1", "aw3", "aw3"}, got)
	})
}
