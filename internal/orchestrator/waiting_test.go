package orchestrator_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// waitingRule runs one case in a house where two requests may wait, and one of a token.
func waitingRule(t *testing.T, name string, fn func(t *testing.T, h *house, task models.Task)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, db *storetest.DB) {
			h := open(t, db, &orchestrator.Options{MaxWaits: 2, MaxWaitsEach: 1})
			h.worker(t, "w-1", 4, "code_write")
			fn(t, h, h.submit(t, "code_write", nil))
		})
	})
}

// waits has somebody wait until the test ends it.
func (h *house) waits(t *testing.T, who, id string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var over sync.WaitGroup
	over.Go(func() {
		for ctx.Err() == nil { // who looks whether there is room may be there first
			_, _ = h.Wait(ctx, who, id, time.Hour)
		}
	})
	stop = func() {
		cancel()
		over.Wait()
	}
	t.Cleanup(stop)
	return stop
}

// full reports whether somebody may not wait; one who may does not wait for long.
func (h *house) full(t *testing.T, who, id string) bool {
	t.Helper()
	task, err := h.Wait(t.Context(), who, id, time.Nanosecond)
	require.Equal(t, id, task.ID, "it comes back as it is in any case")
	if err != nil {
		require.True(t, errs.Is(err, errs.Busy), "%v", err)
	}
	return err != nil
}

// TestWaitingIsBounded: those who wait for tasks.
func TestWaitingIsBounded(t *testing.T) {
	t.Parallel()

	waitingRule(t, "OfEachToken", func(t *testing.T, h *house, task models.Task) {
		stop := h.waits(t, "a", task.ID)
		require.Eventually(t, func() bool { return h.full(t, "a", task.ID) }, time.Minute, time.Millisecond)
		_, err := h.WaitForChange(t.Context(), "a", task.ID, task.Version, time.Hour)
		require.True(t, errs.Is(err, errs.Busy), "%v", err)
		require.False(t, h.full(t, "b", task.ID))
		stop()
		require.False(t, h.full(t, "a", task.ID), "who has gone gives the place back")
	})

	waitingRule(t, "OfAllTogether", func(t *testing.T, h *house, task models.Task) {
		h.waits(t, "a", task.ID)
		h.waits(t, "b", task.ID)
		require.Eventually(t, func() bool { return h.full(t, "c", task.ID) }, time.Minute, time.Millisecond)
	})

	waitingRule(t, "ButNotThoseWhoNeedNotWait", func(t *testing.T, h *house, task models.Task) {
		done := h.submit(t, "code_write", nil)
		_, err := h.Complete(t.Context(), "w-1", done.ID, orchestrator.Result{})
		require.NoError(t, err)
		h.waits(t, "a", task.ID)
		require.Eventually(t, func() bool { return h.full(t, "a", task.ID) }, time.Minute, time.Millisecond)
		require.False(t, h.full(t, "a", done.ID))
		require.False(t, h.full(t, "", task.ID), "nor those who are bounded elsewhere")
	})
}

// TestQuestionBehindTheTimeline: what an agent asks is found although the task has more
// events than are shown.
func TestQuestionBehindTheTimeline(t *testing.T) {
	t.Parallel()
	rule(t, "TheNewestOneIsFound", func(t *testing.T, h *house) {
		h.worker(t, "w-1", 4, "code_write")
		task := h.submit(t, "code_write", nil)
		ask := func(text string) {
			_, err := h.Clarify(t.Context(), "w-1", task.ID, orchestrator.Question{Text: text})
			require.NoError(t, err)
		}
		ask("first?")
		d, err := h.Detail(t.Context(), task.ID)
		require.NoError(t, err)
		require.Equal(t, "first?", d.Question.Text)
		_, err = h.Reply(t.Context(), task.ID, "yes")
		require.NoError(t, err)
		d, err = h.Detail(t.Context(), task.ID)
		require.NoError(t, err)
		require.Nil(t, d.Question)
		require.NoError(t, h.db.Write(t.Context(), func(tx *store.Tx) error {
			for range 1000 {
				if err := tx.Emit(models.EventTaskProgress, task.ID, models.TaskChanged{TaskID: task.ID}); err != nil {
					return err
				}
			}
			return nil
		}))
		ask("second?")
		d, err = h.Detail(t.Context(), task.ID)
		require.NoError(t, err)
		require.Len(t, d.Timeline, 1000)
		require.Equal(t, "second?", d.Question.Text)
	})
}
