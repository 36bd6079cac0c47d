package orchestrator_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// withDatabase runs one case on a fresh database of each kind, without an orchestrator.
func withDatabase(t *testing.T, name string, fn func(t *testing.T, db *storetest.DB)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, fn)
	})
}

func withPriority(n int) func(*orchestrator.Submission) {
	return func(s *orchestrator.Submission) { s.Priority = n }
}

func TestQueue(t *testing.T) {
	t.Parallel()

	withHarness(t, "is ordered by priority, then arrival", func(t *testing.T, h *harness) {
		h.worker(t, "a", 1, "work")
		has := h.submit(t, "work", nil).ID
		ids := map[string]string{}
		for i, priority := range []int{1, 0, 3, 1, 3} {
			h.DB.Clock.Advance(time.Millisecond)
			ids[h.submit(t, "work", withPriority(priority)).ID] = string(rune('1' + i))
		}
		order := ""
		for range ids {
			_, err := h.Complete(t.Context(), "a", has, orchestrator.Result{})
			require.NoError(t, err)
			var next []string
			require.Eventually(t, func() bool {
				var err error
				next, err = h.DB.Tasks(t.Context()).OpenOf("a", 2)
				return err == nil && len(next) == 1
			}, time.Minute, 5*time.Millisecond)
			has = next[0]
			order += ids[has]
		}
		require.Equal(t, "35142", order)
		requireSound(t, h)
		requireLegalEvents(t, h)
	})

	withDatabase(t, "goes before new tasks", func(t *testing.T, db *storetest.DB) {
		h := start(t, db, nil)
		h.worker(t, "a", 1, "work")
		has := h.submit(t, "work", nil).ID
		waiting := h.submit(t, "work", nil).ID
		h.Stop() // the queue is not served now
		_, err := h.Complete(t.Context(), "a", has, orchestrator.Result{})
		require.NoError(t, err)
		db.Clock.Advance(time.Second)
		late, urgent := h.submit(t, "work", nil), h.submit(t, "work", withPriority(2))
		require.Equal(t, models.WaitForWorker, late.WaitingFor, "a slot is free, but another task is queued")
		require.Equal(t, "a", urgent.AgentID, "a higher priority goes first")
		_, err = h.Complete(t.Context(), "a", urgent.ID, orchestrator.Result{})
		require.NoError(t, err)
		h = start(t, db, nil)
		h.WaitForTask(t, waiting, func(t models.Task) bool { return t.AgentID == "a" })
		stays, err := h.Task(t.Context(), late.ID)
		require.NoError(t, err)
		require.Equal(t, models.WaitForWorker, stays.WaitingFor)
		requireSound(t, h)
	})

	withDatabase(t, "is served when any replica frees a slot", func(t *testing.T, db *storetest.DB) {
		here, there := start(t, db, nil), start(t, secondReplica(t, db), nil)
		here.worker(t, "a", 1, "work")
		require.NoError(t, there.ReindexAgent(t.Context(), "a"))
		first := here.submit(t, "work", nil)
		require.Eventually(t, func() bool { return there.CachedWorker("a").InFlight == 1 }, time.Minute, 5*time.Millisecond, "it reads the change")
		second := there.submit(t, "work", nil)
		require.Equal(t, models.WaitForWorker, second.WaitingFor)
		_, err := there.Complete(t.Context(), "a", first.ID, orchestrator.Result{})
		require.NoError(t, err)
		here.WaitForTask(t, second.ID, func(t models.Task) bool { return t.AgentID == "a" })
		require.Len(t, there.inbox(t, "a"), 1)
		requireSound(t, here)
		requireLegalEvents(t, there)
	})

	withHarness(t, "is served when a worker joins or gets more slots", func(t *testing.T, h *harness) {
		h.worker(t, "a", 1, "work")
		h.submit(t, "work", nil)
		second, third := h.submit(t, "work", nil).ID, h.submit(t, "work", nil).ID
		_, err := h.Join(t.Context(), "a", orchestrator.JoinRequest{Protocol: "plain", Transport: "poll", Concurrency: 2})
		require.NoError(t, err)
		h.WaitForTask(t, second, func(t models.Task) bool { return t.AgentID == "a" })
		h.worker(t, "b", 1, "work")
		h.WaitForTask(t, third, func(t models.Task) bool { return t.AgentID == "b" })
		requireSound(t, h)
	})

	withDatabase(t, "rejects tasks above its limit", func(t *testing.T, db *storetest.DB) {
		h := start(t, db, &orchestrator.Options{MaxQueue: 2})
		h.worker(t, "a", 1, "work")
		for range 3 {
			h.submit(t, "work", nil)
		}
		before := allRows(t, h)
		_, err := h.Submit(t.Context(), operator(), orchestrator.Submission{Capabilities: []string{"work"}, RequestID: "r"}, nil)
		require.Equal(t, errs.Busy, errs.CodeOf(err))
		requireUnchanged(t, h, before, "Submit")
	})

	withHarness(t, "is not blocked by a preference of its first task", func(t *testing.T, h *harness) {
		h.worker(t, "a", 1, "work")
		first := h.submit(t, "work", nil).ID
		_, err := h.Complete(t.Context(), "a", first, orchestrator.Result{Failure: orchestrator.FailureResource})
		require.NoError(t, err)
		h.worker(t, "b", 1, "work")
		h.submit(t, "work", func(s *orchestrator.Submission) { longTimeout(s); s.AgentID = "b" })
		task := h.advanceUntil(t, first, time.Second, func(t models.Task) bool { return t.WaitingFor == models.NotWaiting })
		require.Equal(t, "a", task.AgentID, "b is preferred but full, and a is free")
		requireSound(t, h)
	})

	withHarness(t, "prefers an agent that has not failed", func(t *testing.T, h *harness) {
		h.worker(t, "a", 1, "work")
		id := h.submit(t, "work", nil).ID
		_, err := h.Complete(t.Context(), "a", id, orchestrator.Result{Failure: orchestrator.FailureResource})
		require.NoError(t, err)
		h.DB.Clock.Advance(500 * time.Millisecond)
		h.worker(t, "b", 1, "work")
		h.submit(t, "work", func(s *orchestrator.Submission) { s.AgentID = "b" })
		other := h.inbox(t, "b")[0].TaskID
		_, err = h.Complete(t.Context(), "b", other, orchestrator.Result{}) // b was used last
		require.NoError(t, err)
		task := h.advanceUntil(t, id, 500*time.Millisecond, waitsFor(models.NotWaiting))
		require.Equal(t, "b", task.AgentID)
	})

	withHarness(t, "retries with the requested agent", func(t *testing.T, h *harness) {
		h.worker(t, "a", 1, "work")
		id := h.submit(t, "work", func(s *orchestrator.Submission) { s.AgentID = "a" }).ID
		_, err := h.Complete(t.Context(), "a", id, orchestrator.Result{Failure: orchestrator.FailureResource})
		require.NoError(t, err)
		task := h.advanceUntil(t, id, time.Second, func(t models.Task) bool { return t.Attempt == 2 })
		require.Equal(t, "a", task.AgentID)
		require.Equal(t, models.NotWaiting, task.WaitingFor)
	})
}

