package orchestrator_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

func byWorkers(n int) func(*orchestrator.Submission) {
	return func(s *orchestrator.Submission) { s.Override.Workers = n }
}

// subtasksByAgent returns the parts of a task by the agents that have them.
func (h *harness) subtasksByAgent(t *testing.T, id string) map[string]models.Task {
	t.Helper()
	all, err := h.db.Children(t.Context(), id)
	require.NoError(t, err)
	out := map[string]models.Task{}
	for _, part := range all {
		require.NotContains(t, out, part.AgentID)
		out[part.AgentID] = part
	}
	return out
}

// complete completes a part.
func (h *harness) complete(t *testing.T, part models.Task, r orchestrator.Result) {
	t.Helper()
	_, err := h.Complete(t.Context(), part.AgentID, part.ID, r)
	require.NoError(t, err)
}

// startThree is three workers that do the same.
func (h *harness) startThree(t *testing.T) {
	t.Helper()
	for _, id := range []string{"a", "b", "c"} {
		h.worker(t, id, 2, "work")
	}
}

// TestSeveralWorkers do one task at a time (PROTOCOL_V5 §4.2, §5.1).
func TestSeveralWorkers(t *testing.T) {
	t.Parallel()

	withHarness(t, "TheFirstSuccessIsTakenAndTheOthersAreTakenBack", func(t *testing.T, h *harness) {
		h.startThree(t)
		task := h.submit(t, "work", byWorkers(3))
		require.Equal(t, models.TaskRunning, task.State)
		shares := h.subtasksByAgent(t, task.ID)
		require.Len(t, shares, 3)
		h.complete(t, shares["b"], orchestrator.Result{Output: []byte("mine"), Tokens: 7})
		done := h.waitUntil(t, task.ID, ended)
		require.Equal(t, models.TaskDone, done.State)
		require.Equal(t, "mine", h.output(t, task.ID, models.StreamResult))
		require.EqualValues(t, 7, done.Tokens)
		for _, id := range []string{"a", "c"} {
			require.Equal(t, models.TaskCancelled, h.waitUntil(t, shares[id].ID, ended).State)
			require.Equal(t, []models.MessageKind{models.MessageCancel}, h.inboxKinds(t, id))
		}
		requireSound(t, h)
		requireLegalEvents(t, h)
	})
	withHarness(t, "WhereAllFailItHasTheFailureOfTheLast", func(t *testing.T, h *harness) {
		h.startThree(t)
		task := h.submit(t, "work", byWorkers(2))
		shares := h.subtasksByAgent(t, task.ID)
		h.complete(t, shares["a"], orchestrator.Result{Failure: orchestrator.FailureWork, Text: "one"})
		h.waitUntil(t, task.ID, func(t models.Task) bool { return t.Progress == 50 })
		h.db.Clock.Advance(time.Second)
		h.complete(t, shares["b"], orchestrator.Result{Failure: orchestrator.FailureInvalid, Text: "two", Detail: []byte(`{"x":1}`)})
		failed := h.waitUntil(t, task.ID, ended)
		require.Equal(t, string(orchestrator.FailureInvalid), failed.ErrorCode)
		require.Equal(t, "two (b, the last of 2 workers)", failed.Error)
		require.JSONEq(t, `{"x":1}`, string(failed.Detail))
	})
}

