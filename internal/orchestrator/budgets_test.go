package orchestrator_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/testkit"
	"comet/internal/usage"
	"comet/models"
	"comet/store"
)

func withBudget(tokens int64) func(*orchestrator.Submission) {
	return func(s *orchestrator.Submission) { s.Budget = &tokens }
}

// recordUsage records tokens of an agent, whose budget is 50,000.
func (h *harness) recordUsage(t *testing.T, agentID string, tokens int64) {
	t.Helper()
	_, err := h.Ledger.Record(t.Context(), agentID, []usage.FactDraft{{Tokens: &tokens}}, nil)
	require.NoError(t, err)
}

func requireHeld(t *testing.T, h *harness, agentID string, want int64) {
	t.Helper()
	_, reserved := h.usage(t, agentID)
	require.Equal(t, want, reserved, agentID)
}

func TestBudget(t *testing.T) {
	t.Parallel()

	withHarness(t, "is reserved until the attempt ends", func(t *testing.T, h *harness) {
		h.worker(t, "a", 10, "work")
		for _, end := range map[string]func(id string){
			"done": func(id string) {
				_, err := h.Complete(t.Context(), "a", id, orchestrator.Result{Tokens: 10})
				require.NoError(t, err)
			},
			"cancelled": func(id string) {
				_, err := h.Cancel(t.Context(), id, "", nil)
				require.NoError(t, err)
			},
			"failed": func(id string) {
				_, err := h.Complete(t.Context(), "a", id, orchestrator.Result{Failure: orchestrator.FailureWork, Tokens: 10})
				require.NoError(t, err)
			},
			"timed out": func(id string) { h.advanceUntil(t, id, 30*time.Second, testkit.Ended) },
		} {
			id := h.submit(t, "work", func(s *orchestrator.Submission) { s.Budget, s.Override.Retries = new(int64(1000)), new(0) }).ID
			requireHeld(t, h, "a", 1000)
			end(id)
			requireHeld(t, h, "a", 0)
			requireSound(t, h)
		}
		id := h.submit(t, "work", withBudget(1000)).ID
		require.NoError(t, h.Leave(t.Context(), "a", true))
		h.WaitForTask(t, id, waitsFor(models.WaitForRetry))
		requireUsed(t, h, "a", 20)
		requireSound(t, h)
	})

	withHarness(t, "covers all attempts together", func(t *testing.T, h *harness) {
		h.worker(t, "a", 1, "work")
		id := h.submit(t, "work", withBudget(1000)).ID
		_, err := h.Complete(t.Context(), "a", id, orchestrator.Result{Failure: orchestrator.FailureResource, Tokens: 400})
		require.NoError(t, err)
		requireHeld(t, h, "a", 0)
		h.advanceUntil(t, id, time.Second, waitsFor(models.NotWaiting))
		requireHeld(t, h, "a", 600)
		task, err := h.Complete(t.Context(), "a", id, orchestrator.Result{Failure: orchestrator.FailureResource, Tokens: 650})
		require.NoError(t, err)
		require.Equal(t, models.TaskFailed, task.State, "no tokens are left for another attempt")
		require.EqualValues(t, 1050, task.Tokens, "all tokens are charged")
		requireUsed(t, h, "a", 1050)
		requireSound(t, h)
		requireLegalEvents(t, h)
	})

	withHarness(t, "spent budget moves the task to the next agent", func(t *testing.T, h *harness) {
		for _, id := range []string{"a", "b", "c"} {
			h.worker(t, id, 1, "work")
		}
		h.recordUsage(t, "a", 49_500)
		h.recordUsage(t, "b", 49_500)
		task := h.submit(t, "work", withBudget(1000))
		require.Equal(t, "c", task.AgentID)
		requireHeld(t, h, "a", 0)
		requireHeld(t, h, "b", 0)
		requireHeld(t, h, "c", 1000)
		require.Contains(t, string(task.Decision), `,"over_budget"]`)
		require.NotEqual(t, "c", h.submit(t, "work", withBudget(500)).AgentID, "its budget covers the task")
		requireSound(t, h)
	})

	withHarness(t, "rejects a task that no agent covers", func(t *testing.T, h *harness) {
		for i := range 3 {
			id := fmt.Sprintf("a%d", i)
			h.worker(t, id, 1, "work")
			h.recordUsage(t, id, 49_500+int64(i))
		}
		before := allRows(t, h)
		for range 2 {
			_, err := h.Submit(t.Context(), operator(), orchestrator.Submission{Capabilities: []string{"work"}, Budget: new(int64(501)), RequestID: "r"}, nil)
			require.Equal(t, errs.BudgetExceeded, errs.CodeOf(err))
			require.EqualValues(t, 500, errs.From(err).Meta["remaining"], "the largest remaining budget")
			require.Equal(t, []string{"a0", "a1", "a2"}, h.query(t, "SELECT key FROM events WHERE type = 'agent.budget_exceeded' ORDER BY key"), "each emits one event")
		}
		isAccount := func(row string) bool { return strings.HasPrefix(row, "usage_accounts ") }
		requireSame(t, slices.DeleteFunc(before, isAccount), slices.DeleteFunc(allRows(t, h), isAccount), "Submit")
	})

	withHarness(t, "a refusal says whether the next day changes it", func(t *testing.T, h *harness) {
		h.worker(t, "a", 1, "work")
		refuse := func(tokens int64) *errs.Error {
			_, err := h.Submit(t.Context(), operator(), orchestrator.Submission{Capabilities: []string{"work"}, Budget: &tokens}, nil)
			require.Equal(t, errs.BudgetExceeded, errs.CodeOf(err))
			return errs.From(err)
		}
		h.recordUsage(t, "a", 49_500)
		e := refuse(50_000)
		require.Contains(t, e.Detail, "left today", "the whole budget covers it")
		require.Equal(t, h.DB.Now().Truncate(24*time.Hour).Add(24*time.Hour), e.Meta["reset_at"])
		e = refuse(50_001)
		require.Contains(t, e.Detail, "no agent that offers work has a daily budget of at least")
		require.NotContains(t, e.Meta, "reset_at")
		require.Equal(t, "no agent that offers work has a daily budget of at least 50001 tokens: submit the task with a smaller budget, or raise the budget of an agent", e.Detail)

		h.worker(t, "b", 1, "work")
		require.NoError(t, h.Leave(t.Context(), "b", true))
		require.Contains(t, refuse(50_001).Detail, "has a daily budget of at least", "the budget of the agent that is offline is no larger")
		require.NoError(t, h.DB.Write(t.Context(), func(tx *store.Tx) error {
			before, err := tx.Agents().Lock("b")
			after := before
			after.TokenBudget, after.Version = new(int64(60_000)), before.Version+1
			if err == nil {
				err = tx.Agents().Update(before, after)
			}
			return err
		}))
		e = refuse(50_001)
		require.Contains(t, e.Detail, "left today", "it is assigned when the agent is online")
		require.NotContains(t, e.Meta, "reset_at")
		require.Contains(t, refuse(60_001).Detail, "has a daily budget of at least")
	})

	withHarness(t, "fails a queued task after the budget was spent", func(t *testing.T, h *harness) {
		h.worker(t, "a", 1, "work")
		first := h.submit(t, "work", nil).ID
		second := h.submit(t, "work", withBudget(1000)).ID
		requireHeld(t, h, "a", 0) // queued tasks reserve nothing
		_, err := h.Complete(t.Context(), "a", first, orchestrator.Result{Tokens: 49_500})
		require.NoError(t, err)
		task := h.WaitForTask(t, second, testkit.Ended)
		require.Equal(t, string(orchestrator.FailureBudget), task.ErrorCode)
		requireUsed(t, h, "a", 49_500)
		requireSound(t, h)
		requireLegalEvents(t, h)
	})

	withHarness(t, "reservation released by the agent", func(t *testing.T, h *harness) {
		h.worker(t, "a", 2, "work")
		done, cancelled := h.submit(t, "work", withBudget(1000)).ID, h.submit(t, "work", withBudget(500)).ID
		for _, id := range []string{done, cancelled} {
			all, err := h.Attempts(t.Context(), id)
			require.NoError(t, err)
			require.NoError(t, h.Ledger.Release(t.Context(), "a", all[0].ReservationID))
		}
		_, err := h.Complete(t.Context(), "a", done, orchestrator.Result{Tokens: 70})
		require.NoError(t, err)
		_, err = h.Cancel(t.Context(), cancelled, "", nil)
		require.NoError(t, err)
		requireUsed(t, h, "a", 70)
		requireSound(t, h)
	})

	withHarness(t, "is settled for a deactivated agent", func(t *testing.T, h *harness) {
		h.worker(t, "a", 2, "work")
		with, without := h.submit(t, "work", withBudget(1000)).ID, h.submit(t, "work", nil).ID
		require.NoError(t, h.DB.Write(t.Context(), func(tx *store.Tx) error {
			before, err := tx.Agents().Lock("a")
			if err != nil {
				return err
			}
			after := before
			after.IsActive, after.Version = false, before.Version+1
			return tx.Agents().Update(before, after)
		}))
		for _, id := range []string{with, without} {
			_, err := h.Complete(t.Context(), "a", id, orchestrator.Result{Tokens: 30})
			require.NoError(t, err)
		}
		requireUsed(t, h, "a", 60)
		requireSound(t, h)
	})
}
