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

// startTwo has a and b, or whoever else there is, do two parts of a whole that wants both.
func (h *harness) startTwo(t *testing.T) (whole models.Task, a, b models.Task) {
	t.Helper()
	whole = h.submit(t, "work", byWorkers(2))
	shares := h.subtasksByAgent(t, whole.ID)
	require.Len(t, shares, 2)
	return whole, shares["a"], shares["b"]
}

// TestNoAgentHasTwoParts of one whole, now or later.
func TestNoAgentHasTwoParts(t *testing.T) {
	t.Parallel()
	busy := orchestrator.Result{Failure: orchestrator.FailureResource}

	withHarness(t, "WhoHadOneBeforeDoesNotGetAnother", func(t *testing.T, h *harness) {
		h.startThree(t)
		_, a, b := h.startTwo(t)
		h.complete(t, a, busy)
		moved := h.advanceUntil(t, a.ID, time.Second, func(t models.Task) bool { return t.Attempt == 2 && t.AgentID != "" })
		require.Equal(t, "c", moved.AgentID)
		h.complete(t, b, busy)
		again := h.advanceUntil(t, b.ID, time.Second, func(t models.Task) bool { return t.Attempt == 2 && t.AgentID != "" })
		require.Equal(t, "b", again.AgentID, "a is free and had the other part, so b gets its own again")
		requireSound(t, h)
	})
	withDatabase(t, "WhereTwoReplicasChooseTheSameAtATime", func(t *testing.T, db *storetest.DB) {
		here, there := start(t, db, nil), start(t, secondReplica(t, db), nil)
		here.startThree(t)
		for _, id := range []string{"a", "b", "c"} {
			require.NoError(t, there.ReindexAgent(t.Context(), id))
		}
		whole, a, b := here.startTwo(t)
		release := lockWorker(t, db, "c", 2)
		here.complete(t, a, busy)
		there.complete(t, b, busy)
		db.Clock.Advance(time.Second) // both try again, and c is the best for both
		release()
		for _, id := range []string{a.ID, b.ID} {
			here.waitUntil(t, id, func(t models.Task) bool {
				return t.AgentID != "" && t.WaitingFor == models.NotWaiting && t.Attempt == 2
			})
		}
		require.Contains(t, here.subtasksByAgent(t, whole.ID), "c", "and no two have the same")
		requireSound(t, here)
		requireLegalEvents(t, here)
	})
}

// lockWorker locks a worker's row until release is called and so many wait for it. SQLite has one
// writer, and nobody waits.
func lockWorker(t *testing.T, db *storetest.DB, agentID string, waiting int) (release func()) {
	t.Helper()
	if db.Options.DatabaseURL == "" {
		return func() {}
	}
	watch := openRaw(t, db)
	tx, err := openRaw(t, db).BeginTx(context.Background(), nil)
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
	waiting := func(t *testing.T, h *harness) (part, busy models.Task) {
		t.Helper()
		h.worker(t, "a", 1, "work")
		h.worker(t, "b", 1, "work")
		_, a, b := h.startTwo(t)
		h.complete(t, b, orchestrator.Result{Failure: orchestrator.FailureResource})
		busy = h.submit(t, "work", func(s *orchestrator.Submission) { longTimeout(s); s.AgentID = "b" })
		part = h.advanceUntil(t, b.ID, time.Second, waitsFor(models.WaitForWorker))
		h.complete(t, a, orchestrator.Result{Failure: orchestrator.FailureWork})
		return part, busy
	}
	withHarness(t, "KeepsNobodyElseWaitingAndIsServed", func(t *testing.T, h *harness) {
		part, busy := waiting(t, h)
		ordinary := h.submit(t, "work", nil)
		require.Equal(t, "a", ordinary.AgentID, "which may not have the part, and is free")
		h.complete(t, busy, orchestrator.Result{})
		h.waitUntilAssigned(t, part.ID, "b")
		requireSound(t, h)
		requireLegalEvents(t, h)
	})
	withHarness(t, "WaitsOnWhileNobodyIsThereWhoMayHaveIt", func(t *testing.T, h *harness) {
		part, busy := waiting(t, h)
		first := h.submit(t, "work", nil)
		second := h.submit(t, "work", nil)
		require.NoError(t, h.Leave(t.Context(), "b", false))
		h.complete(t, first, orchestrator.Result{})
		h.waitUntilAssigned(t, second.ID, "a") // the line of the part is older and was looked at before
		still, err := h.Task(t.Context(), part.ID)
		require.NoError(t, err)
		require.Equal(t, models.WaitForWorker, still.WaitingFor)
		require.Equal(t, 1, still.Attempt, "nobody was asked")
		_, err = h.Complete(t.Context(), "b", busy.ID, orchestrator.Result{})
		require.NoError(t, err)
		_, err = h.Join(t.Context(), "b", orchestrator.JoinRequest{Protocol: "plain", Transport: "poll"})
		require.NoError(t, err)
		h.waitUntilAssigned(t, part.ID, "b")
		requireSound(t, h)
	})
}

