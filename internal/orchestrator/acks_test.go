package orchestrator_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/orchestrator"
	"comet/models"
)

func TestAcknowledgeLater(t *testing.T) {
	t.Parallel()
	stored := func(t *testing.T, h *harness) int {
		t.Helper()
		all, err := h.DB.Inbox(t.Context()).List("ada", 1000)
		require.NoError(t, err)
		return len(all)
	}
	acknowledge := func(t *testing.T, h *harness, ids ...string) {
		t.Helper()
		require.NoError(t, h.AcknowledgeLater(t.Context(), "ada", ids))
	}
	withHarness(t, "empties the inbox at once and the database after the delay", func(t *testing.T, h *harness) {
		h.worker(t, "ada", 1, "dig")
		h.submit(t, "dig", nil)
		id := h.inbox(t, "ada")[0].ID
		acknowledge(t, h, id)
		require.Empty(t, h.inbox(t, "ada"))
		pending, err := h.MessagePending(t.Context(), "ada", []string{id})
		require.NoError(t, err)
		require.Empty(t, pending)
		require.Equal(t, 1, stored(t, h))
		h.DB.Clock.Advance(5 * time.Second)
		require.Eventually(t, func() bool { return stored(t, h) == 0 }, time.Minute, 5*time.Millisecond)
		require.Empty(t, h.inbox(t, "ada"))
	})
	withHarness(t, "lists what follows many acknowledged messages", func(t *testing.T, h *harness) {
		h.worker(t, "ada", 60, "dig")
		var ids []string
		for range 50 {
			h.submit(t, "dig", nil)
		}
		for _, m := range h.inbox(t, "ada") {
			ids = append(ids, m.ID)
		}
		last := h.submit(t, "dig", nil)
		acknowledge(t, h, ids...)
		next, err := h.Messages(t.Context(), "ada", 1)
		require.NoError(t, err)
		require.Equal(t, last.ID, next[0].TaskID)
	})
	withHarness(t, "writes at the end of the connection", func(t *testing.T, h *harness) {
		h.worker(t, "ada", 1, "dig")
		h.submit(t, "dig", nil)
		acknowledge(t, h, h.inbox(t, "ada")[0].ID)
		require.NoError(t, h.FlushAcknowledgements(t.Context(), "ada"))
		require.Zero(t, stored(t, h))
	})
	withHarness(t, "writes if an agent acknowledges more than 100 messages", func(t *testing.T, h *harness) {
		h.worker(t, "ada", 1, "dig")
		h.submit(t, "dig", nil)
		acknowledge(t, h, h.inbox(t, "ada")[0].ID)
		for i := range 100 {
			require.Equal(t, 1, stored(t, h))
			acknowledge(t, h, "unknown "+strconv.Itoa(i))
		}
		require.Zero(t, stored(t, h))
	})
	withHarness(t, "writes nothing if the task ends first", func(t *testing.T, h *harness) {
		h.worker(t, "ada", 1, "dig")
		task := h.submit(t, "dig", nil)
		acknowledge(t, h, h.inbox(t, "ada")[0].ID)
		done, err := h.Complete(t.Context(), "ada", task.ID, orchestrator.Result{})
		require.NoError(t, err)
		require.Equal(t, models.TaskDone, done.State)
		require.Zero(t, stored(t, h))
	})
}
