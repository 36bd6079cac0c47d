package orchestrator_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/orchestrator"
	"comet/internal/testkit"
	"comet/models"
	"comet/store/storetest"
)

// longTimeout sets a timeout of a day.
func longTimeout(s *orchestrator.Submission) { s.Override.TimeoutMS = (24 * time.Hour).Milliseconds() }

func waitsFor(what models.WaitReason) func(models.Task) bool {
	return func(t models.Task) bool { return t.WaitingFor == what }
}

// waitForWorker waits until the cached worker satisfies a condition.
func (h *harness) waitForWorker(t *testing.T, agentID string, right func(models.Worker) bool) {
	t.Helper()
	require.Eventually(t, func() bool { return right(h.CachedWorker(agentID)) }, time.Minute, 5*time.Millisecond)
	require.NoError(t, h.ReindexAgent(t.Context(), agentID))
}

func TestTimers(t *testing.T) {
	t.Parallel()

	withHarness(t, "retry a silent attempt after 1, 2 and 4 seconds", func(t *testing.T, h *harness) {
		h.worker(t, "a", 1, "work")
		id := h.submit(t, "work", nil).ID
		for n, pause := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
			require.Equal(t, h.DB.Now().Add(30*time.Second), h.task(t, id).Deadline)
			task := h.advanceUntil(t, id, 30*time.Second, waitsFor(models.WaitForRetry))
			require.Equal(t, models.TaskNew, task.State)
			require.Equal(t, h.DB.Now().Add(pause), h.task(t, id).Deadline)
			task = h.advanceUntil(t, id, pause, waitsFor(models.NotWaiting))
			require.Equal(t, n+2, task.Attempt)
		}
		task := h.advanceUntil(t, id, 30*time.Second, testkit.Ended)
		require.Equal(t, models.TaskFailed, task.State)
		require.Equal(t, string(orchestrator.FailureTimeout), task.ErrorCode)
		require.Equal(t, 4, task.Attempt)
		requireSound(t, h)
		requireLegalEvents(t, h)
	})

	withHarness(t, "progress extends the deadline, a heartbeat does not", func(t *testing.T, h *harness) {
		h.worker(t, "a", 1, "work")
		id := h.submit(t, "work", nil).ID
		first := h.task(t, id)
		h.DB.Clock.Advance(20 * time.Second)
		moved, err := h.Progress(t.Context(), "a", id, orchestrator.Progress{Percent: new(10)})
		require.NoError(t, err)
		require.Equal(t, h.DB.Now().Add(30*time.Second), moved.Deadline)
		h.DB.Clock.Advance(10 * time.Second)
		require.Equal(t, first.Deadline, h.DB.Now(), "the old timer is due")
		require.Equal(t, moved, h.task(t, id), "it was set again")
		_, err = h.Heartbeat(t.Context(), "a", orchestrator.Heartbeat{})
		require.NoError(t, err)
		after, err := h.Task(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, moved, after)
		h.advanceUntil(t, id, 20*time.Second, waitsFor(models.WaitForRetry))
		require.Equal(t, []string{models.MessageCancel}, h.inboxKinds(t, "a"), "it may still be working")
	})

	withHarness(t, "end the wait in the queue", func(t *testing.T, h *harness) {
		h.worker(t, "a", 1, "work")
		h.submit(t, "work", longTimeout)
		task := h.submit(t, "work", nil)
		require.Equal(t, models.WaitForWorker, task.WaitingFor)
		require.Equal(t, h.DB.Now().Add(10*time.Minute), h.task(t, task.ID).Deadline)
		task = h.advanceUntil(t, task.ID, 10*time.Minute, testkit.Ended)
		require.Equal(t, string(orchestrator.FailureSaturated), task.ErrorCode)
		require.Zero(t, task.Attempt)
		requireSound(t, h)
		requireLegalEvents(t, h)
	})

	withHarness(t, "end the wait for a reply", func(t *testing.T, h *harness) {
		h.worker(t, "a", 1, "work")
		id := h.submit(t, "work", nil).ID
		_, err := h.Clarify(t.Context(), "a", id, orchestrator.Question{Text: "?"})
		require.NoError(t, err)
		require.Equal(t, h.DB.Now().Add(time.Minute), h.task(t, id).Deadline)
		task := h.advanceUntil(t, id, time.Minute, testkit.Ended)
		require.Equal(t, string(orchestrator.FailureUnanswered), task.ErrorCode)
		requireSound(t, h)
		requireLegalEvents(t, h)
	})

	withHarness(t, "retry while no agent is online", func(t *testing.T, h *harness) {
		h.AddAgent(t, "a", "", "work")
		task := h.submit(t, "work", nil)
		require.Equal(t, models.WaitForRetry, task.WaitingFor)
		require.Equal(t, 1, task.Attempt)
		_, err := h.Join(t.Context(), "a", orchestrator.JoinRequest{Protocol: "plain", Transport: "poll"})
		require.NoError(t, err)
		task = h.advanceUntil(t, task.ID, time.Second, waitsFor(models.NotWaiting))
		require.Equal(t, "a", task.AgentID)
		require.Equal(t, 2, task.Attempt)

		require.NoError(t, h.Leave(t.Context(), "a", false))
		task = h.submit(t, "work", func(s *orchestrator.Submission) { s.Override.Retries = new(0) })
		require.Equal(t, models.TaskFailed, task.State, "it is not retried")
		require.Equal(t, string(orchestrator.FailureUnavailable), task.ErrorCode)
		requireSound(t, h)
		requireLegalEvents(t, h)
	})

	withDatabase(t, "wait until the agents are read", func(t *testing.T, db *storetest.DB) {
		h := start(t, db, nil)
		h.worker(t, "a", 1, "work")
		id := h.submit(t, "work", func(s *orchestrator.Submission) { s.Override.Retries = new(1) }).ID
		h.advanceUntil(t, id, 30*time.Second, waitsFor(models.WaitForRetry))
		h.Stop()
		withManyAgents(t, db) // reading them takes longer than reading the deadline
		db.Clock.Advance(time.Minute)
		h = startUnready(t, db, orchestrator.Options{})
		task := h.WaitForTask(t, id, func(t models.Task) bool { return t.WaitingFor != models.WaitForRetry })
		require.Equal(t, "a", task.AgentID)
		require.Equal(t, 2, task.Attempt)
	})

	t.Run("survive a restart", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, db *storetest.DB) {
			h := start(t, db, nil)
			h.worker(t, "a", 2, "work")
			silent := h.submit(t, "work", func(s *orchestrator.Submission) { s.Override.Retries = new(1) }).ID
			asking := h.submit(t, "work", nil).ID
			_, err := h.Clarify(t.Context(), "a", asking, orchestrator.Question{Text: "?"})
			require.NoError(t, err)
			waiting := h.submit(t, "work", nil).ID
			h.Stop()
			later := func() {
				t.Helper()
				db.Clock.Advance(30 * time.Second)
				_, err := h.KeepAlive(t.Context(), []string{"a"}) // it stays connected
				require.NoError(t, err)
			}
			later()

			h = start(t, db, nil)
			h.WaitForTask(t, silent, waitsFor(models.WaitForRetry))
			h.WaitForTask(t, waiting, func(t models.Task) bool { return t.AgentID == "a" })
			h.Stop()
			later()

			h = start(t, db, nil)
			h.WaitForTask(t, asking, testkit.Ended)
			h.WaitForTask(t, silent, func(t models.Task) bool { return t.Attempt == 2 })
			h.WaitForTask(t, waiting, waitsFor(models.WaitForRetry))
			requireSound(t, h)
			requireLegalEvents(t, h)
		})
	})
}

