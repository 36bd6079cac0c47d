package storetest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// newTask is a task that waits for its agent.
func newTask(db *storetest.DB, id string, change func(*models.Task)) models.Task {
	t := models.Task{
		ID: id, Class: "default", Owner: "ops", QueueKey: "r", Priority: 1, State: models.TaskNew, Version: 1,
		Deadline: db.Now().Add(time.Minute), CreatedAt: db.Now(), UpdatedAt: db.Now(),
	}
	if change != nil {
		change(&t)
	}
	return t
}

func inputOf(id string) models.TaskInput {
	return models.TaskInput{
		TaskID: id, Capabilities: []string{"plan"}, Parameters: json.RawMessage("{}"), Policy: json.RawMessage("{}"), Meta: json.RawMessage("{}"),
	}
}

// insertTask stores a task.
func insertTask(t *testing.T, db *storetest.DB, id string, change func(*models.Task)) models.Task {
	t.Helper()
	task := newTask(db, id, change)
	write(t, db, func(tx *store.Tx) error { return tx.Tasks().Insert(task, inputOf(id), store.TaskRequest{}) })
	return task
}

// inLine stores a task that waits in the line of a route.
func inLine(t *testing.T, db *storetest.DB, route, id string, priority int) {
	t.Helper()
	insertTask(t, db, id, func(t *models.Task) { t.WaitingFor, t.QueueKey, t.Priority = models.WaitForWorker, route, priority })
}

func taskStates() []models.TaskState {
	return []models.TaskState{models.TaskNew, models.TaskRunning, models.TaskDone, models.TaskFailed, models.TaskCancelled}
}

