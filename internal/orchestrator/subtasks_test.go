package orchestrator_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/testkit"
	"comet/models"
	"comet/store/storetest"
)

// startTwo submits a task for two workers and returns it with the subtasks of a and b.
func (h *harness) startTwo(t *testing.T) (parent models.Task, a, b models.Task) {
	t.Helper()
	parent = h.submit(t, "work", byWorkers(2))
	subtasks := h.subtasksByAgent(t, parent.ID)
	require.Len(t, subtasks, 2)
	return parent, subtasks["a"], subtasks["b"]
}

// TestSubtaskAgents checks that no agent gets two subtasks of one task.
func TestSubtaskAgents(t *testing.T) {
	t.Parallel()
	busy := orchestrator.Result{Failure: orchestrator.FailureResource}

	withHarness(t, "an agent gets no second subtask", func(t *testing.T, h *harness) {
		h.startThree(t)
		_, a, b := h.startTwo(t)
		h.complete(t, a, busy)
		moved := h.advanceUntil(t, a.ID, time.Second, func(t models.Task) bool { return t.Attempt == 2 && t.AgentID != "" })
		require.Equal(t, "c", moved.AgentID)
		h.complete(t, b, busy)
		again := h.advanceUntil(t, b.ID, time.Second, func(t models.Task) bool { return t.Attempt == 2 && t.AgentID != "" })
		require.Equal(t, "b", again.AgentID, "a is free but had the other subtask, so b gets it again")
		requireSound(t, h)
	})
	withDatabase(t, "two replicas that choose the same agent", func(t *testing.T, db *storetest.DB) {
		here, there := start(t, db, nil), start(t, secondReplica(t, db), nil)
		here.startThree(t)
		for _, id := range []string{"a", "b", "c"} {
			require.NoError(t, there.ReindexAgent(t.Context(), id))
			there.WaitForWorker(t, id, func(w models.Worker) bool { return w.State == models.WorkerOnline })
		}
		parent, a, b := here.startTwo(t)
		release := lockWorker(t, db, "c", 2)
		here.complete(t, a, busy)
		there.complete(t, b, busy)
		db.Clock.Advance(time.Second) // both are retried, and c is the best agent for both
		release()
		for _, id := range []string{a.ID, b.ID} {
			here.WaitForTask(t, id, func(t models.Task) bool {
				return t.AgentID != "" && t.WaitingFor == models.NotWaiting && t.Attempt == 2
			})
		}
		require.Contains(t, here.subtasksByAgent(t, parent.ID), "c", "two subtasks have different agents")
		requireSound(t, here)
		requireLegalEvents(t, here)
	})
}

// lockWorker locks the row of a worker until release is called and so many transactions wait for
// it. SQLite has one writer, so nothing waits there.
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
		}, time.Minute, 5*time.Millisecond)
		require.NoError(t, tx.Commit())
	}
}

// TestQueuedSubtask checks subtasks that wait for an agent that may have them.
func TestQueuedSubtask(t *testing.T) {
	t.Parallel()

	// waiting queues the subtask of b, which is busy with another task, and fails the one of a.
	waiting := func(t *testing.T, h *harness) (subtask, busy models.Task) {
		t.Helper()
		h.worker(t, "a", 1, "work")
		h.worker(t, "b", 1, "work")
		_, a, b := h.startTwo(t)
		h.complete(t, b, orchestrator.Result{Failure: orchestrator.FailureResource})
		busy = h.submit(t, "work", func(s *orchestrator.Submission) { longTimeout(s); s.AgentID = "b" })
		subtask = h.advanceUntil(t, b.ID, time.Second, waitsFor(models.WaitForWorker))
		h.complete(t, a, orchestrator.Result{Failure: orchestrator.FailureWork})
		return subtask, busy
	}
	withHarness(t, "does not block other tasks", func(t *testing.T, h *harness) {
		subtask, busy := waiting(t, h)
		ordinary := h.submit(t, "work", nil)
		require.Equal(t, "a", ordinary.AgentID, "it is free, but may not get the subtask")
		h.complete(t, busy, orchestrator.Result{})
		h.waitUntilAssigned(t, subtask.ID, "b")
		requireSound(t, h)
		requireLegalEvents(t, h)
	})
	withHarness(t, "waits while no eligible agent is online", func(t *testing.T, h *harness) {
		subtask, busy := waiting(t, h)
		first := h.submit(t, "work", nil)
		second := h.submit(t, "work", nil)
		require.NoError(t, h.Leave(t.Context(), "b", false))
		h.complete(t, first, orchestrator.Result{})
		h.waitUntilAssigned(t, second.ID, "a") // the queue of the subtask is older and was served before
		still, err := h.Task(t.Context(), subtask.ID)
		require.NoError(t, err)
		require.Equal(t, models.WaitForWorker, still.WaitingFor)
		require.Equal(t, 1, still.Attempt, "no attempt was made")
		_, err = h.Complete(t.Context(), "b", busy.ID, orchestrator.Result{})
		require.NoError(t, err)
		_, err = h.Join(t.Context(), "b", orchestrator.JoinRequest{Protocol: "plain", Transport: "poll"})
		require.NoError(t, err)
		h.waitUntilAssigned(t, subtask.ID, "b")
		requireSound(t, h)
	})
}