func TestBreaker(t *testing.T) {
	t.Parallel()

	// broken lets five attempts of "a" in a row time out, while one continues.
	broken := func(t *testing.T, h *harness) (goesOn string) {
		t.Helper()
		h.worker(t, "a", 10, "work")
		goesOn = h.submit(t, "work", longTimeout).ID
		var failing []string
		for range 5 {
			failing = append(failing, h.submit(t, "work", func(s *orchestrator.Submission) { s.Override.Retries = new(0) }).ID)
		}
		for _, id := range failing[1:] {
			_, err := h.Accept(t.Context(), "a", id)
			require.NoError(t, err)
		}
		h.DB.Clock.Advance(30 * time.Second)
		for _, id := range failing {
			h.WaitForTask(t, id, testkit.Ended)
		}
		h.waitForWorker(t, "a", func(w models.Worker) bool { return !w.BreakerUntil.IsZero() })
		return goesOn
	}
	worker := func(t *testing.T, h *harness) models.Worker {
		t.Helper()
		w, err := h.Worker(t.Context(), "a")
		require.NoError(t, err)
		return w
	}

	withHarness(t, "opens after five failures in a row", func(t *testing.T, h *harness) {
		goesOn := broken(t, h)
		require.Equal(t, h.DB.Now().Add(time.Minute), worker(t, h).BreakerUntil)
		require.Equal(t, []string{"a"}, h.query(t, "SELECT key FROM events WHERE type = 'worker.breaker_opened'"))
		refused := h.submit(t, "work", nil)
		require.Equal(t, models.WaitForRetry, refused.WaitingFor, "no new task")
		_, err := h.Progress(t.Context(), "a", goesOn, orchestrator.Progress{Percent: new(50)})
		require.NoError(t, err)
		_, err = h.Complete(t.Context(), "a", goesOn, orchestrator.Result{})
		require.NoError(t, err, "its attempts continue")
		require.Equal(t, h.DB.Now().Add(time.Minute), worker(t, h).BreakerUntil, "they do not count")
		requireSound(t, h)
	})

	withHarness(t, "is closed by a heartbeat after a minute, not by a task", func(t *testing.T, h *harness) {
		broken(t, h)
		h.DB.Clock.Advance(40 * time.Second)
		_, err := h.Heartbeat(t.Context(), "a", orchestrator.Heartbeat{})
		require.NoError(t, err)
		require.False(t, worker(t, h).BreakerUntil.IsZero(), "too early")
		h.DB.Clock.Advance(20 * time.Second)
		require.Eventually(t, func() bool { return worker(t, h).Probing }, time.Minute, 5*time.Millisecond, "a heartbeat is requested")
		require.Equal(t, models.WaitForRetry, h.submit(t, "work", nil).WaitingFor, "no task is the probe")
		offline, err := h.KeepAlive(t.Context(), []string{"a"})
		require.NoError(t, err)
		require.Empty(t, offline)
		w := worker(t, h)
		require.True(t, w.BreakerUntil.IsZero())
		require.False(t, w.Probing)
		require.Zero(t, w.Failures)
		require.Equal(t, "a", h.submit(t, "work", nil).AgentID)
	})

	withHarness(t, "ignores failed work and cancellations", func(t *testing.T, h *harness) {
		h.worker(t, "a", 10, "work")
		once := func(s *orchestrator.Submission) { s.Override.Retries = new(0) }
		silent := func(n int) {
			t.Helper()
			var ids []string
			for range n {
				ids = append(ids, h.submit(t, "work", once).ID)
			}
			h.DB.Clock.Advance(30 * time.Second)
			for _, id := range ids {
				h.WaitForTask(t, id, testkit.Ended)
			}
			_, err := h.KeepAlive(t.Context(), []string{"a"})
			require.NoError(t, err)
		}
		silent(4)
		id := h.submit(t, "work", nil).ID
		_, err := h.Cancel(t.Context(), id, "", nil)
		require.NoError(t, err)
		require.Equal(t, 4, worker(t, h).Failures, "a cancellation does not count")
		id = h.submit(t, "work", nil).ID
		_, err = h.Complete(t.Context(), "a", id, orchestrator.Result{Failure: orchestrator.FailureWork})
		require.NoError(t, err)
		require.Zero(t, worker(t, h).Failures, "a result resets the failures")
		silent(4)
		require.True(t, worker(t, h).BreakerUntil.IsZero())
		silent(1)
		require.False(t, worker(t, h).BreakerUntil.IsZero())
	})
}

