package orchestrator_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/orchestrator"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// withOpenTask runs one case in which two requests may wait, and one of each token.
func withOpenTask(t *testing.T, name string, fn func(t *testing.T, h *harness, task models.Task)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, db *storetest.DB) {
			h := start(t, db, &orchestrator.Options{MaxWaiters: 2, MaxWaitersPerToken: 1})
			h.worker(t, "w-1", 4, "code_write")
			fn(t, h, h.submit(t, "code_write", nil))
		})
	})
}

// startWait starts a request that waits until the test ends it.
func (h *harness) startWait(t *testing.T, who, id string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var over sync.WaitGroup
	over.Go(func() {
		for ctx.Err() == nil { // isFull may hold the slot for a moment
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

// isFull reports whether a request may not wait. One that may waits only for a moment.
func (h *harness) isFull(t *testing.T, who, id string) bool {
	t.Helper()
	task, err := h.Wait(t.Context(), who, id, time.Nanosecond)
	require.Equal(t, id, task.ID, "it returns the task in any case")
	if err != nil {
		require.True(t, errs.Is(err, errs.Busy), "%v", err)
	}
	return err != nil
}

// TestWaitForQuestion: the end of a task closes its session if a request waits for that.
func TestWaitForQuestion(t *testing.T) {
	t.Parallel()
	for name, waits := range map[string]bool{"closes the session": true, "closes no session once it has ended": false} {
		withOpenTask(t, name, func(t *testing.T, h *harness, other models.Task) {
			_, err := h.OpenSession(t.Context(), operator(), "s", nil)
			require.NoError(t, err)
			id := h.submit(t, "code_write", func(sub *orchestrator.Submission) { sub.SessionID = "s" }).ID
			_, closed, err := h.WaitForQuestion(t.Context(), "a", id, time.Nanosecond, true)
			require.NoError(t, err)
			require.False(t, closed)
			var waiting sync.WaitGroup
			if waits {
				waiting.Go(func() {
					for busy := true; busy; { // isFull may hold the slot for a moment
						_, _, err := h.WaitForQuestion(t.Context(), "a", id, time.Hour, true)
						busy = errs.Is(err, errs.Busy)
					}
				})
				require.Eventually(t, func() bool { return h.isFull(t, "a", other.ID) }, time.Minute, 5*time.Millisecond)
			}
			_, err = h.Complete(t.Context(), "w-1", id, orchestrator.Result{})
			require.NoError(t, err)
			s, err := h.Session(t.Context(), "s")
			require.NoError(t, err)
			require.Equal(t, waits, s.State == models.SessionClosed)
			require.Equal(t, waits, s.ClosedAt != nil)
			require.Equal(t, waits, len(h.query(t, "SELECT key FROM events WHERE type = 'session.closed'")) == 1)
			waiting.Wait()
		})
	}
}

// TestWaiterLimits covers the limits for waiting requests.
func TestWaiterLimits(t *testing.T) {
	t.Parallel()

	withOpenTask(t, "for one token", func(t *testing.T, h *harness, task models.Task) {
		stop := h.startWait(t, "a", task.ID)
		require.Eventually(t, func() bool { return h.isFull(t, "a", task.ID) }, time.Minute, 5*time.Millisecond)
		_, err := h.WaitForChange(t.Context(), "a", task.ID, task.Version, time.Hour)
		require.True(t, errs.Is(err, errs.Busy), "%v", err)
		require.False(t, h.isFull(t, "b", task.ID))
		stop()
		require.False(t, h.isFull(t, "a", task.ID), "a request that ended is not counted")
	})

	withOpenTask(t, "in total", func(t *testing.T, h *harness, task models.Task) {
		h.startWait(t, "a", task.ID)
		h.startWait(t, "b", task.ID)
		require.Eventually(t, func() bool { return h.isFull(t, "c", task.ID) }, time.Minute, 5*time.Millisecond)
	})

	withOpenTask(t, "not for tasks that have ended", func(t *testing.T, h *harness, task models.Task) {
		done := h.submit(t, "code_write", nil)
		_, err := h.Complete(t.Context(), "w-1", done.ID, orchestrator.Result{})
		require.NoError(t, err)
		h.startWait(t, "a", task.ID)
		require.Eventually(t, func() bool { return h.isFull(t, "a", task.ID) }, time.Minute, 5*time.Millisecond)
		require.False(t, h.isFull(t, "a", done.ID))
		require.False(t, h.isFull(t, "", task.ID), "requests without a token are not counted")
	})
}

// TestQuestionAfterLongTimeline checks that a question is found even if the task has more events
// than a Detail shows.
func TestQuestionAfterLongTimeline(t *testing.T) {
	t.Parallel()
	withHarness(t, "finds the newest question", func(t *testing.T, h *harness) {
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
		require.NoError(t, h.DB.Write(t.Context(), func(tx *store.Tx) error {
			for range 1000 {
				if err := tx.Events().Emit(events.TaskProgress, task.ID, events.TaskData{TaskID: task.ID}); err != nil {
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
