// Package metrics contains what the orchestrator counts for Prometheus.
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"comet/internal/orchestrator/selection"
	"comet/models"
)

// Counters count the committed operations of this process.
type Counters struct {
	Submitted *prometheus.CounterVec
	Ended     *prometheus.CounterVec
	Duration  *prometheus.HistogramVec
	Attempts  *prometheus.HistogramVec
	Breakers  prometheus.Counter
}

// NewCounters returns counters set to zero.
func NewCounters() *Counters {
	buckets := []float64{.005, .025, .1, .5, 1, 5, 15, 60, 300, 1800, 7200}
	return &Counters{
		Submitted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "comet_tasks_submitted_total", Help: "Tasks that were accepted, by class.",
		}, []string{"class"}),
		Ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "comet_tasks_ended_total", Help: "Tasks that ended, by class, final state and failure.",
		}, []string{"class", "state", "failure"}),
		Duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "comet_task_duration_seconds", Help: "Time from a task's submission to its end.", Buckets: buckets,
		}, []string{"class", "state"}),
		Attempts: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "comet_attempt_duration_seconds", Help: "Time from an assignment to the end of the attempt, by result.", Buckets: buckets,
		}, []string{"result"}),
		Breakers: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "comet_breakers_opened_total", Help: "Breakers that were opened after too many failures of an agent.",
		}),
	}
}

// All returns the counters.
func (c *Counters) All() []prometheus.Collector {
	return []prometheus.Collector{c.Submitted, c.Ended, c.Duration, c.Attempts, c.Breakers}
}

// Workers is the number of workers by state, of their breakers by state, and of the slots of those that are online by use.
type Workers struct {
	States                              map[models.WorkerState]int
	Closed, Open, HalfOpen, InUse, Free int
}

// CountWorkers counts the workers of an index at a time.
func CountWorkers(index *selection.Index, now time.Time) Workers {
	out := Workers{States: map[models.WorkerState]int{}}
	index.Workers(func(w *models.Worker) {
		out.States[w.State]++
		switch {
		case w.BreakerUntil.IsZero():
			out.Closed++
		case now.Before(w.BreakerUntil):
			out.Open++
		default:
			out.HalfOpen++
		}
		if w.State == models.WorkerOnline {
			out.InUse += w.InFlight
			out.Free += max(w.Concurrency-w.InFlight, 0)
		}
	})
	return out
}