func TestATask(t *testing.T) {
	t.Parallel()

	rule(t, "IsReadAsItWasWritten", func(t *testing.T, db *storetest.DB) {
		parent := insertTask(t, db, "parent", nil)
		later := db.Now().Add(time.Hour)
		want := models.Task{
			ID: "t", SessionID: "s", ParentID: &parent.ID, Depth: 2, Class: "envelope", Owner: "token", OwnerAgent: "finance", QueueKey: "clé", Priority: 3,
			State: models.TaskRunning, WaitingFor: models.WaitForReply, Attempt: 2, AgentID: "health", Budget: new(int64(1 << 40)), Tokens: 7, Deadline: later,
			Progress: 99, Step: 3, StepName: "é", Questions: 1, OutputBytes: 1 << 40, LogBytes: 5, ExitCode: new(-1), ErrorCode: "failed", Error: "«why»",
			Detail: json.RawMessage(`{"a":1}`), Decision: json.RawMessage(`{"b":2}`), Version: 4, Subtasks: 2, Output: []byte("out"), MessageID: "m",
			AttemptState: models.AttemptRunning, ReservationID: "r", AttemptTokens: 3, AssignedAt: later, AcceptedAt: &later, ChunkStep: 1, ChunkTotal: 2,
			CreatedAt: db.Now(), StartedAt: &later, UpdatedAt: later, EndedAt: &later,
		}
		in := models.TaskInput{
			TaskID: "t", Capabilities: []string{"plan", "é"}, AgentType: "infra", Sphere: 9, RequestedAgentID: "health",
			Parameters: json.RawMessage(`{"é":"<\u0000>"}`), Policy: json.RawMessage(`{"retries":0}`), Meta: json.RawMessage(`{"m":1}`), Trace: "00-ab",
		}
		write(t, db, func(tx *store.Tx) error { return tx.Tasks().Insert(want, in, store.TaskRequest{}) })
		got, err := db.Tasks(t.Context()).Get("t")
		require.NoError(t, err)
		require.Equal(t, want, got)
		input, err := db.Tasks(t.Context()).Input(models.Task{ID: "t"})
		require.NoError(t, err)
		require.Equal(t, in, input)
		write(t, db, func(tx *store.Tx) error {
			locked, err := tx.Tasks().Lock("t")
			require.Equal(t, want, locked)
			return err
		})
	})

	rule(t, "IsNotFoundWhenMissing", func(t *testing.T, db *storetest.DB) {
		_, err := db.Tasks(t.Context()).Get("none")
		require.Equal(t, errs.NotFound, errs.CodeOf(err))
		_, err = db.Tasks(t.Context()).Input(models.Task{ID: "none"})
		require.Equal(t, errs.NotFound, errs.CodeOf(err))
		require.Equal(t, errs.NotFound, errs.CodeOf(db.Write(t.Context(), func(tx *store.Tx) error { _, err := tx.Tasks().Lock("none"); return err })))
	})

	rule(t, "HasAUniqueID", func(t *testing.T, db *storetest.DB) {
		first := insertTask(t, db, "t", func(t *models.Task) { t.Owner = "first" })
		err := db.Write(t.Context(), func(tx *store.Tx) error {
			return tx.Tasks().Insert(newTask(db, "t", nil), inputOf("t"), store.TaskRequest{})
		})
		require.Equal(t, errs.Conflict, errs.CodeOf(err))
		got, err := db.Tasks(t.Context()).Get("t")
		require.NoError(t, err)
		require.Equal(t, first, got)
	})

	rule(t, "FollowsItsStateMachine", func(t *testing.T, db *storetest.DB) {
		legal := map[models.TaskState][]models.TaskState{ // PROTOCOL_V5 §4.1, and a retry's way back
			models.TaskNew:     {models.TaskNew, models.TaskRunning, models.TaskDone, models.TaskFailed, models.TaskCancelled}, // a result implies that it was running
			models.TaskRunning: {models.TaskRunning, models.TaskNew, models.TaskDone, models.TaskFailed, models.TaskCancelled},
		}
		for _, from := range taskStates() {
			for _, to := range taskStates() {
				id := fmt.Sprintf("%s-%s", from, to)
				before := insertTask(t, db, id, func(t *models.Task) { t.State = from })
				after := before
				after.State, after.Step = to, 9
				var refused error
				write(t, db, func(tx *store.Tx) error { refused = tx.Tasks().Save(before, &after); return nil })
				got, err := db.Tasks(t.Context()).Get(id)
				require.NoError(t, err)
				if slices.Contains(legal[from], to) {
					require.NoError(t, refused, id)
					require.Equal(t, after, got, id)
					require.Equal(t, before.Version+1, got.Version, id)
					continue
				}
				require.Equal(t, errs.TaskState, errs.CodeOf(refused), id)
				require.Equal(t, before, got, "%s: nothing is written", id)
			}
		}
	})

	rule(t, "RefusesAStaleVersion", func(t *testing.T, db *storetest.DB) {
		before := insertTask(t, db, "t", nil)
		db.Clock.Advance(time.Second)
		first, second := before, before
		first.Step, second.Step = 1, 2
		write(t, db, func(tx *store.Tx) error { return tx.Tasks().Save(before, &first) })
		require.Equal(t, db.Now(), first.UpdatedAt)
		err := db.Write(t.Context(), func(tx *store.Tx) error { return tx.Tasks().Save(before, &second) })
		require.Equal(t, errs.Conflict, errs.CodeOf(err))
		got, err := db.Tasks(t.Context()).Get("t")
		require.NoError(t, err)
		require.Equal(t, first, got)
	})

	rule(t, "IsLockedByAReadInATransaction", func(t *testing.T, db *storetest.DB) {
		const writers = 16
		insertTask(t, db, "t", nil)
		failed := make(chan error, writers)
		var all sync.WaitGroup
		for range writers {
			all.Go(func() {
				failed <- db.Write(context.Background(), func(tx *store.Tx) error {
					before, err := tx.Tasks().Lock("t")
					if err != nil {
						return err
					}
					after := before
					after.Step++
					return tx.Tasks().Save(before, &after)
				})
			})
		}
		all.Wait()
		for range writers {
			require.NoError(t, <-failed)
		}
		got, err := db.Tasks(t.Context()).Get("t")
		require.NoError(t, err)
		require.Equal(t, writers, got.Step)
		require.EqualValues(t, writers+1, got.Version)
	})
}

