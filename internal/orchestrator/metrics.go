package orchestrator

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"comet/internal/orchestrator/selection"
	"comet/models"
)

// counters count the committed operations of this process.
type counters struct {
	submitted *prometheus.CounterVec
	ended     *prometheus.CounterVec
	duration  *prometheus.HistogramVec
	attempts  *prometheus.HistogramVec
	breakers  prometheus.Counter
}

func newCounters() *counters {
	buckets := []float64{.005, .025, .1, .5, 1, 5, 15, 60, 300, 1800, 7200}
	return &counters{
		submitted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "comet_tasks_submitted_total", Help: "Tasks that were accepted, by class.",
		}, []string{"class"}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "comet_tasks_ended_total", Help: "Tasks that ended, by class, final state and failure.",
		}, []string{"class", "state", "failure"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "comet_task_duration_seconds", Help: "Time from a task's submission to its end.", Buckets: buckets,
		}, []string{"class", "state"}),
		attempts: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "comet_attempt_duration_seconds", Help: "Time from an assignment to the end of the attempt, by result.", Buckets: buckets,
		}, []string{"result"}),
		breakers: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "comet_breakers_opened_total", Help: "Breakers that were opened after too many failures of an agent.",
		}),
	}
}

func (c *counters) all() []prometheus.Collector {
	return []prometheus.Collector{c.submitted, c.ended, c.duration, c.attempts, c.breakers}
}

// count runs fn after the commit.
func (op *operation) count(fn func(c *counters)) {
	op.commitHooks = append(op.commitHooks, func(context.Context) { fn(op.counters) })
}

func (op *operation) countEnd(t models.Task) {
	op.count(func(c *counters) {
		c.ended.WithLabelValues(t.Class, string(t.State), t.ErrorCode).Inc()
		c.duration.WithLabelValues(t.Class, string(t.State)).Observe(t.EndedAt.Sub(t.CreatedAt).Seconds())
	})
}

func (op *operation) countAttempt(a models.Attempt) {
	op.count(func(c *counters) {
		c.attempts.WithLabelValues(string(a.State)).Observe(a.EndedAt.Sub(a.AssignedAt).Seconds())
	})
}

// gauges are read at each scrape.
type gauges struct{ open, workers, breakers, slots *prometheus.Desc }

func newGauges() gauges {
	return gauges{
		open:     prometheus.NewDesc("comet_tasks_open", "Tasks that have not ended, by what they wait for: their agent, a slot, a retry, a reply.", []string{"waiting_for"}, nil),
		workers:  prometheus.NewDesc("comet_workers", "Agents that have joined, by state.", []string{"state"}, nil),
		breakers: prometheus.NewDesc("comet_worker_breakers", "Breakers of agents, by state.", []string{"state"}, nil),
		slots:    prometheus.NewDesc("comet_worker_slots", "Slots of the agents that are online, by use.", []string{"use"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (o *Orchestrator) Describe(to chan<- *prometheus.Desc) {
	for _, c := range o.counters.all() {
		c.Describe(to)
	}
	g := o.gauges
	for _, d := range []*prometheus.Desc{g.open, g.workers, g.breakers, g.slots} {
		to <- d
	}
}

// scrapeTimeout limits how long a scrape waits for the database.
const scrapeTimeout = 2 * time.Second

// Collect implements prometheus.Collector. It omits the open tasks if the database fails.
func (o *Orchestrator) Collect(to chan<- prometheus.Metric) {
	for _, c := range o.counters.all() {
		c.Collect(to)
	}
	gauge := func(d *prometheus.Desc, n int, label string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), label)
	}
	c := countWorkers(o.index, o.store.Now())
	for _, s := range []models.WorkerState{models.WorkerOffline, models.WorkerOnline, models.WorkerBusy} {
		gauge(o.gauges.workers, c.states[s], string(s))
	}
	gauge(o.gauges.breakers, c.closed, "closed")
	gauge(o.gauges.breakers, c.open, "open")
	gauge(o.gauges.breakers, c.halfOpen, "half_open")
	gauge(o.gauges.slots, c.inUse, "taken")
	gauge(o.gauges.slots, c.free, "free")
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	waits, err := o.store.Tasks(ctx).CountOpen()
	if err != nil {
		o.log.Warn("counting the open tasks failed", "error", err)
		return
	}
	for _, w := range []models.WaitReason{models.NotWaiting, models.WaitForWorker, models.WaitForRetry, models.WaitForReply} {
		label := string(w)
		if w == models.NotWaiting {
			label = "result"
		}
		gauge(o.gauges.open, waits[w], label)
	}
}

// workerCounts counts workers by state.
type workerCounts struct {
	states                              map[models.WorkerState]int
	closed, open, halfOpen, inUse, free int
}

func countWorkers(index *selection.Index, now time.Time) workerCounts {
	out := workerCounts{states: map[models.WorkerState]int{}}
	index.Workers(func(w *models.Worker) {
		out.states[w.State]++
		switch {
		case w.BreakerUntil.IsZero():
			out.closed++
		case now.Before(w.BreakerUntil):
			out.open++
		default:
			out.halfOpen++
		}
		if w.State == models.WorkerOnline {
			out.inUse += w.InFlight
			out.free += max(w.Concurrency-w.InFlight, 0)
		}
	})
	return out
}

var _ prometheus.Collector = (*Orchestrator)(nil)
