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

// blockLines makes lines in which a task of the highest priority waits for an agent that
// is full; taker is who gives the agents what fills them.
func (h *house) blockLines(t *testing.T, taker *house) (ids []string) {
	t.Helper()
	for i := range blocked {
		capability := fmt.Sprintf("work-%d", i)
		require.Equal(t, models.NotWaiting, taker.submit(t, capability, patient).WaitingFor)
		task := h.submit(t, capability, withPriority(3))
		require.Equal(t, models.WaitForWorker, task.WaitingFor)
		ids = append(ids, task.ID)
	}
	h.db.Clock.Advance(time.Millisecond)
	return ids
}

func (h *house) requireWaiting(t *testing.T, ids []string) {
	t.Helper()
	for _, id := range ids {
		task, err := h.Task(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, models.WaitForWorker, task.WaitingFor)
	}
}

func (h *house) has(t *testing.T, id, agentID string) {
	t.Helper()
	h.until(t, id, func(t models.Task) bool { return t.AgentID == agentID })
}

// TestManyLinesNobodyCanServe do not starve one that can be served, though it comes last.
func TestManyLinesNobodyCanServe(t *testing.T) {
	t.Parallel()

	staff := func(t *testing.T, h *house) {
		t.Helper()
		for i := range blocked {
			h.worker(t, fmt.Sprintf("full-%d", i), 1, fmt.Sprintf("work-%d", i))
		}
		h.worker(t, "z", 1, "other")
	}

	rule(t, "WhereTheirAgentsAreKnownToBeFull", func(t *testing.T, h *house) {
		staff(t, h)
		full := h.blockLines(t, h)
		first := h.submit(t, "other", nil).ID
		for range 3 { // each time a place becomes free
			next := h.submit(t, "other", withPriority(0)).ID
			_, err := h.Complete(t.Context(), "z", first, orchestrator.Result{})
			require.NoError(t, err)
			h.has(t, next, "z")
			first = next
		}
		h.requireWaiting(t, full)
		requireSound(t, h)
	})

	onFresh(t, "WhereAProcessThatHasJustStartedKnowsNoLine", func(t *testing.T, db *storetest.DB) {
		h, stop := boot(t, db, nil)
		staff(t, h)
		full := h.blockLines(t, h)
		first, last := h.submit(t, "other", nil).ID, h.submit(t, "other", withPriority(0)).ID
		stop() // nobody serves a line now
		_, err := h.Complete(t.Context(), "z", first, orchestrator.Result{})
		require.NoError(t, err)
		h = open(t, db, nil)
		h.has(t, last, "z")
		h.requireWaiting(t, full)
		requireSound(t, h)
	})

	onFresh(t, "WhereOnlyTheDatabaseKnowsThatTheirAgentsAreFull", func(t *testing.T, db *storetest.DB) {
		h, there := apart(t, db, staff)
		full := h.blockLines(t, there)
		first, last := h.submit(t, "other", nil).ID, h.submit(t, "other", withPriority(0)).ID
		_, err := h.Complete(t.Context(), "z", first, orchestrator.Result{})
		require.NoError(t, err)
		h.has(t, last, "z")
		h.requireWaiting(t, full)
		requireSound(t, h)
	})
}

// apart is a house, and another one over the same database that serves no line. What
// the other one does, this one is not told of.
func apart(t *testing.T, db *storetest.DB, staff func(*testing.T, *house)) (h, there *house) {
	t.Helper()
	h = open(t, db, &orchestrator.Options{Poll: time.Hour})
	staff(t, h)
	there, stop := boot(t, other(t, db), nil)
	stop()
	return h, there
}

// TestInALine a task that only a budget keeps from being done does not hold up those
// behind it.
func TestInALine(t *testing.T) {
	t.Parallel()

	onFresh(t, "ThoseWhoseBudgetNobodyWhoIsFreeCoversArePassedOver", func(t *testing.T, db *storetest.DB) {
		h, there := apart(t, db, func(t *testing.T, h *house) {
			t.Helper()
			h.worker(t, "rich", 1, "work")
			h.worker(t, "poor", 1, "work")
		})
		taken := there.submit(t, "work", func(s *orchestrator.Submission) { patient(s); s.Agent = "rich" }).ID
		h.spend(t, "poor", 49_500)
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
		h.has(t, cheap, "poor")
		requireHeld(t, h, "poor", 400)
		requireHeld(t, h, "rich", 0)
		h.requireWaiting(t, dear)
		h.db.Clock.Advance(time.Millisecond)
		behind := h.submit(t, "work", nil).ID

		_, err = there.Complete(t.Context(), "rich", taken, orchestrator.Result{})
		require.NoError(t, err)
		h.OnWake(orchestrator.WakeLine, "") // now it is told
		h.has(t, dear[0], "rich")
		requireHeld(t, h, "rich", 1000)
		h.requireWaiting(t, append(dear[1:], behind))
		requireSound(t, h)
		requireLegalEvents(t, h)
	})

	rule(t, "OneThatNobodyCouldEverCoverIsNotTakenOnAndHoldsUpNobody", func(t *testing.T, h *house) {
		h.worker(t, "a", 2, "work")
		h.spend(t, "a", 49_500)
		_, err := h.Submit(t.Context(), ops(), orchestrator.Submission{Capabilities: []string{"work"}, Budget: new(int64(1000))}, nil)
		require.Equal(t, errs.BudgetExceeded, errs.CodeOf(err))
		require.Equal(t, "a", h.submit(t, "work", withBudget(400)).AgentID)
	})
}
