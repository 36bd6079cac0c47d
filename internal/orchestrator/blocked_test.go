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

// blocked is how many lines nobody can serve: more than are served in one transaction.
const blocked = 40

// blockQueues makes lines in which a task of the highest priority waits for an agent that
// is full; taker is who gives the agents what fills them.
func (h *harness) blockQueues(t *testing.T, taker *harness) (ids []string) {
	t.Helper()
	for i := range blocked {
		capability := fmt.Sprintf("work-%d", i)
		require.Equal(t, models.NotWaiting, taker.submit(t, capability, longTimeout).WaitingFor)
		task := h.submit(t, capability, withPriority(3))
		require.Equal(t, models.WaitForWorker, task.WaitingFor)
		ids = append(ids, task.ID)
	}
	h.db.Clock.Advance(time.Millisecond)
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
	h.waitUntil(t, id, func(t models.Task) bool { return t.AgentID == agentID })
}

// TestManyLinesNobodyCanServe do not starve one that can be served, though it comes last.
func TestManyLinesNobodyCanServe(t *testing.T) {
	t.Parallel()

	staff := func(t *testing.T, h *harness) {
		t.Helper()
		for i := range blocked {
			h.worker(t, fmt.Sprintf("full-%d", i), 1, fmt.Sprintf("work-%d", i))
		}
		h.worker(t, "z", 1, "other")
	}

	withHarness(t, "WhereTheirAgentsAreKnownToBeFull", func(t *testing.T, h *harness) {
		staff(t, h)
		full := h.blockQueues(t, h)
		first := h.submit(t, "other", nil).ID
		for range 3 { // each time a place becomes free
			next := h.submit(t, "other", withPriority(0)).ID
			_, err := h.Complete(t.Context(), "z", first, orchestrator.Result{})
			require.NoError(t, err)
			h.waitUntilAssigned(t, next, "z")
			first = next
		}
		h.requireQueued(t, full)
		requireSound(t, h)
	})

	withDatabase(t, "WhereAProcessThatHasJustStartedKnowsNoLine", func(t *testing.T, db *storetest.DB) {
		h, stop := startStoppable(t, db, nil)
		staff(t, h)
		full := h.blockQueues(t, h)
		first, last := h.submit(t, "other", nil).ID, h.submit(t, "other", withPriority(0)).ID
		stop() // nobody serves a line now
		_, err := h.Complete(t.Context(), "z", first, orchestrator.Result{})
		require.NoError(t, err)
		h = start(t, db, nil)
		h.waitUntilAssigned(t, last, "z")
		h.requireQueued(t, full)
		requireSound(t, h)
	})

	withDatabase(t, "WhereOnlyTheDatabaseKnowsThatTheirAgentsAreFull", func(t *testing.T, db *storetest.DB) {
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

// twoHarnesses is a house, and another one over the same database that serves no line. What
// the other one does, this one is not told of.
func twoHarnesses(t *testing.T, db *storetest.DB, staff func(*testing.T, *harness)) (h, there *harness) {
	t.Helper()
	h = start(t, db, &orchestrator.Options{Poll: time.Hour})
	staff(t, h)
	there, stop := startStoppable(t, secondReplica(t, db), nil)
	stop()
	return h, there
}

// TestInALine a task that only a budget keeps from being done does not hold up those
// behind it.
func TestInALine(t *testing.T) {
	t.Parallel()

	withDatabase(t, "ThoseWhoseBudgetNobodyWhoIsFreeCoversArePassedOver", func(t *testing.T, db *storetest.DB) {
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
			require.Equal(t, models.WaitForWorker, task.WaitingFor, "the one who could is full")
			dear = append(dear, task.ID)
			h.db.Clock.Advance(time.Millisecond)
		}
		first, err := h.Task(t.Context(), dear[0])
		require.NoError(t, err)
		require.Contains(t, string(first.Decision), `"reason":"over_budget"`)
		cheap := h.submit(t, "work", withBudget(400)).ID
		h.waitUntilAssigned(t, cheap, "poor")
		requireHeld(t, h, "poor", 400)
		requireHeld(t, h, "rich", 0)
		h.requireQueued(t, dear)
		h.db.Clock.Advance(time.Millisecond)
		behind := h.submit(t, "work", nil).ID

		_, err = there.Complete(t.Context(), "rich", taken, orchestrator.Result{})
		require.NoError(t, err)
		h.OnWake(orchestrator.WakeQueue, "") // now it is told
		h.waitUntilAssigned(t, dear[0], "rich")
		requireHeld(t, h, "rich", 1000)
		h.requireQueued(t, append(dear[1:], behind))
		requireSound(t, h)
		requireLegalEvents(t, h)
	})

	withHarness(t, "OneThatNobodyCouldEverCoverIsNotTakenOnAndHoldsUpNobody", func(t *testing.T, h *harness) {
		h.worker(t, "a", 2, "work")
		h.recordUsage(t, "a", 49_500)
		_, err := h.Submit(t.Context(), operator(), orchestrator.Submission{Capabilities: []string{"work"}, Budget: new(int64(1000))}, nil)
		require.Equal(t, errs.BudgetExceeded, errs.CodeOf(err))
		require.Equal(t, "a", h.submit(t, "work", withBudget(400)).AgentID)
	})
}