// TestPartsThatEnd late, early or with much.
func TestPartsThatEnd(t *testing.T) {
	t.Parallel()

	withHarness(t, "APartIsKeptAsLongAsItsWhole", func(t *testing.T, h *harness) {
		h.startThree(t)
		task := h.submit(t, "work", func(s *orchestrator.Submission) {
			byWorkers(3)(s)
			s.Override.TimeoutMS = (7 * 24 * time.Hour).Milliseconds()
		})
		shares := h.subtasksByAgent(t, task.ID)
		h.complete(t, shares["a"], orchestrator.Result{Failure: orchestrator.FailureWork})
		h.complete(t, shares["b"], orchestrator.Result{Failure: orchestrator.FailureWork})
		h.waitUntil(t, task.ID, func(t models.Task) bool { return t.Progress == 66 })
		require.NoError(t, h.db.Write(t.Context(), func(tx *store.Tx) error {
			n, err := tx.PurgeTasks(h.db.Now().Add(time.Hour), 100)
			require.Zero(t, n)
			return err
		}))
		h.complete(t, shares["c"], orchestrator.Result{Failure: orchestrator.FailureWork})
		require.Equal(t, models.TaskFailed, h.waitUntil(t, task.ID, ended).State)
		require.NoError(t, h.db.Write(t.Context(), func(tx *store.Tx) error {
			n, err := tx.PurgeTasks(h.db.Now().Add(time.Hour), 100)
			require.EqualValues(t, 3, n)
			return err
		}))
	})
	withHarness(t, "WhatTheOthersHaveUsedCountsToo", func(t *testing.T, h *harness) {
		h.startThree(t)
		task := h.submit(t, "work", byWorkers(3))
		shares := h.subtasksByAgent(t, task.ID)
		h.complete(t, shares["a"], orchestrator.Result{Tokens: 7})
		h.waitUntil(t, task.ID, ended)
		for _, id := range []string{"b", "c"} {
			_, err := h.Complete(t.Context(), id, shares[id].ID, orchestrator.Result{Tokens: 200})
			require.Equal(t, errs.TaskState, errs.CodeOf(err))
		}
		h.waitUntil(t, task.ID, func(t models.Task) bool { return t.Tokens == 407 })
		requireSound(t, h)
	})
	withHarness(t, "WhatAPartAsksIsAskedOfTheWhole", func(t *testing.T, h *harness) {
		h.startThree(t)
		task := h.submit(t, "work", byWorkers(2))
		part := h.subtasksByAgent(t, task.ID)["b"]
		_, err := h.Clarify(t.Context(), "b", part.ID, orchestrator.Question{Text: "which?"})
		require.NoError(t, err)
		d, err := h.Detail(t.Context(), task.ID)
		require.NoError(t, err)
		require.Equal(t, "which?", d.Question.Text)
		answered, err := h.Reply(t.Context(), task.ID, "this one")
		require.NoError(t, err)
		require.Equal(t, part.ID, answered.ID)
		_, err = h.Reply(t.Context(), task.ID, "this one")
		require.Equal(t, errs.TaskState, errs.CodeOf(err))
	})
}

