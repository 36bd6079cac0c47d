package orchestrator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/models"
	"comet/store/storetest"
)

// blocked is the number of queues that cannot be served: more than fit into one transaction.
const blocked = 40

// blockQueues makes queues in which tasks of the highest priority wait for full agents; filler
// assigns the tasks that fill the agents.
func (h *harness) blockQueues(t *testing.T, filler *harness) (ids []string) {
	t.Helper()
	for i := range blocked {
		capability := fmt.Sprintf("work-%d", i)
		require.Equal(t, models.NotWaiting, filler.submit(t, capability, longTimeout).WaitingFor)
		task := h.submit(t, capability, withPriority(3))
		require.Equal(t, models.WaitForWorker, task.WaitingFor)
		ids = append(ids, task.ID)
	}
	h.DB.Clock.Advance(time.Millisecond)
	return ids
}

func (h *harness) requireQueued(t *testing.T, ids []string) {
	t.Helper()
	for _, id := range ids {
		task, err := h.Task(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, models.WaitForWorker, task.WaitingFor)
	}
}

func (h *harness) waitUntilAssigned(t *testing.T, id, agentID string) {
	t.Helper()
	h.WaitForTask(t, id, func(t models.Task) bool { return t.AgentID == agentID })
}

// TestBlockedQueues checks that they do not starve a queue after them that can be served.
func TestBlockedQueues(t *testing.T) {
	t.Parallel()

	staff := func(t *testing.T, h *harness) {
		t.Helper()
		for i := range blocked {
			h.worker(t, fmt.Sprintf("full-%d", i), 1, fmt.Sprintf("work-%d", i))
		}
		h.worker(t, "z", 1, "other")
	}

	withHarness(t, "full agents known to the index", func(t *testing.T, h *harness) {
		staff(t, h)
		full := h.blockQueues(t, h)
		first := h.submit(t, "other", nil).ID
		for range 3 { // each time a slot becomes free
			next := h.submit(t, "other", withPriority(0)).ID
			_, err := h.Complete(t.Context(), "z", first, orchestrator.Result{})
			require.NoError(t, err)
			h.waitUntilAssigned(t, next, "z")
			first = next
		}
		h.requireQueued(t, full)
		requireSound(t, h)
	})

	withDatabase(t, "process that has just started", func(t *testing.T, db *storetest.DB) {
		h := start(t, db, nil)
		staff(t, h)
		full := h.blockQueues(t, h)
		first, last := h.submit(t, "other", nil).ID, h.submit(t, "other", withPriority(0)).ID
		h.Stop() // no queue is served now
		_, err := h.Complete(t.Context(), "z", first, orchestrator.Result{})
		require.NoError(t, err)
		h = start(t, db, nil)
		h.waitUntilAssigned(t, last, "z")
		h.requireQueued(t, full)
		requireSound(t, h)
	})

	withDatabase(t, "full agents known only to the database", func(t *testing.T, db *storetest.DB) {
		h, there := twoHarnesses(t, db, staff)
		full := h.blockQueues(t, there)
		first, last := h.submit(t, "other", nil).ID, h.submit(t, "other", withPriority(0)).ID
		_, err := h.Complete(t.Context(), "z", first, orchestrator.Result{})
		require.NoError(t, err)
		h.waitUntilAssigned(t, last, "z")
		h.requireQueued(t, full)
		requireSound(t, h)
	})
}

// twoHarnesses returns a harness and another one over the same database that serves no queue. The
// first one gets no wake-ups from the other.
func twoHarnesses(t *testing.T, db *storetest.DB, staff func(*testing.T, *harness)) (h, there *harness) {
	t.Helper()
	h = start(t, db, &orchestrator.Options{Poll: time.Hour})
	staff(t, h)
	there = start(t, secondReplica(t, db), nil)
	there.Stop()
	return h, there
}

// TestQueueWithBudgets checks that a task without a sufficient budget does not block its queue.
func TestQueueWithBudgets(t *testing.T) {
	t.Parallel()

	withDatabase(t, "skips tasks that no free budget covers", func(t *testing.T, db *storetest.DB) {
		h, there := twoHarnesses(t, db, func(t *testing.T, h *harness) {
			t.Helper()
			h.worker(t, "rich", 1, "work")
			h.worker(t, "poor", 1, "work")
		})
		taken := there.submit(t, "work", func(s *orchestrator.Submission) { longTimeout(s); s.AgentID = "rich" }).ID
		h.recordUsage(t, "poor", 49_500)
		var dear []string
		for range 10 {
			task := h.submit(t, "work", withBudget(1000))
			require.Equal(t, models.WaitForWorker, task.WaitingFor, "the only suitable agent is full")
			dear = append(dear, task.ID)
			h.DB.Clock.Advance(time.Millisecond)
		}
		first, err := h.Task(t.Context(), dear[0])
		require.NoError(t, err)
		require.Contains(t, string(first.Decision), `,"over_budget"]`)
		cheap := h.submit(t, "work", withBudget(400)).ID
		h.waitUntilAssigned(t, cheap, "poor")
		requireHeld(t, h, "poor", 400)
		requireHeld(t, h, "rich", 0)
		h.requireQueued(t, dear)
		h.DB.Clock.Advance(time.Millisecond)
		last := h.submit(t, "work", nil).ID

		_, err = there.Complete(t.Context(), "rich", taken, orchestrator.Result{})
		require.NoError(t, err)
		h.OnWake(orchestrator.WakeQueue, "") // the wake-up arrives
		h.waitUntilAssigned(t, dear[0], "rich")
		requireHeld(t, h, "rich", 1000)
		h.requireQueued(t, append(dear[1:], last))
		requireSound(t, h)
		requireLegalEvents(t, h)
	})

	withHarness(t, "rejects a task that no budget can cover", func(t *testing.T, h *harness) {
		h.worker(t, "a", 2, "work")
		h.recordUsage(t, "a", 49_500)
		_, err := h.Submit(t.Context(), operator(), orchestrator.Submission{Capabilities: []string{"work"}, Budget: new(int64(1000))}, nil)
		require.Equal(t, errs.BudgetExceeded, errs.CodeOf(err))
		require.Equal(t, "a", h.submit(t, "work", withBudget(400)).AgentID)
	})
}
