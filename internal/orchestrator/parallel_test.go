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

// shares returns the parts of a task by the agents that have them.
func (h *house) shares(t *testing.T, id string) map[string]models.Task {
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

// give completes a part.
func (h *house) give(t *testing.T, part models.Task, r orchestrator.Result) {
	t.Helper()
	_, err := h.Complete(t.Context(), part.AgentID, part.ID, r)
	require.NoError(t, err)
}

// trio is three workers that do the same.
func (h *house) trio(t *testing.T) {
	t.Helper()
	for _, id := range []string{"a", "b", "c"} {
		h.worker(t, id, 2, "work")
	}
}

// TestSeveralWorkers do one task at a time (PROTOCOL_V5 §4.2, §5.1).
func TestSeveralWorkers(t *testing.T) {
	t.Parallel()

	rule(t, "TheFirstSuccessIsTakenAndTheOthersAreTakenBack", func(t *testing.T, h *house) {
		h.trio(t)
		task := h.submit(t, "work", byWorkers(3))
		require.Equal(t, models.TaskRunning, task.State)
		shares := h.shares(t, task.ID)
		require.Len(t, shares, 3)
		h.give(t, shares["b"], orchestrator.Result{Output: []byte("mine"), Tokens: 7})
		done := h.until(t, task.ID, ended)
		require.Equal(t, models.TaskDone, done.State)
		require.Equal(t, "mine", h.output(t, task.ID, models.StreamResult))
		require.EqualValues(t, 7, done.Tokens)
		for _, id := range []string{"a", "c"} {
			require.Equal(t, models.TaskCancelled, h.until(t, shares[id].ID, ended).State)
			require.Equal(t, []models.MessageKind{models.MessageCancel}, h.told(t, id))
		}
		requireSound(t, h)
		requireLegalEvents(t, h)
	})
	rule(t, "WhereAllFailItHasTheFailureOfTheLast", func(t *testing.T, h *house) {
		h.trio(t)
		task := h.submit(t, "work", byWorkers(2))
		shares := h.shares(t, task.ID)
		h.give(t, shares["a"], orchestrator.Result{Failure: orchestrator.FailureWork, Text: "one"})
		h.until(t, task.ID, func(t models.Task) bool { return t.Progress == 50 })
		h.db.Clock.Advance(time.Second)
		h.give(t, shares["b"], orchestrator.Result{Failure: orchestrator.FailureInvalid, Text: "two", Detail: []byte(`{"x":1}`)})
		failed := h.until(t, task.ID, ended)
		require.Equal(t, string(orchestrator.FailureInvalid), failed.ErrorCode)
		require.Equal(t, "two (b, the last of 2 workers)", failed.Error)
		require.JSONEq(t, `{"x":1}`, string(failed.Detail))
	})
}

// TestPartsThatEnd late, early or with much.
func TestPartsThatEnd(t *testing.T) {
	t.Parallel()

	rule(t, "APartIsKeptAsLongAsItsWhole", func(t *testing.T, h *house) {
		h.trio(t)
		task := h.submit(t, "work", func(s *orchestrator.Submission) {
			byWorkers(3)(s)
			s.Override.TimeoutMS = (7 * 24 * time.Hour).Milliseconds()
		})
		shares := h.shares(t, task.ID)
		h.give(t, shares["a"], orchestrator.Result{Failure: orchestrator.FailureWork})
		h.give(t, shares["b"], orchestrator.Result{Failure: orchestrator.FailureWork})
		h.until(t, task.ID, func(t models.Task) bool { return t.Progress == 66 })
		require.NoError(t, h.db.Write(t.Context(), func(tx *store.Tx) error {
			n, err := tx.PurgeTasks(h.db.Now().Add(time.Hour), 100)
			require.Zero(t, n)
			return err
		}))
		h.give(t, shares["c"], orchestrator.Result{Failure: orchestrator.FailureWork})
		require.Equal(t, models.TaskFailed, h.until(t, task.ID, ended).State)
		require.NoError(t, h.db.Write(t.Context(), func(tx *store.Tx) error {
			n, err := tx.PurgeTasks(h.db.Now().Add(time.Hour), 100)
			require.EqualValues(t, 3, n)
			return err
		}))
	})
	rule(t, "WhatTheOthersHaveUsedCountsToo", func(t *testing.T, h *house) {
		h.trio(t)
		task := h.submit(t, "work", byWorkers(3))
		shares := h.shares(t, task.ID)
		h.give(t, shares["a"], orchestrator.Result{Tokens: 7})
		h.until(t, task.ID, ended)
		for _, id := range []string{"b", "c"} {
			_, err := h.Complete(t.Context(), id, shares[id].ID, orchestrator.Result{Tokens: 200})
			require.Equal(t, errs.TaskState, errs.CodeOf(err))
		}
		h.until(t, task.ID, func(t models.Task) bool { return t.Tokens == 407 })
		requireSound(t, h)
	})
	rule(t, "WhatAPartAsksIsAskedOfTheWhole", func(t *testing.T, h *house) {
		h.trio(t)
		task := h.submit(t, "work", byWorkers(2))
		part := h.shares(t, task.ID)["b"]
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

	rule(t, "WhereFewerAreFreeItIsThose", func(t *testing.T, h *house) {
		h.trio(t)
		require.Len(t, h.shares(t, h.submit(t, "work", byWorkers(16)).ID), 3)
	})
	rule(t, "WhereNobodyIsFreeOneIsWaitedFor", func(t *testing.T, h *house) {
		h.worker(t, "a", 1, "work")
		busy := h.submit(t, "work", nil)
		task := h.submit(t, "work", byWorkers(2))
		require.Len(t, h.shares(t, task.ID), 1)
		h.give(t, busy, orchestrator.Result{})
		require.Eventually(t, func() bool { return len(h.inbox(t, "a")) == 1 }, time.Minute, time.Millisecond)
		h.give(t, h.shares(t, task.ID)["a"], orchestrator.Result{Output: []byte("x")})
		require.Equal(t, models.TaskDone, h.until(t, task.ID, ended).State)
	})
	rule(t, "WhoHasOneDoesNotGetAnotherOneThatIsTriedAgain", func(t *testing.T, h *house) {
		h.trio(t)
		task := h.submit(t, "work", byWorkers(2))
		shares := h.shares(t, task.ID)
		h.give(t, shares["a"], orchestrator.Result{Failure: orchestrator.FailureResource})
		again := h.pass(t, shares["a"].ID, time.Second, func(t models.Task) bool { return t.Attempt == 2 && t.AgentID != "" })
		require.Equal(t, "c", again.AgentID)
	})
	rule(t, "EachHasItsPartOfTheBudget", func(t *testing.T, h *house) {
		h.trio(t)
		task := h.submit(t, "work", func(s *orchestrator.Submission) {
			byWorkers(3)(s)
			s.Budget = new(int64(1000))
		})
		for id, part := range h.shares(t, task.ID) {
			requireHeld(t, h, id, 333)
			h.give(t, part, orchestrator.Result{Failure: orchestrator.FailureWork, Tokens: 100})
		}
		require.EqualValues(t, 300, h.until(t, task.ID, ended).Tokens)
		requireSound(t, h)
	})
	rule(t, "WhereNobodyCouldNothingIsLeft", func(t *testing.T, h *house) {
		h.trio(t)
		before := everything(t, h)
		for code, change := range map[errs.Code]func(*orchestrator.Submission){
			errs.UnsupportedWork: func(s *orchestrator.Submission) { s.Capabilities = []string{"nothing"} },
			errs.InvalidRequest:  func(s *orchestrator.Submission) { s.Agent = "a" },
		} {
			sub := orchestrator.Submission{Capabilities: []string{"work"}}
			byWorkers(2)(&sub)
			change(&sub)
			_, err := h.Submit(t.Context(), ops(), sub, nil)
			require.Equal(t, code, errs.CodeOf(err), "%v", err)
		}
		requireUnchanged(t, h, before, "a submission that is refused")
		sub := orchestrator.Submission{Capabilities: []string{"work"}, Budget: new(int64(1_000_000))}
		byWorkers(2)(&sub)
		_, err := h.Submit(t.Context(), ops(), sub, nil)
		require.Equal(t, errs.BudgetExceeded, errs.CodeOf(err), "%v", err)
		requireNone(t, h, "of what no budget covers nothing is left", "SELECT id FROM tasks")
	})
	rule(t, "ItsEndTakesTheOpenPartsWithIt", func(t *testing.T, h *house) {
		h.trio(t)
		_, err := h.OpenSession(t.Context(), ops(), "s", nil)
		require.NoError(t, err)
		task := h.submit(t, "work", func(s *orchestrator.Submission) {
			byWorkers(3)(s)
			s.Session = "s"
		})
		shares := h.shares(t, task.ID)
		h.give(t, shares["a"], orchestrator.Result{Failure: orchestrator.FailureWork})
		_, err = h.Cancel(t.Context(), task.ID, "enough", nil)
		require.NoError(t, err)
		require.Equal(t, models.TaskCancelled, h.until(t, shares["b"].ID, ended).State)
		require.Equal(t, models.TaskCancelled, h.until(t, shares["c"].ID, ended).State)
		requireSound(t, h)
	})
	onFresh(t, "APartThatEndedBeforeTheServerDidIsSeenAfterItsStart", func(t *testing.T, db *storetest.DB) {
		h, stop := boot(t, db, nil)
		h.trio(t)
		task := h.submit(t, "work", byWorkers(2))
		shares := h.shares(t, task.ID)
		stop()
		part := shares["a"] // its end is committed, and nobody is there to look at the whole
		_, err := h.Complete(context.Background(), "a", part.ID, orchestrator.Result{Output: []byte("x")})
		require.NoError(t, err)
		now, err := h.Task(t.Context(), task.ID)
		require.NoError(t, err)
		require.False(t, ended(now))
		next := open(t, db, nil)
		require.Equal(t, models.TaskDone, next.until(t, task.ID, ended).State)
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
		rule(t, name, func(t *testing.T, h *house) {
			h.worker(t, "a", 1, "work")
			id := h.submit(t, "work", over(c.overrun, c.budgets[0])).ID
			for n, budget := range c.budgets {
				task := h.until(t, id, again(n+1))
				require.Equal(t, n+1, task.Attempt)
				require.Equal(t, budget, *task.Budget)
				requireHeld(t, h, "a", budget-int64(5*n))
				_, err := h.Complete(t.Context(), "a", id, refuses(c.needed))
				require.NoError(t, err)
			}
			task := h.until(t, id, ended)
			require.Equal(t, len(c.budgets), task.Attempt)
			require.Equal(t, string(orchestrator.FailureBudget), task.ErrorCode)
			require.EqualValues(t, 5*len(c.budgets), task.Tokens)
			requireSound(t, h)
		})
	}
	rule(t, "IsNotAPolicyOfWhatHasNoBudget", func(t *testing.T, h *house) {
		for _, o := range []models.Overrun{
			{Action: models.OverrunRaise}, {Action: "more"}, {Action: models.OverrunSimplify, MaxBudget: 1}, {Action: models.OverrunGiveUp, MaxBudget: -1},
		} {
			_, err := h.Submit(t.Context(), ops(), orchestrator.Submission{Capabilities: []string{"work"}, Override: orchestrator.Override{Overrun: &o}}, nil)
			require.Equal(t, errs.InvalidRequest, errs.CodeOf(err))
		}
	})
}

// TestABoundIsNotBelowTheBudget that it is the bound of.
func TestABoundIsNotBelowTheBudget(t *testing.T) {
	t.Parallel()
	rule(t, "AndTheSameIsFine", func(t *testing.T, h *house) {
		h.worker(t, "a", 1, "work")
		ask := func(most int64) error {
			o := models.Overrun{Action: models.OverrunRaise, MaxBudget: most}
			_, err := h.Submit(t.Context(), ops(), orchestrator.Submission{Capabilities: []string{"work"}, Budget: new(int64(20)), Override: orchestrator.Override{Overrun: &o}}, nil)
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
	rule(t, "TwoToSixteen", func(t *testing.T, h *house) {
		for _, n := range []int{-1, 1, 17} {
			_, err := h.Submit(t.Context(), ops(), orchestrator.Submission{Capabilities: []string{"work"}, Override: orchestrator.Override{Workers: n}}, nil)
			require.Equal(t, errs.InvalidRequest, errs.CodeOf(err))
			require.Equal(t, "/workers", errs.From(err).Fields[0].Pointer)
		}
	})
}
