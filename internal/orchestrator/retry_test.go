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

// TestUseFirstOption covers a question without a reply in time.
func TestUseFirstOption(t *testing.T) {
	t.Parallel()
	asked := func(t *testing.T, h *harness, options ...string) string {
		t.Helper()
		h.worker(t, "a", 1, "work")
		id := h.submit(t, "work", func(s *orchestrator.Submission) { s.Override.UseFirstOption = new(true) }).ID
		_, err := h.Clarify(t.Context(), "a", id, orchestrator.Question{Text: "which?", Options: options})
		require.NoError(t, err)
		return id
	}
	withHarness(t, "replies with the first option", func(t *testing.T, h *harness) {
		id := asked(t, h, "quick", "thorough")
		task := h.advanceUntil(t, id, time.Minute, waitsFor(models.NotWaiting))
		require.Equal(t, models.TaskRunning, task.State)
		messages, err := h.Messages(t.Context(), "a", 10)
		require.NoError(t, err)
		require.Len(t, messages, 1)
		require.Equal(t, models.MessageReply, messages[0].Kind)
		require.JSONEq(t, `{"answer":"quick"}`, string(messages[0].Data))
		require.Equal(t, h.DB.Now().Add(30*time.Second), h.task(t, id).Deadline, "it continues")
		requireSound(t, h)
		requireLegalEvents(t, h)
	})
	withHarness(t, "ends the attempt without options", func(t *testing.T, h *harness) {
		task := h.advanceUntil(t, asked(t, h), time.Minute, testkit.Ended)
		require.Equal(t, string(orchestrator.FailureUnanswered), task.ErrorCode)
		requireSound(t, h)
	})
}

// TestRetryLimits covers failures that are retried less often than others.
func TestRetryLimits(t *testing.T) {
	t.Parallel()
	withDatabase(t, "one retry for one kind of failure", func(t *testing.T, db *storetest.DB) {
		h := start(t, db, &orchestrator.Options{Classes: map[string]orchestrator.Policy{"limited": {
			Timeout: time.Hour, QueueTimeout: time.Hour, Retries: 3, Backoff: []time.Duration{time.Second}, RetryOn: []orchestrator.Failure{orchestrator.FailureResource},
			RetryLimits: map[orchestrator.Failure]int{orchestrator.FailureResource: 1},
		}}})
		h.worker(t, "a", 1, "work")
		id := h.submit(t, "work", func(s *orchestrator.Submission) { s.Class = "limited" }).ID
		_, err := h.Complete(t.Context(), "a", id, orchestrator.Result{Failure: orchestrator.FailureResource})
		require.NoError(t, err)
		task := h.advanceUntil(t, id, time.Second, waitsFor(models.NotWaiting))
		require.Equal(t, 2, task.Attempt)
		_, err = h.Complete(t.Context(), "a", id, orchestrator.Result{Failure: orchestrator.FailureResource})
		require.NoError(t, err)
		task, err = h.Task(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, models.TaskFailed, task.State)
		requireSound(t, h)
	})
}

// TestFallback covers a submission that names its fallback agent.
func TestFallback(t *testing.T) {
	t.Parallel()
	begun := func(t *testing.T, h *harness, fallback string) string {
		t.Helper()
		h.worker(t, "a", 1, "work")
		id := h.submit(t, "work", func(s *orchestrator.Submission) { s.Override.Fallback = fallback }).ID
		h.worker(t, "b", 5, "work")
		h.worker(t, "c", 1, "work")
		_, err := h.Heartbeat(t.Context(), "c", orchestrator.Heartbeat{Load: new(90)}) // it would be the last choice
		require.NoError(t, err)
		_, err = h.Complete(t.Context(), "a", id, orchestrator.Result{Failure: orchestrator.FailureUnavailable})
		require.NoError(t, err)
		return id
	}
	withHarness(t, "gets the next attempt", func(t *testing.T, h *harness) {
		task := h.advanceUntil(t, begun(t, h, "c"), time.Second, waitsFor(models.NotWaiting))
		require.Equal(t, "c", task.AgentID)
		requireSound(t, h)
	})
	withHarness(t, "is skipped while offline", func(t *testing.T, h *harness) {
		id := begun(t, h, "c")
		require.NoError(t, h.Leave(t.Context(), "c", false))
		task := h.advanceUntil(t, id, time.Second, waitsFor(models.NotWaiting))
		require.Equal(t, "b", task.AgentID)
		requireSound(t, h)
	})
	withHarness(t, "is not used again after its own failure", func(t *testing.T, h *harness) {
		task := h.advanceUntil(t, begun(t, h, "a"), time.Second, waitsFor(models.NotWaiting))
		require.Equal(t, "b", task.AgentID)
		requireSound(t, h)
	})
}
