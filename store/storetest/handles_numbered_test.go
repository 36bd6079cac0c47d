package storetest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// TestTasksNumbered: V4 names a task by its number alone.
func TestTasksNumbered(t *testing.T) {
	t.Parallel()
	rule(t, "AreAnOwnersNewestFirst", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		for i, name := range []models.ShortID{{Context: 1, Task: 1}, {Context: 2, Task: 1}, {Context: 2, Task: 2}, {Context: 3, Task: 1}} {
			owner := "mine"
			if i == 3 {
				owner = "others"
			}
			db.Clock.Advance(time.Second)
			task := newTask(db, "task-"+string(rune('a'+i)), func(t *models.Task) { t.Owner = owner })
			write(t, db, func(tx *store.Tx) error {
				if name.Task == 1 {
					if _, err := tx.OpenContext(""); err != nil {
						return err
					}
				}
				if err := tx.InsertTask(task, inputOf(task.ID)); err != nil {
					return err
				}
				return tx.ClaimShortID(task.ID, name)
			})
		}
		for _, c := range []struct {
			owner         string
			number, limit int
			want          []string
		}{
			{"mine", 1, 9, []string{"task-b", "task-a"}}, {"mine", 1, 1, []string{"task-b"}}, {"mine", 2, 9, []string{"task-c"}},
			{"mine", 3, 9, nil}, {"others", 1, 9, []string{"task-d"}}, {"nobody", 1, 9, nil},
		} {
			got, err := db.TasksNumbered(t.Context(), c.owner, c.number, c.limit)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		}
	})
}
