package orchestrator_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"comet/internal/orchestrator"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// TestSlotsInMemory proves that an orchestrator that is alone gives each agent as many tasks as it has
// slots, whichever way an attempt or a submission ends.
func TestSlotsInMemory(t *testing.T) {
	t.Parallel()
	alone := func(t *testing.T) (*storetest.DB, *harness) {
		t.Helper()
		db := storetest.Open(t, "sqlite")
		return db, start(t, db, &orchestrator.Options{Alone: true})
	}
	inUse := func(t *testing.T, h *harness) int {
		t.Helper()
		w, err := h.Worker(t.Context(), "a")
		require.NoError(t, err)
		require.Equal(t, w.InFlight, h.CachedWorker("a").InFlight)
		return w.InFlight
	}

	t.Run("are released by results, cancellations and failures", func(t *testing.T) {
		t.Parallel()
		_, h := alone(t)
		h.worker(t, "a", 2, "work")
		first, second, queued := h.submit(t, "work", nil), h.submit(t, "work", nil), h.submit(t, "work", nil)
		require.Equal(t, []models.WaitReason{models.NotWaiting, models.NotWaiting, models.WaitForWorker}, []models.WaitReason{first.WaitingFor, second.WaitingFor, queued.WaitingFor})
		require.Equal(t, 2, inUse(t, h))
		_, err := h.Complete(t.Context(), "a", first.ID, orchestrator.Result{Output: []byte("done")})
		require.NoError(t, err)
		h.WaitForTask(t, queued.ID, waitsFor(models.NotWaiting))
		_, err = h.Cancel(t.Context(), second.ID, "no need", nil)
		require.NoError(t, err)
		_, err = h.Complete(t.Context(), "a", queued.ID, orchestrator.Result{Failure: orchestrator.FailureWork})
		require.NoError(t, err)
		require.Zero(t, inUse(t, h))
		requireSound(t, h)
		requireLegalEvents(t, h)
	})

	t.Run("are not taken by a submission that fails", func(t *testing.T) {
		t.Parallel()
		_, h := alone(t)
		h.worker(t, "a", 1, "work")
		requireRefusalsReleaseSlots(t, h, "a")
	})

	t.Run("are counted again after a restart", func(t *testing.T) {
		t.Parallel()
		db, h := alone(t)
		h.worker(t, "a", 2, "work")
		open := h.submit(t, "work", nil)
		h.Stop()
		again := start(t, db, &orchestrator.Options{Alone: true})
		require.NoError(t, again.Check(t.Context()))
		require.Equal(t, 1, inUse(t, again))
		_, err := again.Complete(t.Context(), "a", open.ID, orchestrator.Result{})
		require.NoError(t, err)
		require.Zero(t, inUse(t, again))
	})
}

// requireRefusalsReleaseSlots requires that submissions that fail after the claim release the only slot
// of an agent.
func requireRefusalsReleaseSlots(t *testing.T, h *harness, agentID string) {
	t.Helper()
	refused := errors.New("refused")
	for range 3 {
		_, err := h.Submit(t.Context(), operator(), orchestrator.Submission{
			Capabilities: []string{"work"}, With: func(*store.Tx, *models.Task) error { return refused },
		}, nil)
		require.ErrorIs(t, err, refused)
		require.Zero(t, h.CachedWorker(agentID).InFlight)
		w, err := h.Worker(t.Context(), agentID)
		require.NoError(t, err)
		require.Zero(t, w.InFlight)
	}
	require.Equal(t, agentID, h.submit(t, "work", nil).AgentID)
}

// TestSlotsOfReplicas proves that replicas together give each agent as many tasks as it has slots, even
// if an index does not know what the other replica has assigned.
func TestSlotsOfReplicas(t *testing.T) {
	t.Parallel()
	inUse := func(t *testing.T, h *harness, agentID string) int {
		t.Helper()
		w, err := h.Worker(t.Context(), agentID)
		require.NoError(t, err)
		return w.InFlight
	}

	withDatabase(t, "a slot that the other replica has taken is not assigned again", func(t *testing.T, db *storetest.DB) {
		h, there := twoHarnesses(t, db, func(t *testing.T, h *harness) {
			t.Helper()
			h.worker(t, "a", 1, "work")
		})
		require.Equal(t, "a", there.submit(t, "work", longTimeout).AgentID)
		require.Zero(t, h.CachedWorker("a").InFlight, "the index is stale")
		runs := 0
		queued, err := h.Submit(t.Context(), operator(), orchestrator.Submission{
			Capabilities: []string{"work"}, With: func(*store.Tx, *models.Task) error { runs++; return nil },
		}, nil)
		require.NoError(t, err)
		require.Equal(t, models.WaitForWorker, queued.Task.WaitingFor)
		require.Equal(t, 2, runs, "it ran again without the agent")
		require.Eventually(t, func() bool { return h.CachedWorker("a").InFlight == 1 }, time.Minute, 5*time.Millisecond, "the index is up to date")
		require.Equal(t, 1, inUse(t, h, "a"))
		require.Len(t, h.query(t, "SELECT id FROM tasks WHERE agent_id = 'a'"), 1)
		requireSound(t, h)
	})

	withDatabase(t, "every stale agent is updated in the index", func(t *testing.T, db *storetest.DB) {
		h, there := twoHarnesses(t, db, func(t *testing.T, h *harness) {
			t.Helper()
			h.worker(t, "a", 1, "work")
			h.worker(t, "b", 1, "work")
		})
		there.submit(t, "work", longTimeout)
		there.submit(t, "work", longTimeout)
		require.Equal(t, models.WaitForWorker, h.submit(t, "work", longTimeout).WaitingFor)
		for _, id := range []string{"a", "b"} { // the dispatcher may take a slot until it reads the row
			require.Eventually(t, func() bool { return h.CachedWorker(id).InFlight == 1 }, time.Minute, 5*time.Millisecond, id)
		}
		requireSound(t, h)
	})

	withDatabase(t, "the submission goes to another agent", func(t *testing.T, db *storetest.DB) {
		h, there := twoHarnesses(t, db, func(t *testing.T, h *harness) {
			t.Helper()
			h.worker(t, "a", 1, "work")
			h.worker(t, "b", 1, "work")
		})
		first := there.submit(t, "work", longTimeout).AgentID
		second := h.submit(t, "work", longTimeout).AgentID
		require.ElementsMatch(t, []string{"a", "b"}, []string{first, second})
		requireSound(t, h)
	})

	withDatabase(t, "concurrent submissions at both take each slot once", func(t *testing.T, db *storetest.DB) {
		const slots, each = 5, 20
		h, there := twoHarnesses(t, db, func(t *testing.T, h *harness) {
			t.Helper()
			h.worker(t, "a", slots, "work")
		})
		var submitting sync.WaitGroup
		for _, replica := range []*harness{h, there} {
			for range each {
				submitting.Go(func() {
					_, err := replica.Submit(context.Background(), operator(), orchestrator.Submission{Capabilities: []string{"work"}}, nil)
					assert.NoError(t, err)
				})
			}
		}
		submitting.Wait()
		require.Equal(t, slots, inUse(t, h, "a"))
		require.Len(t, h.query(t, "SELECT id FROM tasks WHERE agent_id = 'a'"), slots)
		requireSound(t, h)
	})

	withDatabase(t, "a failed submission releases its claim", func(t *testing.T, db *storetest.DB) {
		h := start(t, db, &orchestrator.Options{Poll: time.Hour})
		h.worker(t, "a", 1, "work")
		requireRefusalsReleaseSlots(t, h, "a")
	})
}
