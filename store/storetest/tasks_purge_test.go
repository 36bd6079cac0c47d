package storetest_test

import (
	"encoding/json"
	"fmt"
	"strings"
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
				if _, err := tx.Inbox().Enqueue(models.InboxMessage{AgentID: "finance", Kind: models.MessageAssign, TaskID: id, Attempt: 1}); err != nil {
					return err
				}
				if err := tx.Tasks().InsertAttempt(models.Attempt{TaskID: id, Attempt: 1, State: models.AttemptSucceeded, AssignedAt: tx.Now()}); err != nil {
					return err
				}
				task := newTask(db, id, func(t *models.Task) { t.State, t.EndedAt = models.TaskDone, new(db.Now()) })
				if err := tx.Tasks().Insert(task, inputOf(id), store.TaskRequest{Owner: "ops", RequestID: id}); err != nil {
					return err
				}
				return tx.Tasks().AddOutput(id, 1, models.OutputChunk{Data: []byte("x")})
			})
			db.Clock.Advance(time.Hour)
		}
		border := db.Now().Add(-time.Hour)
		require.EqualValues(t, 1, purged(t, db, func(tx *store.Tx) (int64, error) { return tx.Tasks().Purge(border, 10) }))
		for id, want := range map[string]int{"gone": 0, "kept": 1} {
			attempts, err := db.Tasks(t.Context()).EarlierAttempts(id)
			require.NoError(t, err)
			require.Len(t, attempts, want, id)
			require.Len(t, outputOf(t, db, id, 1, models.StreamResult, 0), want, id)
			_, err = db.Tasks(t.Context()).Input(models.Task{ID: id})
			require.Equal(t, want == 0, errs.Is(err, errs.NotFound), id)
		}
		told, err := db.Inbox(t.Context()).List("finance", 10)
		require.NoError(t, err)
		require.Len(t, told, 1)
		require.Equal(t, "kept", told[0].TaskID)
		_, err = db.Tasks(t.Context()).Requested(store.TaskRequest{Owner: "ops", RequestID: "gone"})
		require.Equal(t, errs.NotFound, errs.CodeOf(err))
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

	rule(t, "OfMessagesDeletesOldOnesInBatches", func(t *testing.T, db *storetest.DB) {
		for i := range 5 {
			write(t, db, func(tx *store.Tx) error { _, err := tx.Inbox().MarkProcessed("finance", fmt.Sprint(i)); return err })
			db.Clock.Advance(time.Second)
		}
		border := db.Now().Add(-time.Second) // the newest is not before it
		purge := func(tx *store.Tx) (int64, error) { return tx.Inbox().PurgeProcessed(border, 3) }
		write(t, db, func(tx *store.Tx) error {
			n, err := purge(tx)
			require.EqualValues(t, 3, n)
			return err
		})
		require.EqualValues(t, 1, purged(t, db, purge))
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
		task := insertTask(t, db, "t", func(t *models.Task) {
			t.SessionID, t.AgentID, t.Attempt, t.MessageID, t.AssignedAt = "s", "finance", 2, "m", db.Now()
			t.AttemptState, t.ReservationID, t.ChunkStep, t.ChunkTotal = models.AttemptRunning, "r", 3, 4
		})
		done := insertTask(t, db, "done", func(t *models.Task) {
			t.AgentID, t.Attempt, t.State, t.EndedAt, t.Output, t.OutputBytes = "finance", 1, models.TaskDone, new(db.Now()), []byte("short"), 5
			t.AttemptState, t.AssignedAt = models.AttemptSucceeded, db.Now()
			t.Decision = json.RawMessage(`{"verdict":"chosen","candidates":[["finance",1,0,0]],"rejected":[]}`)
		})
		addOutcomes(t, db, outcome("a", "success", new(int64(100)), db.Now()), outcome("b", "failed", nil, db.Now()), outcome("b", "success", new(int64(200)), db.Now()))
		stats := models.AgentStats{SessionsToday: 2, AvgResponseTimeMS: new(int64(150)), SuccessRate: new(0.6667)}
		requireStats(t, db, "finance", stats)
		long := inputOf("long")
		long.Parameters = json.RawMessage(`{"text":"` + strings.Repeat("x", 5000) + `"}`)
		write(t, db, func(tx *store.Tx) error {
			return tx.Tasks().Insert(newTask(db, "long", nil), long, store.TaskRequest{})
		})
		worker := models.Worker{AgentID: "finance", State: models.WorkerOnline, Protocol: "envelope", Concurrency: 3, LastSeenAt: db.Now()}
		write(t, db, func(tx *store.Tx) error {
			if err := tx.Tasks().InsertAttempt(models.Attempt{TaskID: "t", Attempt: 1, AgentID: "finance", State: models.AttemptFailed, AssignedAt: tx.Now(), EndedAt: new(tx.Now())}); err != nil {
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
		read := db.Tasks(t.Context())
		rows, err := read.List(store.TaskQuery{AgentID: "finance", Limit: 10})
		require.NoError(t, err)
		require.Len(t, rows, 2)
		got := map[string]models.Task{rows[0].ID: rows[0].Task, rows[1].ID: rows[1].Task}
		require.Equal(t, task, got["t"])
		attempts, err := read.EarlierAttempts("t")
		require.NoError(t, err)
		require.Len(t, attempts, 1)
		require.Equal(t, 1, attempts[0].Attempt)
		require.Equal(t, "piece", string(outputOf(t, db, "t", 1, models.StreamResult, 0)[0].Data))
		require.Equal(t, "short", string(outputOf(t, db, "done", 1, models.StreamResult, 0)[0].Data), "it is a chunk now")
		done.Output, done.Decision = nil, task.Decision // earlier programs cannot read the decision
		require.Equal(t, done, got["done"])
		input, err := read.Input(models.Task{ID: "long"})
		require.NoError(t, err)
		require.Equal(t, long, input)
		input, err = read.Input(models.Task{ID: "t"})
		require.NoError(t, err)
		require.Equal(t, inputOf("t"), input)
		joined, err := db.Workers(t.Context()).Get("finance")
		require.NoError(t, err)
		require.Equal(t, worker, joined)
		require.Equal(t, []string{"assign2"}, inbox(t, db, "finance"))
	})
}
