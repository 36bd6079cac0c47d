package orchestrator_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/orchestrator"
	"comet/internal/testkit"
	"comet/models"
	"comet/store/storetest"
)

// startWithoutJobs starts an orchestrator whose jobs do not run, like a server in the moment
// before it is killed.
func startWithoutJobs(t *testing.T, db *storetest.DB) *harness {
	t.Helper()
	h := &harness{testkit.NewWork(t, db, orchestrator.Options{}), openRaw(t, db)}
	h.Start(t)
	h.WaitUntilReady(t)
	return h
}

// TestCrashBeforeParentUpdate checks that the next process updates the parent of an ended
// subtask, because the job was committed with the end.
func TestCrashBeforeParentUpdate(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		h := start(t, db, nil)
		h.startThree(t)
		id := h.submit(t, "work", byWorkers(3)).ID
		h.Stop()

		h = startWithoutJobs(t, db)
		subtasks := h.subtasksByAgent(t, id)
		h.complete(t, subtasks["b"], orchestrator.Result{Output: []byte("b's"), Tokens: 5})
		parent, err := h.Task(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, models.TaskRunning, parent.State, "the job has not run")
		h.Stop()

		h = start(t, db, nil)
		parent = h.WaitForTask(t, id, testkit.Ended)
		require.Equal(t, models.TaskDone, parent.State)
		require.Equal(t, "b's", h.output(t, id, models.StreamResult))
		require.EqualValues(t, 5, parent.Tokens)
		for _, subtask := range subtasks {
			h.WaitForTask(t, subtask.ID, testkit.Ended)
		}
		requireSound(t, h)
		requireLegalEvents(t, h)
	})
}
