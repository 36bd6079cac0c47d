package storetest_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// endedTask stores a task that has just ended, handed off from another one.
func endedTask(t *testing.T, db *storetest.DB, id, parent string) {
	t.Helper()
	insertTask(t, db, id, func(t *models.Task) {
		t.State, t.EndedAt = models.TaskDone, new(db.Now())
		if parent != "" {
			t.ParentID = &parent
		}
	})
}

// left returns the ids of the tasks that are there.
func left(t *testing.T, db *storetest.DB) (ids []string) {
	t.Helper()
	all, err := db.Tasks(t.Context()).List(store.TaskQuery{Limit: 1000})
	require.NoError(t, err)
	for _, one := range all {
		ids = append(ids, one.ID)
	}
	return ids
}

// purged runs a purge until nothing is left to do and returns how many it deleted.
func purged(t *testing.T, db *storetest.DB, purge func(*store.Tx) (int64, error)) (n int64) {
	t.Helper()
	for more := int64(1); more > 0; {
		write(t, db, func(tx *store.Tx) (err error) { more, err = purge(tx); return err })
		n += more
	}
	return n
}

func TestAPurge(t *testing.T) {
	t.Parallel()

	rule(t, "OfTasksKeepsOpenAndYoungOnesAndTheirParents", func(t *testing.T, db *storetest.DB) {
		endedTask(t, db, "old", "")
		endedTask(t, db, "parent", "")
		endedTask(t, db, "child", "parent")
		endedTask(t, db, "parent-of-kept", "")
		endedTask(t, db, "between", "parent-of-kept")
		insertTask(t, db, "open", nil)
		db.Clock.Advance(time.Hour)
		border := db.Now()
		endedTask(t, db, "kept", "between")
		n := purged(t, db, func(tx *store.Tx) (int64, error) { return tx.Tasks().Purge(border, 1) })
		require.EqualValues(t, 3, n)
		require.ElementsMatch(t, []string{"open", "kept", "between", "parent-of-kept"}, left(t, db))
		db.Clock.Advance(time.Hour)
		require.EqualValues(t, 3, purged(t, db, func(tx *store.Tx) (int64, error) { return tx.Tasks().Purge(db.Now(), 10) }))
		require.Equal(t, []string{"open"}, left(t, db))
	})

	rule(t, "OfATaskDeletesItsDependentRows", func(t *testing.T, db *storetest.DB) {
		for _, id := range []string{"gone", "kept"} {
			write(t, db, func(tx *store.Tx) error {
				if _, _, err := tx.Tasks().ClaimRequest(store.TaskRequest{Owner: "ops", RequestID: id, TaskID: id}); err != nil {
					return err
				}
				if _, err := tx.Inbox().Enqueue(models.InboxMessage{AgentID: "finance", Kind: models.MessageAssign, TaskID: id, Attempt: 1}); err != nil {
					return err
				}
				if err := tx.Tasks().InsertAttempt(models.Attempt{TaskID: id, Attempt: 1, State: models.AttemptSucceeded, AssignedAt: tx.Now()}); err != nil {
					return err
				}
				task := newTask(db, id, func(t *models.Task) { t.State, t.EndedAt = models.TaskDone, new(db.Now()) })
				if err := tx.Tasks().Insert(task, inputOf(id)); err != nil {
					return err
				}
				return tx.Tasks().AddOutput(id, 1, models.OutputChunk{Data: []byte("x")})
			})
			db.Clock.Advance(time.Hour)
		}
		border := db.Now().Add(-time.Hour)
		require.EqualValues(t, 1, purged(t, db, func(tx *store.Tx) (int64, error) { return tx.Tasks().Purge(border, 10) }))
		for id, want := range map[string]int{"gone": 0, "kept": 1} {
			attempts, err := db.Tasks(t.Context()).Attempts(id)
			require.NoError(t, err)
			require.Len(t, attempts, want, id)
			require.Len(t, outputOf(t, db, id, 1, models.StreamResult, 0), want, id)
			_, err = db.Tasks(t.Context()).Input(id)
			require.Equal(t, want == 0, errs.Is(err, errs.NotFound), id)
		}
		told, err := db.Inbox(t.Context()).List("finance", 10)
		require.NoError(t, err)
		require.Len(t, told, 1)
		require.Equal(t, "kept", told[0].TaskID)
		require.EqualValues(t, 1, purged(t, db, func(tx *store.Tx) (int64, error) { return tx.Tasks().PurgeRequests(db.Now(), 10) }), "only one is left")
	})

	rule(t, "OfSessionsKeepsOpenOnesAndThoseWithTasks", func(t *testing.T, db *storetest.DB) {
		for id, state := range map[string]models.SessionState{"open": models.SessionOpen, "closed": models.SessionClosed, "with-task": models.SessionClosed} {
			write(t, db, func(tx *store.Tx) error {
				return tx.Sessions().Insert(models.Session{ID: id, Owner: "ops", State: state, Facts: json.RawMessage("{}"), CreatedAt: tx.Now(), UpdatedAt: tx.Now()})
			})
		}
		insertTask(t, db, "t", func(t *models.Task) { t.SessionID, t.State, t.EndedAt = "with-task", models.TaskDone, new(db.Now()) })
		require.Zero(t, purged(t, db, func(tx *store.Tx) (int64, error) { return tx.Sessions().Purge(db.Now(), 10) }), "none is older than that")
		db.Clock.Advance(time.Hour)
		require.EqualValues(t, 1, purged(t, db, func(tx *store.Tx) (int64, error) { return tx.Sessions().Purge(db.Now(), 10) }))
		_, err := db.Sessions(t.Context()).Get("closed")
		require.Equal(t, errs.NotFound, errs.CodeOf(err))
		purged(t, db, func(tx *store.Tx) (int64, error) { return tx.Tasks().Purge(db.Now(), 10) })
		require.EqualValues(t, 1, purged(t, db, func(tx *store.Tx) (int64, error) { return tx.Sessions().Purge(db.Now(), 10) }))
		_, err = db.Sessions(t.Context()).Get("open")
		require.NoError(t, err)
	})

	rule(t, "OfRequestsAndMessagesDeletesOldOnesInBatches", func(t *testing.T, db *storetest.DB) {
		for i := range 5 {
			id := fmt.Sprint(i)
			write(t, db, func(tx *store.Tx) error {
				if _, _, err := tx.Tasks().ClaimRequest(store.TaskRequest{Owner: "ops", RequestID: id, TaskID: id}); err != nil {
					return err
				}
				if _, err := tx.Inbox().MarkProcessed("finance", id); err != nil {
					return err
				}
				return tx.Tasks().Insert(newTask(db, id, nil), inputOf(id))
			})
			db.Clock.Advance(time.Second)
		}
		border := db.Now().Add(-time.Second) // the newest is not before it
		for _, purge := range []func(tx *store.Tx) (int64, error){
			func(tx *store.Tx) (int64, error) { return tx.Tasks().PurgeRequests(border, 3) },
			func(tx *store.Tx) (int64, error) { return tx.Inbox().PurgeProcessed(border, 3) },
		} {
			write(t, db, func(tx *store.Tx) error {
				n, err := purge(tx)
				require.EqualValues(t, 3, n)
				return err
			})
			require.EqualValues(t, 1, purged(t, db, purge))
		}
		write(t, db, func(tx *store.Tx) error {
			for id, want := range map[string]bool{"0": true, "3": true, "4": false} {
				fresh, err := tx.Inbox().MarkProcessed("finance", id)
				require.NoError(t, err)
				require.Equal(t, want, fresh, id)
			}
			return nil
		})
	})
}

