package orchestrator_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/usage"
	"comet/models"
	"comet/store/storetest"
)

// metricsReader reads the metrics of an orchestrator and its ledger.
type metricsReader struct {
	t   *testing.T
	reg *prometheus.Registry
}

func (h *harness) meter(t *testing.T) metricsReader {
	t.Helper()
	m := metricsReader{t, prometheus.NewPedanticRegistry()}
	require.NoError(t, m.reg.Register(h.Orchestrator))
	require.NoError(t, m.reg.Register(h.Ledger))
	return m
}

// values returns the values of all metrics with one of the prefixes: of histograms the count and
// the sum.
func (m metricsReader) values(prefixes ...string) map[string]float64 {
	m.t.Helper()
	families, err := m.reg.Gather()
	require.NoError(m.t, err)
	out := map[string]float64{}
	for _, f := range families {
		if !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(f.GetName(), p) }) {
			continue
		}
		for _, one := range f.GetMetric() {
			var labels []string
			for _, l := range one.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			name := strings.TrimSpace(f.GetName() + " " + strings.Join(labels, " "))
			if h := one.GetHistogram(); h != nil {
				out[name+" count"], out[name+" sum"] = float64(h.GetSampleCount()), h.GetSampleSum()
				continue
			}
			out[name] = one.GetCounter().GetValue() + one.GetGauge().GetValue()
		}
	}
	return out
}

// require waits until exactly these series exist.
func (m metricsReader) require(want map[string]float64, prefixes ...string) {
	m.t.Helper()
	require.Eventually(m.t, func() bool { return maps.Equal(want, m.values(prefixes...)) }, time.Minute, 5*time.Millisecond,
		"want %v, last seen %v", want, metricValues{m, prefixes})
}

// metricValues prints the values if the test fails.
type metricValues struct {
	m        metricsReader
	prefixes []string
}

func (s metricValues) String() string { return fmt.Sprint(s.m.values(s.prefixes...)) }

