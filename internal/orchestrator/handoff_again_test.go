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

// subtask is a piece of work that is handed off with a message, whose id makes it happen
// once.
func subtask(messageID string, budget int64) orchestrator.Submission {
	return orchestrator.Submission{Capabilities: []string{"generate_tests"}, RequestID: messageID, Budget: &budget}
}

// startSource is a task with 1000 tokens that w-1 has; w-2 does what it hands off.
func (h *harness) startSource(t *testing.T) string {
	t.Helper()
	h.worker(t, "w-1", 4, "code_write")
	h.worker(t, "w-2", 4, "generate_tests")
	return h.submit(t, "code_write", withBudget(1000)).ID
}

// requireSplitBudget proves how many parts a task has, and what is left of its budget and is
// held for it.
func requireSplitBudget(t *testing.T, h *harness, id string, parts int, left int64) {
	t.Helper()
	require.Equal(t, []string{strconv.Itoa(parts)}, h.query(t, "SELECT count(*) FROM tasks WHERE parent_id = '"+id+"'"))
	task, err := h.Task(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, left, *task.Budget)
	requireHeld(t, h, "w-1", left)
	requireHeld(t, h, "w-2", 1000-left)
	requireSound(t, h)
	requireLegalEvents(t, h)
}

// TestAHandOffThatIsRepeated with the id of its message happens once.
func TestAHandOffThatIsRepeated(t *testing.T) {
	t.Parallel()

	withHarness(t, "CarvesOnceAndMakesOnePart", func(t *testing.T, h *harness) {
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
		require.Len(t, h.inbox(t, "w-2"), 1, "its agent is told once")
		other, err := h.HandOff(t.Context(), operator(), "w-1", id, subtask("m-2", 300))
		require.NoError(t, err)
		require.NotEqual(t, first.Task.ID, other.Task.ID, "another message is another part")
		requireSplitBudget(t, h, id, 2, 400)
	})

	withHarness(t, "AlsoWhenWhatIsLeftWouldNotCoverItAgain", func(t *testing.T, h *harness) {
		id := h.startSource(t)
		first, err := h.HandOff(t.Context(), operator(), "w-1", id, subtask("m-1", 600))
		require.NoError(t, err)
		again, err := h.HandOff(t.Context(), operator(), "w-1", id, subtask("m-1", 600))
		require.NoError(t, err)
		require.Equal(t, first.Task.ID, again.Task.ID)
		requireSplitBudget(t, h, id, 1, 400)
	})

	withHarness(t, "AlsoWhenThePartHasEnded", func(t *testing.T, h *harness) {
		id := h.startSource(t)
		first, err := h.HandOff(t.Context(), operator(), "w-1", id, subtask("m-1", 300))
		require.NoError(t, err)
		_, err = h.Complete(t.Context(), "w-2", first.Task.ID, orchestrator.Result{Tokens: 100})
		require.NoError(t, err)
		before := allRows(t, h)
		again, err := h.HandOff(t.Context(), operator(), "w-1", id, subtask("m-1", 300))
		require.NoError(t, err)
		require.Equal(t, models.TaskDone, again.Task.State, "it says how it ended")
		requireUnchanged(t, h, before, "HandOff")
		require.Equal(t, []models.MessageKind{models.MessageTaskEnded}, h.inboxKinds(t, "w-1"), "once")
	})

	withHarness(t, "WithAnotherContentIsRefusedAndCarvesNothing", func(t *testing.T, h *harness) {
		id := h.startSource(t)
		_, err := h.HandOff(t.Context(), operator(), "w-1", id, subtask("m-1", 300))
		require.NoError(t, err)
		before := allRows(t, h)
		_, err = h.HandOff(t.Context(), operator(), "w-1", id, subtask("m-1", 200))
		require.Equal(t, errs.RequestIDReused, errs.CodeOf(err))
		requireUnchanged(t, h, before, "HandOff")
	})

	withHarness(t, "MayBeTriedAgainAfterItWasRefused", func(t *testing.T, h *harness) {
		id := h.startSource(t)
		before := allRows(t, h)
		_, err := h.HandOff(t.Context(), operator(), "w-1", id, subtask("m-1", 1000))
		require.Equal(t, errs.BudgetExceeded, errs.CodeOf(err))
		unknown := subtask("m-2", 100)
		unknown.Capabilities = []string{"fly"}
		_, err = h.HandOff(t.Context(), operator(), "w-1", id, unknown)
		require.Equal(t, errs.UnsupportedWork, errs.CodeOf(err))
		requireUnchanged(t, h, before, "HandOff")
		for _, message := range []string{"m-1", "m-2"} { // neither id was used up
			out, err := h.HandOff(t.Context(), operator(), "w-1", id, subtask(message, 300))
			require.NoError(t, err)
			require.False(t, out.Replayed)
		}
		requireSplitBudget(t, h, id, 2, 400)
	})

	withDatabase(t, "ByManyAtOnceOnTwoReplicasCarvesOnce", func(t *testing.T, db *storetest.DB) {
		h := start(t, db, nil)
		id := h.startSource(t)
		there := start(t, secondReplica(t, db), nil)
		var (
			all    sync.WaitGroup
			mu     sync.Mutex
			made   = map[string]int{} // part → how often it was said to be new
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