// secondReplica opens the database as another process does; SQLite has only one.
func secondReplica(t *testing.T, db *storetest.DB) *storetest.DB {
	t.Helper()
	if db.Database() == "sqlite" {
		return db
	}
	s, err := store.Open(t.Context(), db.Options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return &storetest.DB{Store: s, Options: db.Options, Clock: db.Clock}
}

func TestSession(t *testing.T) {
	t.Parallel()

	withHarness(t, "counts its tasks and closes when idle", func(t *testing.T, h *harness) {
		h.worker(t, "a", 2, "work")
		s, err := h.OpenSession(t.Context(), operator(), "s", []byte(`{"k":1}`))
		require.NoError(t, err)
		in := func(sub *orchestrator.Submission) { sub.SessionID = s.ID }
		first, second := h.submit(t, "work", in).ID, h.submit(t, "work", in).ID
		_, err = h.CloseSession(t.Context(), "s")
		require.Equal(t, errs.TaskState, errs.CodeOf(err))
		_, err = h.Cancel(t.Context(), first, "", nil)
		require.NoError(t, err)
		s, err = h.Session(t.Context(), "s")
		require.NoError(t, err)
		require.Equal(t, []int{1, 2}, []int{s.OpenTasks, s.Tasks})
		_, err = h.Complete(t.Context(), "a", second, orchestrator.Result{})
		require.NoError(t, err)
		h.DB.Clock.Advance(time.Hour + time.Microsecond)
		require.Eventually(t, func() bool {
			s, err = h.Session(t.Context(), "s")
			return err == nil && s.State == models.SessionClosed
		}, time.Minute, 5*time.Millisecond)
		require.Equal(t, h.DB.Now(), *s.ClosedAt)
		require.Equal(t, []string{"s"}, h.query(t, "SELECT key FROM events WHERE type = 'session.closed'"))
		before := allRows(t, h)
		_, err = h.Submit(t.Context(), operator(), orchestrator.Submission{Capabilities: []string{"work"}, SessionID: "s"}, nil)
		require.Equal(t, errs.TaskState, errs.CodeOf(err))
		requireUnchanged(t, h, before, "Submit")
		again, err := h.CloseSession(t.Context(), "s")
		require.NoError(t, err)
		require.Equal(t, s, again)
		requireSound(t, h)
	})

	withHarness(t, "belongs to its owner and stays open with open tasks", func(t *testing.T, h *harness) {
		h.worker(t, "a", 2, "work")
		owner := models.Principal{TokenID: "owner", Scopes: []models.Scope{models.ScopeMessagesSend}}
		_, err := h.OpenSession(t.Context(), owner, "s", nil)
		require.NoError(t, err)
		_, err = h.OpenSession(t.Context(), owner, "s", nil)
		require.Equal(t, errs.Conflict, errs.CodeOf(err))
		other := models.Principal{TokenID: "other", Scopes: owner.Scopes}
		_, err = h.Submit(t.Context(), other, orchestrator.Submission{Capabilities: []string{"work"}, SessionID: "s"}, nil)
		require.Equal(t, errs.NotFound, errs.CodeOf(err))
		out, err := h.Submit(t.Context(), owner, orchestrator.Submission{Capabilities: []string{"work"}, SessionID: "s", Override: orchestrator.Override{TimeoutMS: 1000 * 3600 * 24}}, nil)
		require.NoError(t, err)
		_, err = h.OpenSession(t.Context(), owner, "idle", nil)
		require.NoError(t, err)
		h.DB.Clock.Advance(2 * time.Hour)
		require.Eventually(t, func() bool {
			s, err := h.Session(t.Context(), "idle")
			return err == nil && s.State == models.SessionClosed
		}, time.Minute, 5*time.Millisecond)
		s, err := h.Session(t.Context(), "s")
		require.NoError(t, err)
		require.Equal(t, models.SessionOpen, s.State)
		_, err = h.Complete(t.Context(), "a", out.Task.ID, orchestrator.Result{})
		require.NoError(t, err)
		requireSound(t, h)
	})
}
