package orchestrator_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/models"
)

// TestQueuedForFullAgent covers a task whose only suitable agent is full, while the budget of a
// free one does not cover it.
func TestQueuedForFullAgent(t *testing.T) {
	t.Parallel()
	withHarness(t, "is skipped and does not fail", func(t *testing.T, h *harness) {
		h.worker(t, "rich", 1, "work")
		h.worker(t, "poor", 1, "work")
		of := func(agent string) func(*orchestrator.Submission) {
			return func(s *orchestrator.Submission) { longTimeout(s); s.AgentID = agent }
		}
		onRich, onPoor := h.submit(t, "work", of("rich")).ID, h.submit(t, "work", of("poor")).ID
		dear := h.submit(t, "work", withBudget(1000)).ID
		cheap := h.submit(t, "work", withBudget(100)).ID
		_, err := h.Complete(t.Context(), "poor", onPoor, orchestrator.Result{Tokens: 49_500})
		require.NoError(t, err)
		h.waitUntilAssigned(t, cheap, "poor")
		task, err := h.Task(t.Context(), dear)
		require.NoError(t, err)
		require.Equal(t, models.WaitForWorker, task.WaitingFor, "%s %s", task.State, task.Error)
		_, err = h.Complete(t.Context(), "rich", onRich, orchestrator.Result{})
		require.NoError(t, err)
		h.waitUntilAssigned(t, dear, "rich")
		requireSound(t, h)
		requireLegalEvents(t, h)
	})
}

// TestRepeatedHandOffAfterParentEnd checks that a repeated hand-off gets the same result,
// whatever happened to its parent.
func TestRepeatedHandOffAfterParentEnd(t *testing.T) {
	t.Parallel()
	withHarness(t, "when its parent has ended", func(t *testing.T, h *harness) {
		id := h.startSource(t)
		first, err := h.HandOff(t.Context(), operator(), "w-1", id, subtask("m-1", 300))
		require.NoError(t, err)
		_, err = h.Complete(t.Context(), "w-1", id, orchestrator.Result{})
		require.NoError(t, err)
		again, err := h.HandOff(t.Context(), operator(), "w-1", id, subtask("m-1", 300))
		require.NoError(t, err)
		require.Equal(t, first.Task.ID, again.Task.ID)
	})
	withHarness(t, "when its parent has the maximum number of subtasks", func(t *testing.T, h *harness) {
		h.worker(t, "w-1", 200, "code_write", "generate_tests")
		id := h.submit(t, "code_write", nil).ID
		sub := orchestrator.Submission{Capabilities: []string{"generate_tests"}}
		for range 99 {
			_, err := h.HandOff(t.Context(), operator(), "w-1", id, sub)
			require.NoError(t, err)
		}
		sub.RequestID = "m-100"
		first, err := h.HandOff(t.Context(), operator(), "w-1", id, sub)
		require.NoError(t, err)
		again, err := h.HandOff(t.Context(), operator(), "w-1", id, sub)
		require.NoError(t, err)
		require.Equal(t, first.Task.ID, again.Task.ID)
	})
	withHarness(t, "from another task is another request", func(t *testing.T, h *harness) {
		id := h.startSource(t)
		other := h.submit(t, "code_write", withBudget(1000)).ID
		_, err := h.HandOff(t.Context(), operator(), "w-1", id, subtask("m-1", 300))
		require.NoError(t, err)
		before := allRows(t, h)
		out, err := h.HandOff(t.Context(), operator(), "w-1", other, subtask("m-1", 300))
		require.Equal(t, errs.RequestIDReused, errs.CodeOf(err), "got the subtask of %v, not of %s", out.Task.ParentID, other)
		requireUnchanged(t, h, before, "HandOff")
	})
}
