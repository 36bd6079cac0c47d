package storetest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// TestAgentsBeside proves that the agents of earlier and newest attempts are found, each once.
func TestAgentsBeside(t *testing.T) {
	t.Parallel()
	rule(t, "AreThoseOfTheOtherSubtasksOfAParent", func(t *testing.T, db *storetest.DB) {
		for _, whole := range []string{"w", "x"} {
			insertTask(t, db, whole, nil)
			for _, n := range []string{"1", "2", "3"} {
				id := whole + n
				insertTask(t, db, id, func(t *models.Task) {
					if t.ParentID = &whole; n == "3" {
						t.AgentID = "now-" + id
					}
				})
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
		write(t, db, func(tx *store.Tx) (err error) {
			got, err = tx.Tasks().AgentsBeside("w", "w2")
			return err
		})
		require.ElementsMatch(t, []string{"aw1", "aw3", "now-w3"}, got)
	})
}