// served takes the tasks of a line out of it, one after the other.
func served(t *testing.T, db *storetest.DB, route string) (ids []string) {
	t.Helper()
	for more := true; more; {
		write(t, db, func(tx *store.Tx) error {
			before, ok, err := tx.Tasks().NextQueued(route)
			if more = ok; err != nil || !ok {
				return err
			}
			ids = append(ids, before.ID)
			after := before
			after.WaitingFor = models.NotWaiting
			return tx.Tasks().Save(before, &after)
		})
	}
	return ids
}

func TestQueue(t *testing.T) {
	t.Parallel()

	rule(t, "IsOrderedByPriorityAndAge", func(t *testing.T, db *storetest.DB) {
		for i, priority := range []int{1, 0, 3, 1, 3, 2} {
			inLine(t, db, "r", fmt.Sprintf("t%d", 9-i), priority) // younger ones have smaller ids
			db.Clock.Advance(time.Microsecond)
		}
		inLine(t, db, "other", "elsewhere", 3)
		insertTask(t, db, "with-agent", nil)
		require.Equal(t, []string{"t7", "t5", "t4", "t9", "t6", "t8"}, served(t, db, "r"))
		require.Equal(t, []string{"elsewhere"}, served(t, db, "other"))
		require.Empty(t, served(t, db, "missing"))
	})

	rule(t, "WithTheHighestPriorityComesFirst", func(t *testing.T, db *storetest.DB) {
		for _, one := range []struct {
			route    string
			priority int
		}{{"a", 1}, {"b", 1}, {"c", 0}, {"c", 2}, {"b", 1}, {"a", 0}} {
			db.Clock.Advance(time.Second)
			inLine(t, db, one.route, fmt.Sprintf("%s%d", one.route, db.Now().Unix()), one.priority)
		}
		insertTask(t, db, "with-agent", nil)
		lines, err := db.Tasks(t.Context()).WaitingQueues(10)
		require.NoError(t, err)
		require.Equal(t, []store.QueuedRoute{{Route: "c", Tasks: 2}, {Route: "a", Tasks: 2}, {Route: "b", Tasks: 2}}, lines)
		lines, err = db.Tasks(t.Context()).WaitingQueues(2)
		require.NoError(t, err)
		require.Equal(t, []store.QueuedRoute{{Route: "c", Tasks: 2}, {Route: "a", Tasks: 2}}, lines)
	})

	rule(t, "IsCountedUpToALimitAndNotOvertaken", func(t *testing.T, db *storetest.DB) {
		for i := range 5 {
			inLine(t, db, "r", fmt.Sprint(i), 1)
		}
		write(t, db, func(tx *store.Tx) error {
			for limit, want := range map[int]int{3: 3, 5: 5, 9: 5} {
				n, err := tx.Tasks().CountWaiting("r", limit)
				require.NoError(t, err)
				require.Equal(t, want, n)
			}
			for priority, want := range []bool{true, true, false, false} {
				ahead, err := tx.Tasks().WaitsAhead("r", priority)
				require.NoError(t, err)
				require.Equal(t, want, ahead, "of priority %d", priority)
			}
			ahead, err := tx.Tasks().WaitsAhead("other", 0)
			require.False(t, ahead)
			return err
		})
	})

	overlapping(t, "IsNotOvertakenWhileItsFirstIsServed", func(t *testing.T, db *storetest.DB) {
		inLine(t, db, "r", "first", 1)
		db.Clock.Advance(time.Second)
		inLine(t, db, "r", "second", 1)
		errBack := errors.New("it stays in the line")
		err := db.Write(t.Context(), func(tx *store.Tx) error {
			first, ok, err := tx.Tasks().NextQueued("r")
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, "first", first.ID)
			write(t, db, func(other *store.Tx) error {
				_, ok, err := other.Tasks().NextQueued("r")
				require.False(t, ok)
				return err
			})
			return errBack
		})
		require.ErrorIs(t, err, errBack)
		require.Equal(t, []string{"first", "second"}, served(t, db, "r"))
	})
}