// TestHandOffTarget checks which agents accept hand-offs (PROTOCOL_V5 §5.4).
func TestHandOffTarget(t *testing.T) {
	t.Parallel()

	withHarness(t, "does not block shallow agents", func(t *testing.T, h *harness) {
		h.worker(t, "source", 1, "write")
		h.worker(t, "b", 1, "work")
		h.AddAgent(t, "a", "", "work")
		_, err := h.Join(t.Context(), "a", orchestrator.JoinRequest{Protocol: "plain", Transport: "websocket", MaxDepth: 1})
		require.NoError(t, err)
		busy := h.submit(t, "work", func(s *orchestrator.Submission) { s.AgentID = "b" })
		source := h.submit(t, "write", nil)
		deep, err := h.HandOff(t.Context(), operator(), "source", source.ID, orchestrator.Submission{Capabilities: []string{"work"}, Priority: orchestrator.DefaultPriority})
		require.NoError(t, err)
		require.Equal(t, models.WaitForWorker, deep.Task.WaitingFor, "a accepts no hand-offs")
		ordinary := h.submit(t, "work", nil)
		require.Equal(t, "a", ordinary.AgentID)
		h.complete(t, busy, orchestrator.Result{})
		h.waitUntilAssigned(t, deep.Task.ID, "b")
		requireSound(t, h)
		requireLegalEvents(t, h)
	})
	withDatabase(t, "uses the policy of its own class", func(t *testing.T, db *storetest.DB) {
		h := start(t, db, &orchestrator.Options{Classes: map[string]orchestrator.Policy{"strict": {
			Timeout: time.Minute, QueueTimeout: time.Minute, ReplyTimeout: time.Minute, MaxDepth: 4, Threshold: 1,
		}}})
		h.worker(t, "source", 1, "write")
		h.worker(t, "a", 1, "work")
		source := h.submit(t, "write", func(s *orchestrator.Submission) { s.Class = "strict" })
		out, err := h.HandOff(t.Context(), operator(), "source", source.ID, orchestrator.Submission{Capabilities: []string{"work", "more"}})
		require.NoError(t, err)
		require.Equal(t, "a", out.Task.AgentID, "half of the capabilities are enough for its class, not for the parent's")
	})
	withHarness(t, "rejects several workers", func(t *testing.T, h *harness) {
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

// TestParallelBudget checks that subtasks together never exceed the budget of their parent
// (PROTOCOL_V5 §9.2).
func TestParallelBudget(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		budget, most int64
		budgets      []int64 // of the attempts at a subtask; the last one fails as well
	}{
		"raises each subtask to its share":         {300, 500, []int64{100, 166}},
		"does not raise a subtask above its share": {300, 300, []int64{100}},
		"raises without a limit if there is none":  {300, 0, []int64{100, 200, 400}},
	} {
		withHarness(t, name, func(t *testing.T, h *harness) {
			h.startThree(t)
			parent := h.submit(t, "work", func(s *orchestrator.Submission) {
				byWorkers(3)(s)
				s.Budget, s.Override.Retries = &c.budget, new(2)
				s.Override.Overrun = &orchestrator.Overrun{Action: orchestrator.OverrunRaise, MaxBudget: c.most}
			})
			for _, subtask := range h.subtasksByAgent(t, parent.ID) {
				for n, budget := range c.budgets {
					subtask = h.WaitForTask(t, subtask.ID, func(t models.Task) bool {
						return t.Attempt == n+1 && t.AgentID != "" && t.WaitingFor == models.NotWaiting || testkit.Ended(t)
					})
					require.Equal(t, n+1, subtask.Attempt)
					require.Equal(t, budget, *subtask.Budget)
					h.complete(t, subtask, orchestrator.Result{Failure: orchestrator.FailureBudget})
				}
				require.True(t, testkit.Ended(h.WaitForTask(t, subtask.ID, testkit.Ended)))
			}
			require.Equal(t, string(orchestrator.FailureBudget), h.WaitForTask(t, parent.ID, testkit.Ended).ErrorCode)
			requireSound(t, h)
		})
	}
	withHarness(t, "needs a token for each worker", func(t *testing.T, h *harness) {
		h.startThree(t)
		sub := orchestrator.Submission{Capabilities: []string{"work"}, Budget: new(int64(2))}
		byWorkers(3)(&sub)
		_, err := h.Submit(t.Context(), operator(), sub, nil)
		require.Equal(t, errs.InvalidRequest, errs.CodeOf(err))
		require.True(t, slices.ContainsFunc(errs.From(err).Fields, func(f errs.Field) bool { return f.Pointer == "/budget" && f.Rule == "min" }), "%v", err)
	})
}
