package tools

import (
	"github.com/prometheus/client_golang/prometheus"

	"comet/models"
)

// callMetrics are the gateway's metrics.
type callMetrics struct {
	calls    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newCallMetrics(to prometheus.Registerer) callMetrics {
	c := callMetrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "comet_tool_calls_total", Help: "Calls of tools, by the door they came in by and how they ended.",
		}, []string{"door", "outcome"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "comet_tool_call_duration_seconds", Help: "How long calls of tools took, by how they ended.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"outcome"}),
	}
	if to != nil {
		to.MustRegister(c.calls, c.duration)
	}
	return c
}

// count counts a call. What is counted has few values: no name that a client chooses.
func (c callMetrics) count(line models.ToolCall) {
	c.calls.WithLabelValues(line.Door, string(line.Outcome)).Inc()
	c.duration.WithLabelValues(string(line.Outcome)).Observe(line.Duration.Seconds())
}
