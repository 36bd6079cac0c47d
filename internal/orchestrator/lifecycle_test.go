package orchestrator_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/orchestrator"
	"comet/internal/testkit"
	"comet/models"
)

func TestTaskLifecycle(t *testing.T) {
	t.Parallel()

	withHarness(t, "from submission to result", func(t *testing.T, h *harness) {
		h.worker(t, "infra-1", 1, "run_playbook")
		task := h.submit(t, "run_playbook", nil)
		require.Equal(t, models.TaskNew, task.State)
		require.Equal(t, "infra-1", task.AgentID)
		messages := h.inbox(t, "infra-1")
		require.Len(t, messages, 1)
		require.Equal(t, models.MessageAssign, messages[0].Kind)
		n, err := h.Acknowledge(t.Context(), "infra-1", []string{messages[0].ID})
		require.NoError(t, err)
		require.EqualValues(t, 1, n)

		percent := 50
		task, err = h.Progress(t.Context(), "infra-1", task.ID, orchestrator.Progress{Percent: &percent, Step: 2, StepName: "Configure"})
		require.NoError(t, err)
		require.Equal(t, models.TaskRunning, task.State)
		zero := 0
		task, err = h.Complete(t.Context(), "infra-1", task.ID, orchestrator.Result{ExitCode: &zero, Output: []byte("done"), Tokens: 120})
		require.NoError(t, err)
		require.Equal(t, models.TaskDone, task.State)
		again, err := h.Complete(t.Context(), "infra-1", task.ID, orchestrator.Result{ExitCode: &zero, Output: []byte("done"), Tokens: 120})
		require.NoError(t, err, "repeated")
		require.Equal(t, task, again)

		used, err := h.Ledger.Usage(t.Context(), "infra-1")
		require.NoError(t, err)
		require.EqualValues(t, 120, used.UsedToday)
		detail, err := h.Detail(t.Context(), task.ID)
		require.NoError(t, err)
		var kinds []models.EventType
		for _, e := range detail.Timeline {
			kinds = append(kinds, e.Type)
		}
		require.Equal(t, []models.EventType{
			events.TaskCreated, events.TaskStarted, events.TaskProgress, events.TaskCompleted,
		}, kinds)
		require.Equal(t, models.AttemptSucceeded, detail.Attempts[0].State)
		var text []byte
		require.NoError(t, h.Output(t.Context(), detail.Task, models.StreamResult, 0, func(o models.OutputChunk) error { text = append(text, o.Data...); return nil }))
		require.Equal(t, "done", string(text))
	})

	withHarness(t, "fails without an agent that offers the work", func(t *testing.T, h *harness) {
		h.worker(t, "infra-1", 1, "run_playbook")
		_, err := h.Submit(t.Context(), operator(), orchestrator.Submission{Capabilities: []string{"fly"}}, nil)
		require.Equal(t, errs.UnsupportedWork, errs.CodeOf(err))
	})

	withHarness(t, "waits for a full agent", func(t *testing.T, h *harness) {
		h.worker(t, "infra-1", 1, "run_playbook")
		first := h.submit(t, "run_playbook", nil)
		low := h.submit(t, "run_playbook", nil)
		high := h.submit(t, "run_playbook", func(s *orchestrator.Submission) { s.Priority = 3 })
		require.Equal(t, models.WaitForWorker, low.WaitingFor)
		require.Equal(t, models.WaitForWorker, high.WaitingFor)
		_, err := h.Complete(t.Context(), "infra-1", first.ID, orchestrator.Result{})
		require.NoError(t, err)
		h.WaitForTask(t, high.ID, func(t models.Task) bool { return t.AgentID == "infra-1" })
		_, err = h.Complete(t.Context(), "infra-1", high.ID, orchestrator.Result{})
		require.NoError(t, err)
		h.WaitForTask(t, low.ID, func(t models.Task) bool { return t.AgentID == "infra-1" })
	})

	withHarness(t, "retries after silence, then fails", func(t *testing.T, h *harness) {
		h.worker(t, "infra-1", 1, "run_playbook")
		task := h.submit(t, "run_playbook", nil)
		for n, pause := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
			h.DB.Clock.Advance(30 * time.Second)
			h.WaitForTask(t, task.ID, func(t models.Task) bool { return t.WaitingFor == models.WaitForRetry })
			_, err := h.Heartbeat(t.Context(), "infra-1", orchestrator.Heartbeat{})
			require.NoError(t, err)
			h.DB.Clock.Advance(pause)
			h.WaitForTask(t, task.ID, func(t models.Task) bool { return t.Attempt == n+2 })
		}
		h.DB.Clock.Advance(30 * time.Second)
		task = h.WaitForTask(t, task.ID, testkit.Ended)
		require.Equal(t, models.TaskFailed, task.State)
		require.Equal(t, string(orchestrator.FailureTimeout), task.ErrorCode)
	})

	withHarness(t, "reserves and settles the budget", func(t *testing.T, h *harness) {
		h.worker(t, "infra-1", 2, "run_playbook")
		task := h.submit(t, "run_playbook", func(s *orchestrator.Submission) { s.Budget = new(int64(1000)) })
		used, err := h.Ledger.Usage(t.Context(), "infra-1")
		require.NoError(t, err)
		require.EqualValues(t, 1000, used.Reserved)
		_, err = h.Submit(t.Context(), operator(), orchestrator.Submission{Capabilities: []string{"run_playbook"}, Budget: new(int64(49_500))}, nil)
		require.Equal(t, errs.BudgetExceeded, errs.CodeOf(err))
		_, err = h.Complete(t.Context(), "infra-1", task.ID, orchestrator.Result{Tokens: 300})
		require.NoError(t, err)
		used, err = h.Ledger.Usage(t.Context(), "infra-1")
		require.NoError(t, err)
		require.Zero(t, used.Reserved)
		require.EqualValues(t, 300, used.UsedToday)
	})

	withHarness(t, "stays cancelled", func(t *testing.T, h *harness) {
		h.worker(t, "infra-1", 1, "run_playbook")
		task := h.submit(t, "run_playbook", nil)
		task, err := h.Cancel(t.Context(), task.ID, "not needed", nil)
		require.NoError(t, err)
		require.Equal(t, models.TaskCancelled, task.State)
		_, err = h.Complete(t.Context(), "infra-1", task.ID, orchestrator.Result{Tokens: 5})
		require.Equal(t, errs.TaskState, errs.CodeOf(err))
		used, err := h.Ledger.Usage(t.Context(), "infra-1")
		require.NoError(t, err)
		require.EqualValues(t, 5, used.UsedToday, "the tokens are charged")
	})
}
