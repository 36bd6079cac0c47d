package orchestrator_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/orchestrator"
	"comet/internal/registry"
	"comet/internal/usage"
	"comet/models"
	"comet/store/storetest"
)

// startWithoutJobs starts an orchestrator whose jobs do not run, like a server in the moment
// before it is killed.
func startWithoutJobs(t *testing.T, db *storetest.DB) (h *harness, stop func()) {
	t.Helper()
	ledger := usage.New(db.Store, nil)
	h = &harness{
		orchestrator.New(db.Store, ledger, &orchestrator.Options{Registry: registry.New(db.Store, nil), Poll: 2 * time.Millisecond}), db, ledger, openRaw(t, db),
	}
	require.NoError(t, h.Start(t.Context()))
	stop = func() { require.NoError(t, h.Stop(context.Background())) }
	t.Cleanup(stop)
	require.Eventually(t, func() bool { return h.Check(t.Context()) == nil }, time.Minute, time.Millisecond)
	return h, stop
}

// TestCrashBeforeParentUpdate checks that the next process updates the parent of an ended
// subtask, because the job was committed with the end.
func TestCrashBeforeParentUpdate(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		h, stop := startStoppable(t, db, nil)
		h.startThree(t)
		id := h.submit(t, "work", byWorkers(3)).ID
		stop()

		h, stop = startWithoutJobs(t, db)
		subtasks := h.subtasksByAgent(t, id)
		h.complete(t, subtasks["b"], orchestrator.Result{Output: []byte("b's"), Tokens: 5})
		parent, err := h.Task(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, models.TaskRunning, parent.State, "the job has not run")
		stop()

		h, _ = startStoppable(t, db, nil)
		parent = h.waitUntil(t, id, ended)
		require.Equal(t, models.TaskDone, parent.State)
		require.Equal(t, "b's", h.output(t, id, models.StreamResult))
		require.EqualValues(t, 5, parent.Tokens)
		for _, subtask := range subtasks {
			h.waitUntil(t, subtask.ID, ended)
		}
		requireSound(t, h)
		requireLegalEvents(t, h)
	})
}