func TestMigrationsWithTasks(t *testing.T) {
	t.Parallel()

	rule(t, "KeepTasksWhenLaterOnesGoDownAndUpAgain", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		requests := func(tx *store.Tx, task string) (store.TaskRequest, bool, error) {
			return tx.Tasks().ClaimRequest(store.TaskRequest{Owner: "ops", RequestID: "r", Digest: [32]byte{7}, TaskID: task})
		}
		task := insertTask(t, db, "t", func(t *models.Task) { t.SessionID, t.AgentID, t.Attempt = "s", "finance", 1 })
		worker := models.Worker{AgentID: "finance", State: models.WorkerOnline, Protocol: "envelope", Concurrency: 3, LastSeenAt: db.Now()}
		write(t, db, func(tx *store.Tx) error {
			if _, _, err := requests(tx, "t"); err != nil {
				return err
			}
			if err := tx.Tasks().InsertAttempt(models.Attempt{TaskID: "t", Attempt: 1, AgentID: "finance", State: models.AttemptRunning, AssignedAt: tx.Now()}); err != nil {
				return err
			}
			if err := tx.Tasks().AddOutput("t", 1, models.OutputChunk{Data: []byte("piece")}); err != nil {
				return err
			}
			return tx.Workers().Save(&worker)
		})
		m := migrator(t, db)
		all, err := m.Status(t.Context())
		require.NoError(t, err)
		for range len(all) - 4 { // down to the migration of tasks
			undone, err := m.Down(t.Context())
			require.NoError(t, err)
			require.Len(t, undone, 1)
		}
		_, err = m.Up(t.Context())
		require.NoError(t, err)
		got, err := db.Tasks(t.Context()).Get("t")
		require.NoError(t, err)
		require.Equal(t, task, got)
		attempts, err := db.Tasks(t.Context()).Attempts("t")
		require.NoError(t, err)
		require.Len(t, attempts, 1)
		require.Equal(t, "piece", string(outputOf(t, db, "t", 1, models.StreamResult, 0)[0].Data))
		joined, err := db.Workers(t.Context()).Get("finance")
		require.NoError(t, err)
		require.Equal(t, worker, joined)
		write(t, db, func(tx *store.Tx) error {
			earlier, fresh, err := requests(tx, "another")
			require.False(t, fresh)
			require.Equal(t, "t", earlier.TaskID)
			require.Equal(t, [32]byte{7}, earlier.Digest)
			return err
		})
		write(t, db, func(tx *store.Tx) error { // still checked at the commit only
			if _, _, err := tx.Tasks().ClaimRequest(store.TaskRequest{Owner: "ops", RequestID: "r2", TaskID: "t2"}); err != nil {
				return err
			}
			return tx.Tasks().Insert(newTask(db, "t2", nil), inputOf("t2"))
		})
	})
}
