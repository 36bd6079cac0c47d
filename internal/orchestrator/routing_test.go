package orchestrator_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/orchestrator"
	"comet/internal/testkit"
	"comet/models"
	"comet/store/storetest"
)

// weightedClass is a class with the routing of Genesis §Routing Algorithm.
const weightedClass = "weighted"

func weightedClasses() *orchestrator.Options {
	failures := []orchestrator.Failure{orchestrator.FailureUnavailable, orchestrator.FailureResource}
	return &orchestrator.Options{Classes: map[string]orchestrator.Policy{weightedClass: {
		Timeout: time.Hour, QueueTimeout: time.Hour, Retries: 5, Backoff: []time.Duration{time.Second}, RetryOn: failures, ReassignOn: failures, Weighted: true,
	}}}
}

func byWeight(s *orchestrator.Submission) { s.Class = weightedClass }

// startFive starts five workers, e with the highest load and a without.
func (h *harness) startFive(t *testing.T) {
	t.Helper()
	for i, id := range []string{"a", "b", "c", "d", "e"} {
		h.worker(t, id, 2, []string{"analyze_data", "analyze-data"}[i/3])
		_, err := h.Heartbeat(t.Context(), id, orchestrator.Heartbeat{Load: new(i * 20)})
		require.NoError(t, err)
	}
}

// routing returns the agents and the confidence of the last decision about a task.
func (h *harness) routing(t *testing.T, id string) (selected, alternatives []string, confidence float64) {
	t.Helper()
	d, err := h.Detail(t.Context(), id)
	require.NoError(t, err)
	r := d.Decision.Routing()
	require.Equal(t, "Best match for intent", r.Reason)
	for _, a := range r.Selected {
		selected = append(selected, a.AgentID)
	}
	for _, a := range r.Alternatives {
		alternatives = append(alternatives, a.AgentID)
	}
	return selected, alternatives, r.Confidence
}

// TestRouting covers tasks of a class whose agents are ordered by weight (Genesis §Routing Algorithm).
func TestRouting(t *testing.T) {
	t.Parallel()

	withDatabase(t, "retries with the other selected agents, then with the alternatives", func(t *testing.T, db *storetest.DB) {
		h := start(t, db, weightedClasses())
		h.startFive(t)
		id := h.submit(t, "analyze_data", byWeight).ID
		selected, alternatives, confidence := h.routing(t, id)
		require.Equal(t, []string{"a", "b", "c"}, selected)
		require.Equal(t, []string{"d", "e"}, alternatives)
		require.InDelta(t, 1, confidence, 1e-9)
		for i, agent := range slices.Concat(selected, alternatives) {
			require.Equal(t, agent, h.task(t, id).AgentID)
			if agent == "b" { // it is unavailable: its failure counts as one
				require.NoError(t, h.Leave(t.Context(), agent, true))
			} else {
				_, err := h.Complete(t.Context(), agent, id, orchestrator.Result{Failure: orchestrator.FailureResource})
				require.NoError(t, err)
			}
			h.advanceUntil(t, id, time.Second, func(t models.Task) bool { return t.Attempt == i+2 && t.AgentID != "" })
		}
		require.Equal(t, "a", h.task(t, id).AgentID, "an agent that failed before is better than none")
		requireSound(t, h)
		requireLegalEvents(t, h)
	})

	withDatabase(t, "asks the best agents at once", func(t *testing.T, db *storetest.DB) {
		h := start(t, db, weightedClasses())
		h.startFive(t)
		task := h.submit(t, "Analyze-Data", func(s *orchestrator.Submission) { byWeight(s); byWorkers(3)(s) })
		subtasks := h.subtasksByAgent(t, task.ID)
		require.Len(t, subtasks, 3)
		for _, id := range []string{"a", "b", "c"} {
			require.Contains(t, subtasks, id)
		}
		selected, _, confidence := h.routing(t, subtasks["a"].ID)
		require.Equal(t, []string{"a", "b", "c"}, selected)
		require.InDelta(t, 0.95, confidence, 1e-9, "the name differs in case and \"-\"")
		h.complete(t, subtasks["c"], orchestrator.Result{Output: []byte("first")})
		require.Equal(t, models.TaskDone, h.WaitForTask(t, task.ID, testkit.Ended).State)
		require.Equal(t, "first", h.output(t, task.ID, models.StreamResult))
		requireSound(t, h)
	})

	withDatabase(t, "has queues of its own, ordered by priority", func(t *testing.T, db *storetest.DB) {
		h := start(t, db, weightedClasses())
		h.worker(t, "a", 1, "analyze-data")
		has := h.submit(t, "analyze-data", nil).ID
		first := h.submit(t, "analyze_data", byWeight)
		urgent := h.submit(t, "analyze_data", func(s *orchestrator.Submission) { byWeight(s); withPriority(3)(s) })
		exact := h.submit(t, "analyze-data", withPriority(0))
		require.Equal(t, first.QueueKey, urgent.QueueKey)
		require.NotEqual(t, first.QueueKey, h.submit(t, "analyze-data", byWeight).QueueKey)
		require.NotEqual(t, exact.QueueKey, h.submit(t, "analyze-data", byWeight).QueueKey)
		for range 2 {
			_, err := h.Complete(t.Context(), "a", has, orchestrator.Result{})
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				next, err := h.DB.Tasks(t.Context()).OpenOf("a", 2)
				if err == nil && len(next) == 1 {
					has = next[0]
				}
				return err == nil && len(next) == 1
			}, time.Minute, 5*time.Millisecond)
			if h.task(t, has).QueueKey == first.QueueKey {
				require.Equal(t, urgent.ID, has, "a higher priority overtakes")
			}
		}
		requireSound(t, h)
	})
}