// TestWhoGetsAPart of a task that several do.
func TestWhoGetsAPart(t *testing.T) {
	t.Parallel()

	withHarness(t, "WhereFewerAreFreeItIsThose", func(t *testing.T, h *harness) {
		h.startThree(t)
		require.Len(t, h.subtasksByAgent(t, h.submit(t, "work", byWorkers(16)).ID), 3)
	})
	withHarness(t, "WhereNobodyIsFreeOneIsWaitedFor", func(t *testing.T, h *harness) {
		h.worker(t, "a", 1, "work")
		busy := h.submit(t, "work", nil)
		task := h.submit(t, "work", byWorkers(2))
		require.Len(t, h.subtasksByAgent(t, task.ID), 1)
		h.complete(t, busy, orchestrator.Result{})
		require.Eventually(t, func() bool { return len(h.inbox(t, "a")) == 1 }, time.Minute, time.Millisecond)
		h.complete(t, h.subtasksByAgent(t, task.ID)["a"], orchestrator.Result{Output: []byte("x")})
		require.Equal(t, models.TaskDone, h.waitUntil(t, task.ID, ended).State)
	})
	withHarness(t, "WhoHasOneDoesNotGetAnotherOneThatIsTriedAgain", func(t *testing.T, h *harness) {
		h.startThree(t)
		task := h.submit(t, "work", byWorkers(2))
		shares := h.subtasksByAgent(t, task.ID)
		h.complete(t, shares["a"], orchestrator.Result{Failure: orchestrator.FailureResource})
		again := h.advanceUntil(t, shares["a"].ID, time.Second, func(t models.Task) bool { return t.Attempt == 2 && t.AgentID != "" })
		require.Equal(t, "c", again.AgentID)
	})
	withHarness(t, "EachHasItsPartOfTheBudget", func(t *testing.T, h *harness) {
		h.startThree(t)
		task := h.submit(t, "work", func(s *orchestrator.Submission) {
			byWorkers(3)(s)
			s.Budget = new(int64(1000))
		})
		for id, part := range h.subtasksByAgent(t, task.ID) {
			requireHeld(t, h, id, 333)
			h.complete(t, part, orchestrator.Result{Failure: orchestrator.FailureWork, Tokens: 100})
		}
		require.EqualValues(t, 300, h.waitUntil(t, task.ID, ended).Tokens)
		requireSound(t, h)
	})
	withHarness(t, "WhereNobodyCouldNothingIsLeft", func(t *testing.T, h *harness) {
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
		requireUnchanged(t, h, before, "a submission that is refused")
		sub := orchestrator.Submission{Capabilities: []string{"work"}, Budget: new(int64(1_000_000))}
		byWorkers(2)(&sub)
		_, err := h.Submit(t.Context(), operator(), sub, nil)
		require.Equal(t, errs.BudgetExceeded, errs.CodeOf(err), "%v", err)
		requireNone(t, h, "of what no budget covers nothing is left", "SELECT id FROM tasks")
	})
	withHarness(t, "ItsEndTakesTheOpenPartsWithIt", func(t *testing.T, h *harness) {
		h.startThree(t)
		_, err := h.OpenSession(t.Context(), operator(), "s", nil)
		require.NoError(t, err)
		task := h.submit(t, "work", func(s *orchestrator.Submission) {
			byWorkers(3)(s)
			s.SessionID = "s"
		})
		shares := h.subtasksByAgent(t, task.ID)
		h.complete(t, shares["a"], orchestrator.Result{Failure: orchestrator.FailureWork})
		_, err = h.Cancel(t.Context(), task.ID, "enough", nil)
		require.NoError(t, err)
		require.Equal(t, models.TaskCancelled, h.waitUntil(t, shares["b"].ID, ended).State)
		require.Equal(t, models.TaskCancelled, h.waitUntil(t, shares["c"].ID, ended).State)
		requireSound(t, h)
	})
	withDatabase(t, "APartThatEndedBeforeTheServerDidIsSeenAfterItsStart", func(t *testing.T, db *storetest.DB) {
		h, stop := startStoppable(t, db, nil)
		h.startThree(t)
		task := h.submit(t, "work", byWorkers(2))
		shares := h.subtasksByAgent(t, task.ID)
		stop()
		part := shares["a"] // its end is committed, and nobody is there to look at the whole
		_, err := h.Complete(context.Background(), "a", part.ID, orchestrator.Result{Output: []byte("x")})
		require.NoError(t, err)
		now, err := h.Task(t.Context(), task.ID)
		require.NoError(t, err)
		require.False(t, ended(now))
		next := start(t, db, nil)
		require.Equal(t, models.TaskDone, next.waitUntil(t, task.ID, ended).State)
	})
}

