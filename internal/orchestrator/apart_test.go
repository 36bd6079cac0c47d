package orchestrator_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/models"
	"comet/store/storetest"
)

// pair has a and b, or whoever else there is, do two parts of a whole that wants both.
func (h *house) pair(t *testing.T) (whole models.Task, a, b models.Task) {
	t.Helper()
	whole = h.submit(t, "work", byWorkers(2))
	shares := h.shares(t, whole.ID)
	require.Len(t, shares, 2)
	return whole, shares["a"], shares["b"]
}

// TestNoAgentHasTwoParts of one whole, now or later.
func TestNoAgentHasTwoParts(t *testing.T) {
	t.Parallel()
	busy := orchestrator.Result{Failure: orchestrator.FailureResource}

	rule(t, "WhoHadOneBeforeDoesNotGetAnother", func(t *testing.T, h *house) {
		h.trio(t)
		_, a, b := h.pair(t)
		h.give(t, a, busy)
		moved := h.pass(t, a.ID, time.Second, func(t models.Task) bool { return t.Attempt == 2 && t.AgentID != "" })
		require.Equal(t, "c", moved.AgentID)
		h.give(t, b, busy)
		again := h.pass(t, b.ID, time.Second, func(t models.Task) bool { return t.Attempt == 2 && t.AgentID != "" })
		require.Equal(t, "b", again.AgentID, "a is free and had the other part, so b gets its own again")
		requireSound(t, h)
	})
	onFresh(t, "WhereTwoReplicasChooseTheSameAtATime", func(t *testing.T, db *storetest.DB) {
		here, there := open(t, db, nil), open(t, other(t, db), nil)
		here.trio(t)
		for _, id := range []string{"a", "b", "c"} {
			require.NoError(t, there.ReindexAgent(t.Context(), id))
		}
		whole, a, b := here.pair(t)
		release := hold(t, db, "c", 2)
		here.give(t, a, busy)
		there.give(t, b, busy)
		db.Clock.Advance(time.Second) // both try again, and c is the best for both
		release()
		for _, id := range []string{a.ID, b.ID} {
			here.until(t, id, func(t models.Task) bool {
				return t.AgentID != "" && t.WaitingFor == models.NotWaiting && t.Attempt == 2
			})
		}
		require.Contains(t, here.shares(t, whole.ID), "c", "and no two have the same")
		requireSound(t, here)
		requireLegalEvents(t, here)
	})
}

// hold locks a worker's row until release is called and so many wait for it. SQLite has one
// writer, and nobody waits.
func hold(t *testing.T, db *storetest.DB, agentID string, waiting int) (release func()) {
	t.Helper()
	if db.Options.DatabaseURL == "" {
		return func() {}
	}
	watch := past(t, db)
	tx, err := past(t, db).BeginTx(context.Background(), nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), "SELECT 1 FROM workers WHERE agent_id = $1 FOR UPDATE", agentID)
	require.NoError(t, err)
	return func() {
		require.Eventually(t, func() bool {
			n := 0
			err := watch.QueryRowContext(context.Background(),
				"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&n)
			return err == nil && n >= waiting
		}, time.Minute, time.Millisecond)
		require.NoError(t, tx.Commit())
	}
}

// TestAPartThatWaits for an agent that may have it.
func TestAPartThatWaits(t *testing.T) {
	t.Parallel()

	// waiting has b's part wait for b, who is busy with something else, and a's part done.
	waiting := func(t *testing.T, h *house) (part, busy models.Task) {
		t.Helper()
		h.worker(t, "a", 1, "work")
		h.worker(t, "b", 1, "work")
		_, a, b := h.pair(t)
		h.give(t, b, orchestrator.Result{Failure: orchestrator.FailureResource})
		busy = h.submit(t, "work", func(s *orchestrator.Submission) { patient(s); s.Agent = "b" })
		part = h.pass(t, b.ID, time.Second, waits(models.WaitForWorker))
		h.give(t, a, orchestrator.Result{Failure: orchestrator.FailureWork})
		return part, busy
	}
	rule(t, "KeepsNobodyElseWaitingAndIsServed", func(t *testing.T, h *house) {
		part, busy := waiting(t, h)
		ordinary := h.submit(t, "work", nil)
		require.Equal(t, "a", ordinary.AgentID, "which may not have the part, and is free")
		h.give(t, busy, orchestrator.Result{})
		h.has(t, part.ID, "b")
		requireSound(t, h)
		requireLegalEvents(t, h)
	})
	rule(t, "WaitsOnWhileNobodyIsThereWhoMayHaveIt", func(t *testing.T, h *house) {
		part, busy := waiting(t, h)
		first := h.submit(t, "work", nil)
		second := h.submit(t, "work", nil)
		require.NoError(t, h.Leave(t.Context(), "b", false))
		h.give(t, first, orchestrator.Result{})
		h.has(t, second.ID, "a") // the line of the part is older and was looked at before
		still, err := h.Task(t.Context(), part.ID)
		require.NoError(t, err)
		require.Equal(t, models.WaitForWorker, still.WaitingFor)
		require.Equal(t, 1, still.Attempt, "nobody was asked")
		_, err = h.Complete(t.Context(), "b", busy.ID, orchestrator.Result{})
		require.NoError(t, err)
		_, err = h.Join(t.Context(), "b", orchestrator.JoinRequest{Dialect: "plain", Link: "poll"})
		require.NoError(t, err)
		h.has(t, part.ID, "b")
		requireSound(t, h)
	})
}