// TestMetrics covers docs/observability.md.
func TestMetrics(t *testing.T) {
	t.Parallel()

	withDatabase(t, "tasks and attempts with their duration", func(t *testing.T, db *storetest.DB) {
		h := start(t, db, &orchestrator.Options{Classes: map[string]orchestrator.Policy{"twice": {
			Timeout: time.Hour, QueueTimeout: time.Hour, Retries: 1, Backoff: []time.Duration{2 * time.Second}, RetryOn: []orchestrator.Failure{orchestrator.FailureResource},
		}}})
		m := h.meter(t)
		h.worker(t, "a", 10, "work")
		twice := func(s *orchestrator.Submission) { s.Class = "twice" }
		done, again, cancelled, waiting := h.submit(t, "work", nil).ID, h.submit(t, "work", twice).ID, h.submit(t, "work", nil).ID, h.submit(t, "work", longTimeout).ID
		_, err := h.Submit(t.Context(), operator(), orchestrator.Submission{Capabilities: []string{"fly"}}, nil)
		require.Equal(t, errs.UnsupportedWork, errs.CodeOf(err))
		m.require(map[string]float64{"comet_tasks_submitted_total default": 3, "comet_tasks_submitted_total twice": 1}, "comet_tasks_submitted_total", "comet_tasks_ended_total")

		h.DB.Clock.Advance(2 * time.Second)
		for range 2 { // repeated, but counted once
			_, err := h.Complete(t.Context(), "a", done, orchestrator.Result{})
			require.NoError(t, err)
		}
		_, err = h.Complete(t.Context(), "a", again, orchestrator.Result{Failure: orchestrator.FailureResource})
		require.NoError(t, err)
		h.advanceUntil(t, again, 2*time.Second, waitsFor(models.NotWaiting))
		h.DB.Clock.Advance(3 * time.Second)
		_, err = h.Complete(t.Context(), "a", again, orchestrator.Result{Failure: orchestrator.FailureWork})
		require.NoError(t, err)
		_, err = h.Cancel(t.Context(), cancelled, "", nil)
		require.NoError(t, err)
		m.require(map[string]float64{
			"comet_tasks_submitted_total default": 3, "comet_tasks_submitted_total twice": 1,
			"comet_tasks_ended_total default  done": 1, "comet_tasks_ended_total twice failed failed": 1, "comet_tasks_ended_total default  cancelled": 1,
			"comet_task_duration_seconds default done count": 1, "comet_task_duration_seconds default done sum": 2,
			"comet_task_duration_seconds twice failed count": 1, "comet_task_duration_seconds twice failed sum": 7,
			"comet_task_duration_seconds default cancelled count": 1, "comet_task_duration_seconds default cancelled sum": 7,
			"comet_attempt_duration_seconds succeeded count": 1, "comet_attempt_duration_seconds succeeded sum": 2,
			"comet_attempt_duration_seconds failed count": 2, "comet_attempt_duration_seconds failed sum": 2 + 3,
			"comet_attempt_duration_seconds cancelled count": 1, "comet_attempt_duration_seconds cancelled sum": 7,
		}, "comet_tasks_submitted", "comet_tasks_ended", "comet_task_duration", "comet_attempt_duration")
		task, err := h.Task(t.Context(), waiting)
		require.NoError(t, err)
		require.False(t, task.State.Ended(), "it is counted when it ends")
	})

	withHarness(t, "queues and slots", func(t *testing.T, h *harness) {
		m := h.meter(t)
		const open, workers = "comet_tasks_open", "comet_worker"
		none := map[string]float64{"comet_tasks_open result": 0, "comet_tasks_open worker": 0, "comet_tasks_open retry": 0, "comet_tasks_open reply": 0}
		m.require(none, open)
		h.worker(t, "a", 3, "work")
		h.worker(t, "b", 2, "else")
		var ids []string
		for range 6 {
			ids = append(ids, h.submit(t, "work", nil).ID)
		}
		m.require(map[string]float64{"comet_tasks_open result": 3, "comet_tasks_open worker": 3, "comet_tasks_open retry": 0, "comet_tasks_open reply": 0}, open)
		_, err := h.Clarify(t.Context(), "a", ids[0], orchestrator.Question{Text: "which?"})
		require.NoError(t, err)
		_, err = h.Complete(t.Context(), "a", ids[1], orchestrator.Result{Failure: orchestrator.FailureResource})
		require.NoError(t, err)
		m.require(map[string]float64{"comet_tasks_open result": 2, "comet_tasks_open worker": 2, "comet_tasks_open retry": 1, "comet_tasks_open reply": 1}, open)
		crew := map[string]float64{
			"comet_workers online": 2, "comet_workers busy": 0, "comet_workers offline": 0, "comet_worker_slots taken": 3, "comet_worker_slots free": 2,
			"comet_worker_breakers closed": 2, "comet_worker_breakers open": 0, "comet_worker_breakers half_open": 0,
		}
		m.require(crew, workers)
		_, err = h.Heartbeat(t.Context(), "b", orchestrator.Heartbeat{State: models.WorkerBusy})
		require.NoError(t, err)
		crew["comet_workers online"], crew["comet_workers busy"], crew["comet_worker_slots free"] = 1, 1, 0
		m.require(crew, workers)
		require.NoError(t, h.Leave(t.Context(), "b", false))
		crew["comet_workers busy"], crew["comet_workers offline"] = 0, 1
		m.require(crew, workers)
		for _, id := range ids {
			_, err := h.Cancel(t.Context(), id, "", nil)
			require.NoError(t, err)
		}
		m.require(none, open)
		crew["comet_worker_slots taken"], crew["comet_worker_slots free"] = 0, 3
		m.require(crew, workers)
	})

	withHarness(t, "breakers", func(t *testing.T, h *harness) {
		m := h.meter(t)
		h.worker(t, "a", 1, "work")
		h.worker(t, "b", 1, "else")
		breakers := func(closed, open, halfOpen, opened float64) {
			t.Helper()
			m.require(map[string]float64{
				"comet_worker_breakers closed": closed, "comet_worker_breakers open": open, "comet_worker_breakers half_open": halfOpen, "comet_breakers_opened_total": opened,
			}, "comet_worker_breakers", "comet_breakers_opened_total")
		}
		for range 5 {
			breakers(2, 0, 0, 0)
			id := h.submit(t, "work", func(s *orchestrator.Submission) { s.Override.Retries = new(0) }).ID
			_, err := h.Complete(t.Context(), "a", id, orchestrator.Result{Failure: orchestrator.FailureUnavailable})
			require.NoError(t, err)
		}
		breakers(1, 1, 0, 1)
		require.InDelta(t, 5, m.values("comet_tasks_ended_total")["comet_tasks_ended_total default unavailable failed"], 0)
		h.DB.Clock.Advance(time.Minute)
		breakers(1, 0, 1, 1)
		_, err := h.Heartbeat(t.Context(), "a", orchestrator.Heartbeat{State: models.WorkerOnline})
		require.NoError(t, err)
		breakers(2, 0, 0, 1)
	})

	withHarness(t, "the ledger", func(t *testing.T, h *harness) {
		m := h.meter(t)
		h.worker(t, "a", 10, "work")
		const ledger = "comet_ledger_"
		ids := []string{h.submit(t, "work", withBudget(1000)).ID, h.submit(t, "work", withBudget(500)).ID, h.submit(t, "work", nil).ID}
		want := map[string]float64{
			"comet_ledger_reservations_total granted": 2, "comet_ledger_reservations_total refused": 0,
			"comet_ledger_facts_total": 0, "comet_ledger_tokens_total": 0, "comet_ledger_settlements_total": 0,
		}
		m.require(want, ledger)
		_, err := h.Complete(t.Context(), "a", ids[0], orchestrator.Result{Tokens: 300})
		require.NoError(t, err)
		_, err = h.Cancel(t.Context(), ids[1], "", nil) // it used nothing
		require.NoError(t, err)
		_, err = h.Complete(t.Context(), "a", ids[2], orchestrator.Result{Tokens: 70}) // it reserved nothing
		require.NoError(t, err)
		h.recordUsage(t, "a", 49_000)
		_, err = h.Ledger.Reserve(t.Context(), "a", usage.ReservationDraft{Tokens: new(int64(5000))}, nil)
		require.Equal(t, errs.BudgetExceeded, errs.CodeOf(err))
		want["comet_ledger_settlements_total"], want["comet_ledger_reservations_total refused"] = 2, 1
		want["comet_ledger_facts_total"], want["comet_ledger_tokens_total"] = 3, 300+70+49_000
		m.require(want, ledger)
	})
}
