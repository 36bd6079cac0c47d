package transport

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the metrics of the transports.
type metrics struct {
	connections *prometheus.GaugeVec
	messages    *prometheus.CounterVec
	redelivered *prometheus.CounterVec
	failures    prometheus.Counter
}

// The values of the label direction.
const (
	toAgent   = "out"
	fromAgent = "in"
)

// newMetrics returns the metrics and registers them, unless registerer is nil.
func newMetrics(registerer prometheus.Registerer) *metrics {
	m := &metrics{
		connections: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "comet_transport_connections", Help: "Connections of agents to this process.",
		}, []string{"transport"}),
		messages: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "comet_transport_messages_total", Help: "Messages from agents (in) and to agents (out).",
		}, []string{"transport", "direction"}),
		redelivered: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "comet_transport_redeliveries_total", Help: "Messages delivered again because they were not acknowledged in time.",
		}, []string{"transport"}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "comet_transport_authentication_failures_total", Help: "Rejected tokens and signatures of agents.",
		}),
	}
	if registerer != nil {
		registerer.MustRegister(m.connections, m.messages, m.redelivered, m.failures)
	}
	return m
}

func (m *metrics) countReceived(transport string) {
	m.messages.WithLabelValues(transport, fromAgent).Inc()
}

func (m *metrics) countDelivered(transport string, redelivered bool) {
	m.messages.WithLabelValues(transport, toAgent).Inc()
	if redelivered {
		m.redelivered.WithLabelValues(transport).Inc()
	}
}

// logInterval is the shortest time between two log entries of a logThrottle.
const logInterval = time.Minute

// logThrottle limits the log entries about an event that may happen often. The zero value is ready
// to use. It is safe for concurrent use.
type logThrottle struct {
	mu         sync.Mutex
	suppressed int
	next       time.Time
}

// allow counts an event and reports whether to log it. n is the number of events since the last log
// entry.
func (t *logThrottle) allow(now time.Time) (n int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.suppressed++
	if now.Before(t.next) {
		return t.suppressed, false
	}
	n, t.suppressed, t.next = t.suppressed, 0, now.Add(logInterval)
	return n, true
}