// TestAnOverrun is what follows where the budget does not cover the work (PROTOCOL_V5 §9.2).
func TestAnOverrun(t *testing.T) {
	t.Parallel()
	over := func(o models.Overrun, budget int64) func(*orchestrator.Submission) {
		return func(s *orchestrator.Submission) {
			s.Budget, s.Override.Overrun, s.Override.Retries = &budget, &o, new(2)
		}
	}
	refuses := func(needed int64) orchestrator.Result {
		return orchestrator.Result{Failure: orchestrator.FailureBudget, Text: "too little", Needed: needed, Tokens: 5}
	}
	again := func(n int) func(models.Task) bool {
		return func(t models.Task) bool {
			return t.Attempt == n && t.AgentID != "" && t.WaitingFor == models.NotWaiting || ended(t)
		}
	}
	for name, c := range map[string]struct {
		overrun models.Overrun
		needed  int64
		budgets []int64 // of each attempt; the last one is refused, too
	}{
		"GivesUpWhereNothingIsSaid":         {models.Overrun{Action: models.OverrunGiveUp}, 150, []int64{20}},
		"IsRaisedToWhatIsNeeded":            {models.Overrun{Action: models.OverrunRaise}, 150, []int64{20, 155, 160}},
		"IsDoubledWhereThatIsNotSaid":       {models.Overrun{Action: models.OverrunRaise}, 0, []int64{20, 40, 80}},
		"IsDoubledWhereWhatIsNeededIsThere": {models.Overrun{Action: models.OverrunRaise}, 15, []int64{20, 40, 80}},
		"IsNotRaisedBeyondItsBound":         {models.Overrun{Action: models.OverrunRaise, MaxBudget: 100}, 150, []int64{20}},
		"IsRaisedToItsBound":                {models.Overrun{Action: models.OverrunRaise, MaxBudget: 50}, 0, []int64{20, 40, 50}},
		"IsTriedOnceMoreForSomethingSmall":  {models.Overrun{Action: models.OverrunSimplify}, 150, []int64{20, 20}},
	} {
		withHarness(t, name, func(t *testing.T, h *harness) {
			h.worker(t, "a", 1, "work")
			id := h.submit(t, "work", over(c.overrun, c.budgets[0])).ID
			for n, budget := range c.budgets {
				task := h.waitUntil(t, id, again(n+1))
				require.Equal(t, n+1, task.Attempt)
				require.Equal(t, budget, *task.Budget)
				requireHeld(t, h, "a", budget-int64(5*n))
				_, err := h.Complete(t.Context(), "a", id, refuses(c.needed))
				require.NoError(t, err)
			}
			task := h.waitUntil(t, id, ended)
			require.Equal(t, len(c.budgets), task.Attempt)
			require.Equal(t, string(orchestrator.FailureBudget), task.ErrorCode)
			require.EqualValues(t, 5*len(c.budgets), task.Tokens)
			requireSound(t, h)
		})
	}
	withHarness(t, "IsNotAPolicyOfWhatHasNoBudget", func(t *testing.T, h *harness) {
		for _, o := range []models.Overrun{
			{Action: models.OverrunRaise}, {Action: "more"}, {Action: models.OverrunSimplify, MaxBudget: 1}, {Action: models.OverrunGiveUp, MaxBudget: -1},
		} {
			_, err := h.Submit(t.Context(), operator(), orchestrator.Submission{Capabilities: []string{"work"}, Override: orchestrator.Override{Overrun: &o}}, nil)
			require.Equal(t, errs.InvalidRequest, errs.CodeOf(err))
		}
	})
}

// TestABoundIsNotBelowTheBudget that it is the bound of.
func TestABoundIsNotBelowTheBudget(t *testing.T) {
	t.Parallel()
	withHarness(t, "AndTheSameIsFine", func(t *testing.T, h *harness) {
		h.worker(t, "a", 1, "work")
		ask := func(most int64) error {
			o := models.Overrun{Action: models.OverrunRaise, MaxBudget: most}
			_, err := h.Submit(t.Context(), operator(), orchestrator.Submission{Capabilities: []string{"work"}, Budget: new(int64(20)), Override: orchestrator.Override{Overrun: &o}}, nil)
			return err
		}
		err := ask(19)
		require.Equal(t, errs.InvalidRequest, errs.CodeOf(err))
		require.Equal(t, "/overrun/max_budget", errs.From(err).Fields[0].Pointer)
		require.NoError(t, ask(20))
	})
}

// TestWorkersAreChecked covers the bounds of Override.Workers.
func TestWorkersAreChecked(t *testing.T) {
	t.Parallel()
	withHarness(t, "TwoToSixteen", func(t *testing.T, h *harness) {
		for _, n := range []int{-1, 1, 17} {
			_, err := h.Submit(t.Context(), operator(), orchestrator.Submission{Capabilities: []string{"work"}, Override: orchestrator.Override{Workers: n}}, nil)
			require.Equal(t, errs.InvalidRequest, errs.CodeOf(err))
			require.Equal(t, "/workers", errs.From(err).Fields[0].Pointer)
		}
	})
}
