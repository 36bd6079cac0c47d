package orchestrator_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/models"
	"comet/store/storetest"
)

// subtask is a hand-off whose request id makes it happen once.
func subtask(messageID string, budget int64) orchestrator.Submission {
	return orchestrator.Submission{Capabilities: []string{"generate_tests"}, RequestID: messageID, Budget: &budget}
}

// startSource submits a task with 1,000 tokens to w-1; w-2 executes its hand-offs.
func (h *harness) startSource(t *testing.T) string {
	t.Helper()
	h.worker(t, "w-1", 4, "code_write")
	h.worker(t, "w-2", 4, "generate_tests")
	return h.submit(t, "code_write", withBudget(1000)).ID
}

// requireSplitBudget checks how many subtasks a task has, and how much of its budget is left and
// reserved.
func requireSplitBudget(t *testing.T, h *harness, id string, subtasks int, left int64) {
	t.Helper()
	require.Equal(t, []string{strconv.Itoa(subtasks)}, h.query(t, "SELECT count(*) FROM tasks WHERE parent_id = '"+id+"'"))
	task, err := h.Task(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, left, *task.Budget)
	requireHeld(t, h, "w-1", left)
	requireHeld(t, h, "w-2", 1000-left)
	requireSound(t, h)
	requireLegalEvents(t, h)
}

// TestRepeatedHandOff checks that a hand-off with a request id happens once.
func TestRepeatedHandOff(t *testing.T) {
	t.Parallel()

	withHarness(t, "makes one subtask", func(t *testing.T, h *harness) {
		id := h.startSource(t)
		first, err := h.HandOff(t.Context(), operator(), "w-1", id, subtask("m-1", 300))
		require.NoError(t, err)
		require.False(t, first.Replayed)
		requireSplitBudget(t, h, id, 1, 700)
		before := allRows(t, h)
		for range 3 {
			again, err := h.HandOff(t.Context(), operator(), "w-1", id, subtask("m-1", 300))
			require.NoError(t, err)
			require.True(t, again.Replayed)
			require.Equal(t, first.Task, again.Task)
		}
		requireUnchanged(t, h, before, "HandOff")
		require.Len(t, h.inbox(t, "w-2"), 1, "its agent gets one message")
		other, err := h.HandOff(t.Context(), operator(), "w-1", id, subtask("m-2", 300))
		require.NoError(t, err)
		require.NotEqual(t, first.Task.ID, other.Task.ID, "another request makes another subtask")
		requireSplitBudget(t, h, id, 2, 400)
	})

	withHarness(t, "needs no budget for the repetition", func(t *testing.T, h *harness) {
		id := h.startSource(t)
		first, err := h.HandOff(t.Context(), operator(), "w-1", id, subtask("m-1", 600))
		require.NoError(t, err)
		again, err := h.HandOff(t.Context(), operator(), "w-1", id, subtask("m-1", 600))
		require.NoError(t, err)
		require.Equal(t, first.Task.ID, again.Task.ID)
		requireSplitBudget(t, h, id, 1, 400)
	})

	withHarness(t, "returns a subtask that has ended", func(t *testing.T, h *harness) {
		id := h.startSource(t)
		first, err := h.HandOff(t.Context(), operator(), "w-1", id, subtask("m-1", 300))
		require.NoError(t, err)
		_, err = h.Complete(t.Context(), "w-2", first.Task.ID, orchestrator.Result{Tokens: 100})
		require.NoError(t, err)
		before := allRows(t, h)
		again, err := h.HandOff(t.Context(), operator(), "w-1", id, subtask("m-1", 300))
		require.NoError(t, err)
		require.Equal(t, models.TaskDone, again.Task.State, "it returns the end")
		requireUnchanged(t, h, before, "HandOff")
		require.Equal(t, []string{models.MessageTaskEnded}, h.inboxKinds(t, "w-1"), "once")
	})

	withHarness(t, "rejects other content", func(t *testing.T, h *harness) {
		id := h.startSource(t)
		_, err := h.HandOff(t.Context(), operator(), "w-1", id, subtask("m-1", 300))
		require.NoError(t, err)
		before := allRows(t, h)
		_, err = h.HandOff(t.Context(), operator(), "w-1", id, subtask("m-1", 200))
		require.Equal(t, errs.RequestIDReused, errs.CodeOf(err))
		requireUnchanged(t, h, before, "HandOff")
	})

	withHarness(t, "may follow a rejected one", func(t *testing.T, h *harness) {
		id := h.startSource(t)
		before := allRows(t, h)
		_, err := h.HandOff(t.Context(), operator(), "w-1", id, subtask("m-1", 1000))
		require.Equal(t, errs.BudgetExceeded, errs.CodeOf(err))
		unknown := subtask("m-2", 100)
		unknown.Capabilities = []string{"fly"}
		_, err = h.HandOff(t.Context(), operator(), "w-1", id, unknown)
		require.Equal(t, errs.UnsupportedWork, errs.CodeOf(err))
		requireUnchanged(t, h, before, "HandOff")
		for _, message := range []string{"m-1", "m-2"} { // neither request id is in use
			out, err := h.HandOff(t.Context(), operator(), "w-1", id, subtask(message, 300))
			require.NoError(t, err)
			require.False(t, out.Replayed)
		}
		requireSplitBudget(t, h, id, 2, 400)
	})

	withDatabase(t, "concurrently on two replicas", func(t *testing.T, db *storetest.DB) {
		h := start(t, db, nil)
		id := h.startSource(t)
		there := start(t, secondReplica(t, db), nil)
		var (
			all    sync.WaitGroup
			mu     sync.Mutex
			made   = map[string]int{} // subtask → how often it was reported as new
			failed error
		)
		for i := range 16 {
			all.Go(func() {
				out, err := []*harness{h, there}[i%2].HandOff(context.Background(), operator(), "w-1", id, subtask("m-1", 300))
				mu.Lock()
				defer mu.Unlock()
				failed = errors.Join(failed, err)
				if made[out.Task.ID] += 0; !out.Replayed {
					made[out.Task.ID]++
				}
			})
		}
		all.Wait()
		require.NoError(t, failed)
		require.Len(t, made, 1)
		for _, n := range made {
			require.Equal(t, 1, n)
		}
		requireSplitBudget(t, h, id, 1, 700)
	})
}
