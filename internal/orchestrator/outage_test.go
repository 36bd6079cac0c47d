package orchestrator_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/orchestrator"
	"comet/models"
	"comet/store/storetest"
)

// TestOutage checks that agents do not count as silent while no server ran, and that their
// results are not lost.
func TestOutage(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		h := start(t, db, nil)
		h.worker(t, "w-1", 2, "code_write")
		task := h.submit(t, "code_write", nil)
		_, err := h.Accept(t.Context(), "w-1", task.ID)
		require.NoError(t, err)
		h.Stop()
		db.Clock.Advance(time.Minute)
		h = start(t, db, nil)
		later := h.submit(t, "code_write", nil)
		require.Equal(t, "w-1", later.AgentID, "it still counts as online")
		extended := h.WaitForTask(t, task.ID, func(t models.Task) bool { return t.Deadline.After(db.Now()) })
		require.Equal(t, models.TaskRunning, extended.State)
		done, err := h.Complete(t.Context(), "w-1", task.ID, orchestrator.Result{Tokens: 3})
		require.NoError(t, err)
		require.Equal(t, models.TaskDone, done.State)
		require.Equal(t, 1, done.Attempt)
		db.Clock.Advance(46 * time.Second)
		h.WaitForTask(t, later.ID, func(t models.Task) bool { return t.WaitingFor == models.WaitForRetry })
	})
}

// TestDatabaseOutage checks that deadlines that pass while the database is away do not count as
// timeouts of agents.
func TestDatabaseOutage(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "sqlite")
	h := start(t, db, nil)
	db.Clock.Advance(time.Hour)
	require.NoError(t, db.Close())
	require.Eventually(t, func() bool { return h.LastOutage().Equal(db.Now()) }, time.Minute, 5*time.Millisecond,
		"the grace after a start begins again")
}