// TestWhatWasHandedOff is not for everybody who offers it (PROTOCOL_V5 §5.4).
func TestWhatWasHandedOff(t *testing.T) {
	t.Parallel()

	withHarness(t, "KeepsNobodyWaitingWhoIsLessDeep", func(t *testing.T, h *harness) {
		h.worker(t, "source", 1, "write")
		h.worker(t, "b", 1, "work")
		h.register(t, "a", "work")
		_, err := h.Join(t.Context(), "a", orchestrator.JoinRequest{Protocol: "plain", Transport: "websocket", MaxDepth: 1})
		require.NoError(t, err)
		busy := h.submit(t, "work", func(s *orchestrator.Submission) { s.AgentID = "b" })
		source := h.submit(t, "write", nil)
		deep, err := h.HandOff(t.Context(), operator(), "source", source.ID, orchestrator.Submission{Capabilities: []string{"work"}, Priority: models.DefaultPriority})
		require.NoError(t, err)
		require.Equal(t, models.WaitForWorker, deep.Task.WaitingFor, "a takes nothing that was handed off")
		ordinary := h.submit(t, "work", nil)
		require.Equal(t, "a", ordinary.AgentID)
		h.complete(t, busy, orchestrator.Result{})
		h.waitUntilAssigned(t, deep.Task.ID, "b")
		requireSound(t, h)
		requireLegalEvents(t, h)
	})
	withDatabase(t, "GoesToWhomItsOwnPolicyChooses", func(t *testing.T, db *storetest.DB) {
		h := start(t, db, &orchestrator.Options{Classes: map[string]orchestrator.Policy{"strict": {
			Timeout: time.Minute, QueueTimeout: time.Minute, ReplyTimeout: time.Minute, MaxDepth: 4, Threshold: 1,
		}}})
		h.worker(t, "source", 1, "write")
		h.worker(t, "a", 1, "work")
		source := h.submit(t, "write", func(s *orchestrator.Submission) { s.Class = "strict" })
		out, err := h.HandOff(t.Context(), operator(), "source", source.ID, orchestrator.Submission{Capabilities: []string{"work", "more"}})
		require.NoError(t, err)
		require.Equal(t, "a", out.Task.AgentID, "half of it is enough for its class, and not for its source's")
	})
	withHarness(t, "GoesToOne", func(t *testing.T, h *harness) {
		h.startThree(t)
		source := h.submit(t, "work", nil)
		before := allRows(t, h)
		sub := orchestrator.Submission{Capabilities: []string{"work"}}
		byWorkers(2)(&sub)
		_, err := h.HandOff(t.Context(), operator(), source.AgentID, source.ID, sub)
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
		withHarness(t, name, func(t *testing.T, h *harness) {
			h.startThree(t)
			whole := h.submit(t, "work", func(s *orchestrator.Submission) {
				byWorkers(3)(s)
				s.Budget, s.Override.Retries = &c.budget, new(2)
				s.Override.Overrun = &models.Overrun{Action: models.OverrunRaise, MaxBudget: c.most}
			})
			for _, part := range h.subtasksByAgent(t, whole.ID) {
				for n, budget := range c.budgets {
					part = h.waitUntil(t, part.ID, func(t models.Task) bool {
						return t.Attempt == n+1 && t.AgentID != "" && t.WaitingFor == models.NotWaiting || ended(t)
					})
					require.Equal(t, n+1, part.Attempt)
					require.Equal(t, budget, *part.Budget)
					h.complete(t, part, orchestrator.Result{Failure: orchestrator.FailureBudget})
				}
				require.True(t, ended(h.waitUntil(t, part.ID, ended)))
			}
			require.Equal(t, string(orchestrator.FailureBudget), h.waitUntil(t, whole.ID, ended).ErrorCode)
			requireSound(t, h)
		})
	}
	withHarness(t, "ThereIsATokenForEachAtLeast", func(t *testing.T, h *harness) {
		h.startThree(t)
		sub := orchestrator.Submission{Capabilities: []string{"work"}, Budget: new(int64(2))}
		byWorkers(3)(&sub)
		_, err := h.Submit(t.Context(), operator(), sub, nil)
		require.Equal(t, errs.InvalidRequest, errs.CodeOf(err))
		require.True(t, slices.ContainsFunc(errs.From(err).Fields, func(f errs.Field) bool { return f.Pointer == "/budget" && f.Rule == "min" }), "%v", err)
	})
}
