package orchestrator_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/testkit"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

func byWorkers(n int) func(*orchestrator.Submission) {
	return func(s *orchestrator.Submission) { s.Override.Workers = n }
}

// subtasksByAgent returns the subtasks of a task by their agents.
func (h *harness) subtasksByAgent(t *testing.T, id string) map[string]models.Task {
	t.Helper()
	all, err := h.DB.Tasks(t.Context()).Children(id)
	require.NoError(t, err)
	out := map[string]models.Task{}
	for _, subtask := range all {
		require.NotContains(t, out, subtask.AgentID)
		out[subtask.AgentID] = subtask
	}
	return out
}

// complete completes a subtask.
func (h *harness) complete(t *testing.T, subtask models.Task, r orchestrator.Result) {
	t.Helper()
	_, err := h.Complete(t.Context(), subtask.AgentID, subtask.ID, r)
	require.NoError(t, err)
}

// startThree starts three workers with the same capability.
func (h *harness) startThree(t *testing.T) {
	t.Helper()
	for _, id := range []string{"a", "b", "c"} {
		h.worker(t, id, 2, "work")
	}
}

// TestParallelTask covers several workers for one task (PROTOCOL_V5 §4.2, §5.1).
func TestParallelTask(t *testing.T) {
	t.Parallel()

	withHarness(t, "ends with the first success and cancels the others", func(t *testing.T, h *harness) {
		h.startThree(t)
		task := h.submit(t, "work", byWorkers(3))
		require.Equal(t, models.TaskRunning, task.State)
		subtasks := h.subtasksByAgent(t, task.ID)
		require.Len(t, subtasks, 3)
		h.complete(t, subtasks["b"], orchestrator.Result{Output: []byte("mine"), Tokens: 7})
		done := h.WaitForTask(t, task.ID, testkit.Ended)
		require.Equal(t, models.TaskDone, done.State)
		require.Equal(t, "mine", h.output(t, task.ID, models.StreamResult))
		require.EqualValues(t, 7, done.Tokens)
		for _, id := range []string{"a", "c"} {
			require.Equal(t, models.TaskCancelled, h.WaitForTask(t, subtasks[id].ID, testkit.Ended).State)
			require.Equal(t, []string{models.MessageCancel}, h.inboxKinds(t, id))
		}
		requireSound(t, h)
		requireLegalEvents(t, h)
	})
	withHarness(t, "fails with the last failure", func(t *testing.T, h *harness) {
		h.startThree(t)
		task := h.submit(t, "work", byWorkers(2))
		subtasks := h.subtasksByAgent(t, task.ID)
		h.complete(t, subtasks["a"], orchestrator.Result{Failure: orchestrator.FailureWork, Text: "one"})
		h.WaitForTask(t, task.ID, func(t models.Task) bool { return t.Progress == 50 })
		h.DB.Clock.Advance(time.Second)
		h.complete(t, subtasks["b"], orchestrator.Result{Failure: orchestrator.FailureInvalid, Text: "two", Detail: []byte(`{"x":1}`)})
		failed := h.WaitForTask(t, task.ID, testkit.Ended)
		require.Equal(t, string(orchestrator.FailureInvalid), failed.ErrorCode)
		require.Equal(t, "two (b, the last of 2 workers)", failed.Error)
		require.JSONEq(t, `{"x":1}`, string(failed.Detail))
	})
}