func TestAListOfTasks(t *testing.T) {
	t.Parallel()

	rule(t, "SelectsByItsFiltersNewestFirst", func(t *testing.T, db *storetest.DB) {
		begin := db.Now()
		insertTask(t, db, "a", func(t *models.Task) { t.AgentID, t.Owner, t.SessionID = "finance", "x", "s" })
		insertTask(t, db, "b", func(t *models.Task) { t.State, t.AgentID = models.TaskDone, "finance" })
		db.Clock.Advance(time.Hour)
		insertTask(t, db, "c", func(t *models.Task) {
			t.ParentID, t.State, t.WaitingFor = new("a"), models.TaskRunning, models.WaitForReply
		})
		insertTask(t, db, "d", func(t *models.Task) { t.Owner, t.State = "x", models.TaskFailed })
		for name, c := range map[string]struct {
			q    store.TaskQuery
			want []string
		}{
			"all":         {store.TaskQuery{}, []string{"d", "c", "b", "a"}},
			"new":         {store.TaskQuery{State: models.TaskNew}, []string{"a"}},
			"done":        {store.TaskQuery{State: models.TaskDone}, []string{"b"}},
			"reply":       {store.TaskQuery{WaitingFor: models.WaitForReply}, []string{"c"}},
			"worker":      {store.TaskQuery{WaitingFor: models.WaitForWorker}, nil},
			"agent":       {store.TaskQuery{AgentID: "finance"}, []string{"b", "a"}},
			"owner":       {store.TaskQuery{Owner: "x"}, []string{"d", "a"}},
			"session":     {store.TaskQuery{SessionID: "s"}, []string{"a"}},
			"parent":      {store.TaskQuery{ParentID: "a"}, []string{"c"}},
			"since":       {store.TaskQuery{Since: begin.Add(time.Hour)}, []string{"d", "c"}},
			"until":       {store.TaskQuery{Until: begin.Add(time.Hour)}, []string{"b", "a"}},
			"both":        {store.TaskQuery{Owner: "x", State: models.TaskFailed, Since: begin}, []string{"d"}},
			"behind":      {store.TaskQuery{Before: store.TaskCursor{CreatedAt: begin.Add(time.Hour), ID: "d"}}, []string{"c", "b", "a"}},
			"behind-last": {store.TaskQuery{Before: store.TaskCursor{CreatedAt: begin, ID: "a"}}, nil},
		} {
			c.q.Limit = 10
			got, err := db.Tasks(t.Context()).List(c.q)
			require.NoError(t, err, name)
			var ids []string
			for _, one := range got {
				ids = append(ids, one.ID)
			}
			require.Equal(t, c.want, ids, name)
		}
		got, err := db.Tasks(t.Context()).List(store.TaskQuery{Limit: 1})
		require.NoError(t, err)
		require.Len(t, got, 1)
	})

	rule(t, "OfAnAgentHasItsOpenTasks", func(t *testing.T, db *storetest.DB) {
		for i, waits := range []models.WaitReason{models.NotWaiting, models.WaitForWorker, models.WaitForRetry, models.WaitForReply} {
			insertTask(t, db, fmt.Sprint(i), func(t *models.Task) { t.AgentID, t.WaitingFor = "finance", waits })
		}
		insertTask(t, db, "ended", func(t *models.Task) { t.AgentID, t.State = "finance", models.TaskDone })
		insertTask(t, db, "other", func(t *models.Task) { t.AgentID = "health" })
		ids, err := db.Tasks(t.Context()).OpenOf("finance", 10)
		require.NoError(t, err)
		require.Equal(t, []string{"0", "3"}, ids)
		open, err := db.Tasks(t.Context()).CountOpen()
		require.NoError(t, err)
		require.Equal(t, map[models.WaitReason]int{models.NotWaiting: 2, models.WaitForWorker: 1, models.WaitForRetry: 1, models.WaitForReply: 1}, open)
	})
}

