package app

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"comet/store"
)

// countCommits returns a hook for store.Options.OnCommit that records how many callers share a
// commit and how long it takes.
func countCommits(to prometheus.Registerer) func(callers int, took time.Duration) {
	create := promauto.With(to)
	size := create.NewHistogram(prometheus.HistogramOpts{
		Name: "comet_store_commit_callers", Help: "Callers that shared one commit.",
		Buckets: prometheus.ExponentialBuckets(1, 2, 9),
	})
	duration := create.NewHistogram(prometheus.HistogramOpts{
		Name: "comet_store_commit_duration_seconds", Help: "Time from the begin of a write transaction to the end of its commit.",
		Buckets: prometheus.ExponentialBuckets(.0002, 2.5, 11),
	})
	return func(callers int, took time.Duration) {
		size.Observe(float64(callers))
		duration.Observe(took.Seconds())
	}
}

// countAttempts returns a hook for webhooks.Options.OnAttempt.
func countAttempts(to prometheus.Registerer) func(succeeded bool, took time.Duration) {
	duration := promauto.With(to).NewHistogramVec(prometheus.HistogramOpts{
		Name: "comet_webhook_attempt_duration_seconds", Help: "Time that attempts to deliver webhooks took, by result.",
		Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 15, 30, 60},
	}, []string{"result"})
	success, failure := duration.WithLabelValues("success"), duration.WithLabelValues("failure")
	return func(succeeded bool, took time.Duration) {
		if succeeded {
			success.Observe(took.Seconds())
			return
		}
		failure.Observe(took.Seconds())
	}
}

// backlogTimeout is how long a scrape waits for the database.
const backlogTimeout = 2 * time.Second

// backlog is a collector of pending writes, events and jobs, which the store counts at each scrape.
// While the database does not respond it collects nothing.
type backlog struct {
	store                *store.Store
	log                  *slog.Logger
	writes, events, jobs *prometheus.Desc
}

func newBacklog(s *store.Store, log *slog.Logger) *backlog {
	return &backlog{
		store: s, log: log,
		writes: prometheus.NewDesc("comet_store_writes_waiting", "Writers that wait for the writer of the store.", nil, nil),
		events: prometheus.NewDesc("comet_events_unnumbered", "Committed events that have no position yet.", nil, nil),
		jobs:   prometheus.NewDesc("comet_jobs_due", "Jobs that are due and not claimed.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (b *backlog) Describe(to chan<- *prometheus.Desc) {
	to <- b.writes
	to <- b.events
	to <- b.jobs
}

// Collect implements prometheus.Collector.
func (b *backlog) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), backlogTimeout)
	defer cancel()
	n, err := b.store.Backlog(ctx)
	if err != nil {
		b.log.Warn("the backlog cannot be counted", "error", err)
		return
	}
	to <- prometheus.MustNewConstMetric(b.writes, prometheus.GaugeValue, float64(n.Writes))
	to <- prometheus.MustNewConstMetric(b.events, prometheus.GaugeValue, float64(n.Events))
	to <- prometheus.MustNewConstMetric(b.jobs, prometheus.GaugeValue, float64(n.Jobs))
}
