package orchestrator_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/testkit"
	"comet/models"
)

// connect joins a worker over a connection.
func (h *harness) connect(t *testing.T, id string, connection string) {
	t.Helper()
	_, err := h.Join(t.Context(), id, orchestrator.JoinRequest{Protocol: "plain", Transport: "websocket", ConnectionID: connection, Concurrency: 8})
	require.NoError(t, err)
}

func TestLostWorker(t *testing.T) {
	t.Parallel()

	// lose submits a task of ten minutes to "a", and ends the connection of "a".
	lose := func(t *testing.T, h *harness) string {
		t.Helper()
		h.DB.Clock.Advance(time.Minute) // past the grace after a start
		h.AddAgent(t, "a", "", "work")
		h.connect(t, "a", "first")
		id := h.submit(t, "work", longTimeout).ID
		_, err := h.Accept(t.Context(), "a", id)
		require.NoError(t, err)
		require.NoError(t, h.Disconnect(t.Context(), "a", "first"))
		return id
	}

	withHarness(t, "its attempts go to others after the grace period", func(t *testing.T, h *harness) {
		id := lose(t, h)
		h.worker(t, "b", 1, "work")
		h.DB.Clock.Advance(9 * time.Second)
		require.Equal(t, "a", h.task(t, id).AgentID)
		h.advanceUntil(t, id, time.Second, waitsFor(models.WaitForRetry))
		h.advanceUntil(t, id, time.Second, func(t models.Task) bool { return t.AgentID == "b" })
		attempts, err := h.Attempts(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, string(orchestrator.FailureLost), attempts[0].ErrorCode)
		require.Equal(t, []string{models.MessageCancel}, h.inboxKinds(t, "a"), "it learns it when it returns")
		require.Zero(t, h.CachedWorker("a").Failures, "a lost connection does not count for the breaker")

		h.connect(t, "a", "second")
		out, err := h.Complete(t.Context(), "a", id, orchestrator.Result{Output: []byte("late"), Tokens: 7})
		require.NoError(t, err)
		require.Equal(t, models.TaskDone, out.State)
		_, err = h.Complete(t.Context(), "a", id, orchestrator.Result{Output: []byte("late"), Tokens: 7})
		require.NoError(t, err)
		requireUsed(t, h, "a", 7)
		requireSound(t, h)
	})

	withHarness(t, "it keeps its attempts if it returns in time", func(t *testing.T, h *harness) {
		id := lose(t, h)
		h.worker(t, "b", 1, "work")
		h.DB.Clock.Advance(9 * time.Second)
		h.connect(t, "a", "second")
		h.DB.Clock.Advance(10 * time.Second)
		require.Eventually(t, func() bool {
			_, waits, err := h.DB.Jobs(t.Context()).NextAt([]string{"worker.lost"})
			return err == nil && !waits
		}, testkit.Timeout, 5*time.Millisecond)
		require.Equal(t, "a", h.task(t, id).AgentID)
		require.Equal(t, 1, h.task(t, id).Attempt)
	})

	withHarness(t, "it keeps its attempts while no other agent can have them", func(t *testing.T, h *harness) {
		id := lose(t, h)
		for range 5 {
			h.DB.Clock.Advance(10 * time.Second)
		}
		require.Eventually(t, func() bool { // the job has run and waits for the next time
			at, waits, err := h.DB.Jobs(t.Context()).NextAt([]string{"worker.lost"})
			return err == nil && waits && at.Equal(h.DB.Now().Add(10*time.Second))
		}, testkit.Timeout, 5*time.Millisecond)
		require.Equal(t, 1, h.task(t, id).Attempt)
		h.worker(t, "b", 1, "work")
		h.advanceUntil(t, id, 10*time.Second, waitsFor(models.WaitForRetry))
	})
}

func TestTimeLimits(t *testing.T) {
	t.Parallel()

	withHarness(t, "an attempt that reports progress ends at its limit", func(t *testing.T, h *harness) {
		h.worker(t, "a", 1, "work")
		id := h.submit(t, "work", func(s *orchestrator.Submission) { s.Override.AttemptTimeoutMS = 50_000 }).ID
		for range 2 {
			h.DB.Clock.Advance(20 * time.Second)
			_, err := h.Progress(t.Context(), "a", id, orchestrator.Progress{Percent: new(10)})
			require.NoError(t, err)
		}
		task := h.advanceUntil(t, id, 10*time.Second, waitsFor(models.WaitForRetry))
		require.Equal(t, 1, task.Attempt)
		attempts, err := h.Attempts(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, string(orchestrator.FailureTimeout), attempts[0].ErrorCode)
		require.Equal(t, "the attempt took too long", attempts[0].Error)
	})

	for name, state := range map[string]func(t *testing.T, h *harness) string{
		"while an agent works": func(t *testing.T, h *harness) string {
			h.worker(t, "a", 1, "work")
			return "work"
		},
		"in the queue": func(t *testing.T, h *harness) string {
			h.worker(t, "a", 1, "work")
			h.submit(t, "work", longTimeout)
			return "work"
		},
		"before a retry": func(t *testing.T, h *harness) string {
			h.AddAgent(t, "a", "", "work")
			return "work"
		},
	} {
		withHarness(t, "a task ends at its expires_at "+name, func(t *testing.T, h *harness) {
			id := h.submit(t, state(t, h), func(s *orchestrator.Submission) {
				longTimeout(s)
				s.Override.ExpiresAt = h.DB.Now().Add(500 * time.Millisecond)
			}).ID
			task := h.advanceUntil(t, id, 500*time.Millisecond, testkit.Ended)
			require.Equal(t, string(orchestrator.FailureExpired), task.ErrorCode)
			require.Equal(t, models.TaskFailed, task.State)
			requireSound(t, h)
			requireLegalEvents(t, h)
		})
	}

	withHarness(t, "a task ends at its expires_at while a question waits", func(t *testing.T, h *harness) {
		h.worker(t, "a", 1, "work")
		id := h.submit(t, "work", func(s *orchestrator.Submission) { s.Override.ExpiresAt = h.DB.Now().Add(5 * time.Second) }).ID
		_, err := h.Clarify(t.Context(), "a", id, orchestrator.Question{Text: "which one?", Options: []string{"x", "y"}})
		require.NoError(t, err)
		task := h.advanceUntil(t, id, 5*time.Second, testkit.Ended)
		require.Equal(t, string(orchestrator.FailureExpired), task.ErrorCode)
		requireSound(t, h)
	})

	withHarness(t, "an expires_at in the past is refused", func(t *testing.T, h *harness) {
		h.worker(t, "a", 1, "work")
		_, err := h.Submit(t.Context(), operator(), orchestrator.Submission{Capabilities: []string{"work"}, Override: orchestrator.Override{ExpiresAt: h.DB.Now()}}, nil)
		require.Equal(t, errs.InvalidRequest, errs.CodeOf(err))
	})
}