func TestARequestForATask(t *testing.T) {
	t.Parallel()

	rule(t, "CreatesOneTaskForConcurrentRequests", func(t *testing.T, db *storetest.DB) {
		const callers = 16
		outcomes := make(chan error, callers)
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				id := fmt.Sprintf("t%d", i)
				outcomes <- db.Write(context.Background(), func(tx *store.Tx) error {
					return tx.Tasks().Insert(newTask(db, id, nil), inputOf(id), store.TaskRequest{Owner: "ops", RequestID: "once", Digest: [32]byte{byte(i)}})
				})
			})
		}
		all.Wait()
		made, err := db.Tasks(t.Context()).List(store.TaskQuery{Limit: callers})
		require.NoError(t, err)
		require.Len(t, made, 1)
		fresh := 0
		for range callers {
			if err := <-outcomes; err == nil {
				fresh++
			} else {
				require.ErrorIs(t, err, store.ErrRequestExists)
			}
		}
		require.Equal(t, 1, fresh)
		first, err := db.Tasks(t.Context()).Requested(store.TaskRequest{Owner: "ops", RequestID: "once"})
		require.NoError(t, err)
		require.Equal(t, made[0].ID, first.TaskID)
		require.Equal(t, made[0].ID, fmt.Sprintf("t%d", first.Digest[0]), "the digest is that of the first one")
	})

	rule(t, "BelongsToItsOwnerAndRollsBackWithItsTransaction", func(t *testing.T, db *storetest.DB) {
		insert := func(owner, task string, end error) error {
			return db.Write(t.Context(), func(tx *store.Tx) error {
				return errors.Join(tx.Tasks().Insert(newTask(db, task, nil), inputOf(task), store.TaskRequest{Owner: owner, RequestID: "r"}), end)
			})
		}
		require.Error(t, insert("a", "lost", errors.New("rolled back")))
		require.NoError(t, insert("a", "t1", nil))
		require.NoError(t, insert("b", "t2", nil))
		require.ErrorIs(t, insert("a", "t3", nil), store.ErrRequestExists)
		_, err := db.Tasks(t.Context()).Requested(store.TaskRequest{Owner: "c", RequestID: "r"})
		require.Equal(t, errs.NotFound, errs.CodeOf(err))
	})
}

// TestATaskIsNotOlderThanTheList reads a task by its id after a list has shown a version of it, and then
// the inbox of its agent, while it is changed: what is in memory must not be older.
func TestATaskIsNotOlderThanTheList(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		insertTask(t, db, "t", func(t *models.Task) { t.AgentID, t.MessageID = "finance", "m0" })
		ctx, stop := context.WithCancel(t.Context())
		var reading sync.WaitGroup
		reading.Go(func() {
			for ctx.Err() == nil {
				listed, err := db.Tasks(context.Background()).List(store.TaskQuery{Limit: 1})
				if err != nil || len(listed) != 1 {
					t.Error("listing the task", len(listed), err)
					return
				}
				read, err := db.Tasks(context.Background()).Get("t")
				if err != nil || read.Version < listed[0].Version {
					t.Errorf("version %d was read after version %d: %v", read.Version, listed[0].Version, err)
					return
				}
				inbox, err := db.Inbox(context.Background()).List("finance", 1)
				if err != nil || len(inbox) != 1 || inbox[0].Attempt < read.Attempt {
					t.Errorf("messages %v were read after attempt %d: %v", inbox, read.Attempt, err)
					return
				}
			}
		})
		for n := range 500 {
			write(t, db, func(tx *store.Tx) error {
				task, err := tx.Tasks().Lock("t")
				if err != nil {
					return err
				}
				before := task
				task.Attempt, task.MessageID = n+1, fmt.Sprint("m", n+1)
				return tx.Tasks().Save(before, &task)
			})
		}
		stop()
		reading.Wait()
	})
}