// TestSubtaskEnd covers subtasks that end before or after their parent.
func TestSubtaskEnd(t *testing.T) {
	t.Parallel()

	withHarness(t, "is kept as long as its parent", func(t *testing.T, h *harness) {
		h.startThree(t)
		task := h.submit(t, "work", func(s *orchestrator.Submission) {
			byWorkers(3)(s)
			s.Override.TimeoutMS = (7 * 24 * time.Hour).Milliseconds()
		})
		subtasks := h.subtasksByAgent(t, task.ID)
		h.complete(t, subtasks["a"], orchestrator.Result{Failure: orchestrator.FailureWork})
		h.complete(t, subtasks["b"], orchestrator.Result{Failure: orchestrator.FailureWork})
		h.WaitForTask(t, task.ID, func(t models.Task) bool { return t.Progress == 66 })
		require.NoError(t, h.DB.Write(t.Context(), func(tx *store.Tx) error {
			n, err := tx.Tasks().Purge(h.DB.Now().Add(time.Hour), 100)
			require.Zero(t, n)
			return err
		}))
		h.complete(t, subtasks["c"], orchestrator.Result{Failure: orchestrator.FailureWork})
		require.Equal(t, models.TaskFailed, h.WaitForTask(t, task.ID, testkit.Ended).State)
		require.NoError(t, h.DB.Write(t.Context(), func(tx *store.Tx) error {
			n, err := tx.Tasks().Purge(h.DB.Now().Add(time.Hour), 100)
			require.EqualValues(t, 3, n)
			return err
		}))
	})
	withHarness(t, "counts the tokens of all subtasks", func(t *testing.T, h *harness) {
		h.startThree(t)
		task := h.submit(t, "work", byWorkers(3))
		subtasks := h.subtasksByAgent(t, task.ID)
		h.complete(t, subtasks["a"], orchestrator.Result{Tokens: 7})
		h.WaitForTask(t, task.ID, testkit.Ended)
		for _, id := range []string{"b", "c"} {
			_, err := h.Complete(t.Context(), id, subtasks[id].ID, orchestrator.Result{Tokens: 200})
			require.Equal(t, errs.TaskState, errs.CodeOf(err))
		}
		h.WaitForTask(t, task.ID, func(t models.Task) bool { return t.Tokens == 407 })
		requireSound(t, h)
	})
	withHarness(t, "shows the question of a subtask at the parent", func(t *testing.T, h *harness) {
		h.startThree(t)
		task := h.submit(t, "work", byWorkers(2))
		subtask := h.subtasksByAgent(t, task.ID)["b"]
		_, err := h.Clarify(t.Context(), "b", subtask.ID, orchestrator.Question{Text: "which?"})
		require.NoError(t, err)
		d, err := h.Detail(t.Context(), task.ID)
		require.NoError(t, err)
		require.Equal(t, "which?", d.Question.Text)
		answered, err := h.Reply(t.Context(), task.ID, "this one")
		require.NoError(t, err)
		require.Equal(t, subtask.ID, answered.ID)
		_, err = h.Reply(t.Context(), task.ID, "this one")
		require.Equal(t, errs.TaskState, errs.CodeOf(err))
	})
}