// TestWhatWasHandedOff is not for everybody who offers it (PROTOCOL_V5 §5.4).
func TestWhatWasHandedOff(t *testing.T) {
	t.Parallel()

	rule(t, "KeepsNobodyWaitingWhoIsLessDeep", func(t *testing.T, h *house) {
		h.worker(t, "source", 1, "write")
		h.worker(t, "b", 1, "work")
		h.register(t, "a", "work")
		_, err := h.Join(t.Context(), "a", orchestrator.JoinRequest{Dialect: "plain", Link: "websocket", MaxDepth: 1})
		require.NoError(t, err)
		busy := h.submit(t, "work", func(s *orchestrator.Submission) { s.Agent = "b" })
		source := h.submit(t, "write", nil)
		deep, err := h.HandOff(t.Context(), ops(), "source", source.ID, orchestrator.Submission{Capabilities: []string{"work"}, Priority: models.DefaultPriority})
		require.NoError(t, err)
		require.Equal(t, models.WaitForWorker, deep.Task.WaitingFor, "a takes nothing that was handed off")
		ordinary := h.submit(t, "work", nil)
		require.Equal(t, "a", ordinary.AgentID)
		h.give(t, busy, orchestrator.Result{})
		h.has(t, deep.Task.ID, "b")
		requireSound(t, h)
		requireLegalEvents(t, h)
	})
	onFresh(t, "GoesToWhomItsOwnPolicyChooses", func(t *testing.T, db *storetest.DB) {
		h := open(t, db, &orchestrator.Options{Classes: map[string]orchestrator.Policy{"strict": {
			Timeout: time.Minute, Line: time.Minute, Answer: time.Minute, MaxDepth: 4, Threshold: 1,
		}}})
		h.worker(t, "source", 1, "write")
		h.worker(t, "a", 1, "work")
		source := h.submit(t, "write", func(s *orchestrator.Submission) { s.Class = "strict" })
		out, err := h.HandOff(t.Context(), ops(), "source", source.ID, orchestrator.Submission{Capabilities: []string{"work", "more"}})
		require.NoError(t, err)
		require.Equal(t, "a", out.Task.AgentID, "half of it is enough for its class, and not for its source's")
	})
	rule(t, "GoesToOne", func(t *testing.T, h *house) {
		h.trio(t)
		source := h.submit(t, "work", nil)
		before := everything(t, h)
		sub := orchestrator.Submission{Capabilities: []string{"work"}}
		byWorkers(2)(&sub)
		_, err := h.HandOff(t.Context(), ops(), source.AgentID, source.ID, sub)
		require.Equal(t, errs.InvalidRequest, errs.CodeOf(err), "%v", err)
		requireUnchanged(t, h, before, "HandOff")
	})
}

// TestTheBoundOfAWhole is never exceeded by its parts together (PROTOCOL_V5 §9.2).
func TestTheBoundOfAWhole(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		budget, most int64
		budgets      []int64 // of a part's attempts; the last one is refused, too
	}{
		"EachPartIsRaisedToItsShare":                     {300, 500, []int64{100, 166}},
		"NoPartIsRaisedWhoseShareIsItsBudget":            {300, 300, []int64{100}},
		"APartIsRaisedWithoutABoundWhereTheWholeHadNone": {300, 0, []int64{100, 200, 400}},
	} {
		rule(t, name, func(t *testing.T, h *house) {
			h.trio(t)
			whole := h.submit(t, "work", func(s *orchestrator.Submission) {
				byWorkers(3)(s)
				s.Budget, s.Override.Retries = &c.budget, new(2)
				s.Override.Overrun = &models.Overrun{Action: models.OverrunRaise, MaxBudget: c.most}
			})
			for _, part := range h.shares(t, whole.ID) {
				for n, budget := range c.budgets {
					part = h.until(t, part.ID, func(t models.Task) bool {
						return t.Attempt == n+1 && t.AgentID != "" && t.WaitingFor == models.NotWaiting || ended(t)
					})
					require.Equal(t, n+1, part.Attempt)
					require.Equal(t, budget, *part.Budget)
					h.give(t, part, orchestrator.Result{Failure: orchestrator.FailureBudget})
				}
				require.True(t, ended(h.until(t, part.ID, ended)))
			}
			require.Equal(t, string(orchestrator.FailureBudget), h.until(t, whole.ID, ended).ErrorCode)
			requireSound(t, h)
		})
	}
	rule(t, "ThereIsATokenForEachAtLeast", func(t *testing.T, h *house) {
		h.trio(t)
		sub := orchestrator.Submission{Capabilities: []string{"work"}, Budget: new(int64(2))}
		byWorkers(3)(&sub)
		_, err := h.Submit(t.Context(), ops(), sub, nil)
		require.Equal(t, errs.InvalidRequest, errs.CodeOf(err))
		require.True(t, slices.ContainsFunc(errs.From(err).Fields, func(f errs.Field) bool { return f.Pointer == "/budget" && f.Rule == "min" }), "%v", err)
	})
}
