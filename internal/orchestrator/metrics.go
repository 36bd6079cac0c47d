package orchestrator

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"comet/internal/orchestrator/metrics"
	"comet/models"
)

// count runs fn after the commit.
func (op *operation) count(fn func(c *metrics.Counters)) {
	op.commitHooks = append(op.commitHooks, func(context.Context) { fn(op.counters) })
}

func (op *operation) countEnd(t models.Task) {
	op.count(func(c *metrics.Counters) {
		c.Ended.WithLabelValues(t.Class, string(t.State), t.ErrorCode).Inc()
		c.Duration.WithLabelValues(t.Class, string(t.State)).Observe(t.EndedAt.Sub(t.CreatedAt).Seconds())
	})
}

func (op *operation) countAttempt(a models.Attempt) {
	op.count(func(c *metrics.Counters) {
		c.Attempts.WithLabelValues(string(a.State)).Observe(a.EndedAt.Sub(a.AssignedAt).Seconds())
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
	for _, c := range o.counters.All() {
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
	for _, c := range o.counters.All() {
		c.Collect(to)
	}
	gauge := func(d *prometheus.Desc, n int, label string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), label)
	}
	c := metrics.CountWorkers(o.index, o.store.Now())
	for _, s := range []models.WorkerState{models.WorkerOffline, models.WorkerOnline, models.WorkerBusy} {
		gauge(o.gauges.workers, c.States[s], string(s))
	}
	gauge(o.gauges.breakers, c.Closed, "closed")
	gauge(o.gauges.breakers, c.Open, "open")
	gauge(o.gauges.breakers, c.HalfOpen, "half_open")
	gauge(o.gauges.slots, c.InUse, "taken")
	gauge(o.gauges.slots, c.Free, "free")
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

var _ prometheus.Collector = (*Orchestrator)(nil)