// TestSubtaskAssignment covers which agents get subtasks.
func TestSubtaskAssignment(t *testing.T) {
	t.Parallel()

	withHarness(t, "uses fewer agents if fewer are free", func(t *testing.T, h *harness) {
		h.startThree(t)
		require.Len(t, h.subtasksByAgent(t, h.submit(t, "work", byWorkers(16)).ID), 3)
	})
	withHarness(t, "waits for one agent if none is free", func(t *testing.T, h *harness) {
		h.worker(t, "a", 1, "work")
		busy := h.submit(t, "work", nil)
		task := h.submit(t, "work", byWorkers(2))
		require.Len(t, h.subtasksByAgent(t, task.ID), 1)
		h.complete(t, busy, orchestrator.Result{})
		require.Eventually(t, func() bool { return len(h.inbox(t, "a")) == 1 }, time.Minute, 5*time.Millisecond)
		h.complete(t, h.subtasksByAgent(t, task.ID)["a"], orchestrator.Result{Output: []byte("x")})
		require.Equal(t, models.TaskDone, h.WaitForTask(t, task.ID, testkit.Ended).State)
	})
	withHarness(t, "retries with an agent that has no subtask", func(t *testing.T, h *harness) {
		h.startThree(t)
		task := h.submit(t, "work", byWorkers(2))
		subtasks := h.subtasksByAgent(t, task.ID)
		h.complete(t, subtasks["a"], orchestrator.Result{Failure: orchestrator.FailureResource})
		again := h.advanceUntil(t, subtasks["a"].ID, time.Second, func(t models.Task) bool { return t.Attempt == 2 && t.AgentID != "" })
		require.Equal(t, "c", again.AgentID)
	})
	withHarness(t, "divides the budget", func(t *testing.T, h *harness) {
		h.startThree(t)
		task := h.submit(t, "work", func(s *orchestrator.Submission) {
			byWorkers(3)(s)
			s.Budget = new(int64(1000))
		})
		for id, subtask := range h.subtasksByAgent(t, task.ID) {
			requireHeld(t, h, id, 333)
			h.complete(t, subtask, orchestrator.Result{Failure: orchestrator.FailureWork, Tokens: 100})
		}
		require.EqualValues(t, 300, h.WaitForTask(t, task.ID, testkit.Ended).Tokens)
		requireSound(t, h)
	})
	withHarness(t, "a rejected submission leaves nothing behind", func(t *testing.T, h *harness) {
		h.startThree(t)
		before := allRows(t, h)
		for code, change := range map[errs.Code]func(*orchestrator.Submission){
			errs.UnsupportedWork: func(s *orchestrator.Submission) { s.Capabilities = []string{"nothing"} },
			errs.InvalidRequest:  func(s *orchestrator.Submission) { s.AgentID = "a" },
		} {
			sub := orchestrator.Submission{Capabilities: []string{"work"}}
			byWorkers(2)(&sub)
			change(&sub)
			_, err := h.Submit(t.Context(), operator(), sub, nil)
			require.Equal(t, code, errs.CodeOf(err), "%v", err)
		}
		requireUnchanged(t, h, before, "a rejected submission")
		sub := orchestrator.Submission{Capabilities: []string{"work"}, Budget: new(int64(1_000_000))}
		byWorkers(2)(&sub)
		_, err := h.Submit(t.Context(), operator(), sub, nil)
		require.Equal(t, errs.BudgetExceeded, errs.CodeOf(err), "%v", err)
		requireNone(t, h, "a task that no budget covers leaves no rows", "SELECT id FROM tasks")
	})
	withHarness(t, "cancels open subtasks with the parent", func(t *testing.T, h *harness) {
		h.startThree(t)
		_, err := h.OpenSession(t.Context(), operator(), "s", nil)
		require.NoError(t, err)
		task := h.submit(t, "work", func(s *orchestrator.Submission) {
			byWorkers(3)(s)
			s.SessionID = "s"
		})
		subtasks := h.subtasksByAgent(t, task.ID)
		h.complete(t, subtasks["a"], orchestrator.Result{Failure: orchestrator.FailureWork})
		_, err = h.Cancel(t.Context(), task.ID, "enough", nil)
		require.NoError(t, err)
		require.Equal(t, models.TaskCancelled, h.WaitForTask(t, subtasks["b"].ID, testkit.Ended).State)
		require.Equal(t, models.TaskCancelled, h.WaitForTask(t, subtasks["c"].ID, testkit.Ended).State)
		requireSound(t, h)
	})
	withDatabase(t, "updates the parent after a restart", func(t *testing.T, db *storetest.DB) {
		h := start(t, db, nil)
		h.startThree(t)
		task := h.submit(t, "work", byWorkers(2))
		subtasks := h.subtasksByAgent(t, task.ID)
		h.Stop()
		subtask := subtasks["a"] // its end is committed, but its job does not run
		_, err := h.Complete(context.Background(), "a", subtask.ID, orchestrator.Result{Output: []byte("x")})
		require.NoError(t, err)
		now, err := h.Task(t.Context(), task.ID)
		require.NoError(t, err)
		require.False(t, testkit.Ended(now))
		next := start(t, db, nil)
		require.Equal(t, models.TaskDone, next.WaitForTask(t, task.ID, testkit.Ended).State)
	})
}

