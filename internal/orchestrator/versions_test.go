package orchestrator_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/events"
	"comet/internal/orchestrator"
	"comet/models"
)

// TestEventVersions checks that a reader of events can detect an older state of a task.
func TestEventVersions(t *testing.T) {
	t.Parallel()
	withHarness(t, "each event has the version that it made", func(t *testing.T, h *harness) {
		h.worker(t, "w-1", 1, "code_write")
		task := h.submit(t, "code_write", nil)
		half := 50
		progressed, err := h.Progress(t.Context(), "w-1", task.ID, orchestrator.Progress{Percent: &half})
		require.NoError(t, err)
		done, err := h.Complete(t.Context(), "w-1", task.ID, orchestrator.Result{})
		require.NoError(t, err)
		d, err := h.Detail(t.Context(), task.ID)
		require.NoError(t, err)
		got := map[models.EventType]int64{}
		for _, e := range d.Timeline {
			var data events.TaskData
			require.NoError(t, json.Unmarshal(e.Data, &data))
			got[e.Type] = data.Version
		}
		require.Equal(t, map[models.EventType]int64{
			events.TaskCreated: 1, events.TaskStarted: progressed.Version,
			events.TaskProgress: progressed.Version, events.TaskCompleted: done.Version,
		}, got)
		require.Equal(t, d.Task.Version, done.Version)
	})
}