func TestSilentWorker(t *testing.T) {
	t.Parallel()

	withHarness(t, "is offline after three missed heartbeats", func(t *testing.T, h *harness) {
		h.worker(t, "a", 2, "work")
		has := h.submit(t, "work", longTimeout).ID
		h.DB.Clock.Advance(45*time.Second + time.Microsecond)
		h.waitForWorker(t, "a", func(w models.Worker) bool { return w.State == models.WorkerOffline })
		require.Equal(t, models.WaitForRetry, h.submit(t, "work", nil).WaitingFor)
		_, err := h.Progress(t.Context(), "a", has, orchestrator.Progress{})
		require.NoError(t, err, "its attempts continue")
		offline, err := h.KeepAlive(t.Context(), []string{"a"})
		require.NoError(t, err)
		require.Equal(t, []string{"a"}, offline, "it has to join again")
		_, err = h.Heartbeat(t.Context(), "a", orchestrator.Heartbeat{})
		require.NoError(t, err)
		require.Equal(t, "a", h.submit(t, "work", nil).AgentID)
		requireSound(t, h)
	})

	withHarness(t, "stays online on a newer connection", func(t *testing.T, h *harness) {
		h.AddAgent(t, "a", "", "work")
		for _, connection := range []string{"old", "new"} {
			_, err := h.Join(t.Context(), "a", orchestrator.JoinRequest{Protocol: "plain", Transport: "websocket", ConnectionID: connection})
			require.NoError(t, err)
		}
		for _, c := range []struct {
			connection string
			want       models.WorkerState
		}{{"old", models.WorkerOnline}, {"new", models.WorkerOffline}} {
			require.NoError(t, h.Disconnect(t.Context(), "a", c.connection))
			w, err := h.Worker(t.Context(), "a")
			require.NoError(t, err)
			require.Equal(t, c.want, w.State, "the %s connection has ended", c.connection)
		}
	})
}