// TestOverrun covers budgets that do not cover the work (PROTOCOL_V5 §9.2).
func TestOverrun(t *testing.T) {
	t.Parallel()
	over := func(o orchestrator.Overrun, budget int64) func(*orchestrator.Submission) {
		return func(s *orchestrator.Submission) {
			s.Budget, s.Override.Overrun, s.Override.Retries = &budget, &o, new(2)
		}
	}
	refuses := func(needed int64) orchestrator.Result {
		return orchestrator.Result{Failure: orchestrator.FailureBudget, Text: "too little", Needed: needed, Tokens: 5}
	}
	again := func(n int) func(models.Task) bool {
		return func(t models.Task) bool {
			return t.Attempt == n && t.AgentID != "" && t.WaitingFor == models.NotWaiting || testkit.Ended(t)
		}
	}
	for name, c := range map[string]struct {
		overrun orchestrator.Overrun
		needed  int64
		budgets []int64 // of each attempt; the last one fails as well
	}{
		"gives up by default":               {orchestrator.Overrun{Action: orchestrator.OverrunGiveUp}, 150, []int64{20}},
		"raises to what is needed":          {orchestrator.Overrun{Action: orchestrator.OverrunRaise}, 150, []int64{20, 155, 160}},
		"doubles if the need is unknown":    {orchestrator.Overrun{Action: orchestrator.OverrunRaise}, 0, []int64{20, 40, 80}},
		"doubles if the need is covered":    {orchestrator.Overrun{Action: orchestrator.OverrunRaise}, 15, []int64{20, 40, 80}},
		"does not raise above the limit":    {orchestrator.Overrun{Action: orchestrator.OverrunRaise, MaxBudget: 100}, 150, []int64{20}},
		"raises to the limit":               {orchestrator.Overrun{Action: orchestrator.OverrunRaise, MaxBudget: 50}, 0, []int64{20, 40, 50}},
		"retries once for a simpler result": {orchestrator.Overrun{Action: orchestrator.OverrunSimplify}, 150, []int64{20, 20}},
	} {
		withHarness(t, name, func(t *testing.T, h *harness) {
			h.worker(t, "a", 1, "work")
			id := h.submit(t, "work", over(c.overrun, c.budgets[0])).ID
			for n, budget := range c.budgets {
				task := h.WaitForTask(t, id, again(n+1))
				require.Equal(t, n+1, task.Attempt)
				require.Equal(t, budget, *task.Budget)
				requireHeld(t, h, "a", budget-int64(5*n))
				_, err := h.Complete(t.Context(), "a", id, refuses(c.needed))
				require.NoError(t, err)
			}
			task := h.WaitForTask(t, id, testkit.Ended)
			require.Equal(t, len(c.budgets), task.Attempt)
			require.Equal(t, string(orchestrator.FailureBudget), task.ErrorCode)
			require.EqualValues(t, 5*len(c.budgets), task.Tokens)
			requireSound(t, h)
		})
	}
	withHarness(t, "is validated", func(t *testing.T, h *harness) {
		for _, o := range []orchestrator.Overrun{
			{Action: orchestrator.OverrunRaise}, {Action: "more"}, {Action: orchestrator.OverrunSimplify, MaxBudget: 1}, {Action: orchestrator.OverrunGiveUp, MaxBudget: -1},
		} {
			_, err := h.Submit(t.Context(), operator(), orchestrator.Submission{Capabilities: []string{"work"}, Override: orchestrator.Override{Overrun: &o}}, nil)
			require.Equal(t, errs.InvalidRequest, errs.CodeOf(err))
		}
	})
}

// TestOverrunLimit covers the lower bound of the limit.
func TestOverrunLimit(t *testing.T) {
	t.Parallel()
	withHarness(t, "is at least the budget", func(t *testing.T, h *harness) {
		h.worker(t, "a", 1, "work")
		ask := func(most int64) error {
			o := orchestrator.Overrun{Action: orchestrator.OverrunRaise, MaxBudget: most}
			_, err := h.Submit(t.Context(), operator(), orchestrator.Submission{Capabilities: []string{"work"}, Budget: new(int64(20)), Override: orchestrator.Override{Overrun: &o}}, nil)
			return err
		}
		err := ask(19)
		require.Equal(t, errs.InvalidRequest, errs.CodeOf(err))
		require.Equal(t, "/overrun/max_budget", errs.From(err).Fields[0].Pointer)
		require.NoError(t, ask(20))
	})
}

// TestWorkersValidation covers the bounds of Override.Workers.
func TestWorkersValidation(t *testing.T) {
	t.Parallel()
	withHarness(t, "two to sixteen", func(t *testing.T, h *harness) {
		for _, n := range []int{-1, 1, 17} {
			_, err := h.Submit(t.Context(), operator(), orchestrator.Submission{Capabilities: []string{"work"}, Override: orchestrator.Override{Workers: n}}, nil)
			require.Equal(t, errs.InvalidRequest, errs.CodeOf(err))
			require.Equal(t, "/workers", errs.From(err).Fields[0].Pointer)
		}
	})
}
