package transport

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics is what can be seen of the lines from outside.
type metrics struct {
	connections *prometheus.GaugeVec
	messages    *prometheus.CounterVec
	redelivered *prometheus.CounterVec
	failures    prometheus.Counter
}

// The directions of messages.
const (
	toAgent   = "out"
	fromAgent = "in"
)

// newMetrics registers what it returns, where there is somebody who takes it.
func newMetrics(to prometheus.Registerer) *metrics {
	c := &metrics{
		connections: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "comet_link_lines", Help: "Lines to agents that this process holds.",
		}, []string{"link"}),
		messages: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "comet_link_messages_total", Help: "Messages from agents (in) and to them (out).",
		}, []string{"link", "direction"}),
		redelivered: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "comet_link_redeliveries_total", Help: "Messages handed over again because they were not acknowledged in time.",
		}, []string{"link"}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "comet_link_authentication_failures_total", Help: "Tokens that agents showed, and signatures, that were not accepted.",
		}),
	}
	if to != nil {
		to.MustRegister(c.connections, c.messages, c.redelivered, c.failures)
	}
	return c
}

func (c *metrics) countReceived(link string) { c.messages.WithLabelValues(link, fromAgent).Inc() }

func (c *metrics) countDelivered(link string, again bool) {
	c.messages.WithLabelValues(link, toAgent).Inc()
	if again {
		c.redelivered.WithLabelValues(link).Inc()
	}
}

// logInterval is how long nothing is said of something that goes on.
const logInterval = time.Minute

// logThrottle is what may happen far more often than anybody wants to read of it. The zero
// value has not happened yet. It is safe for concurrent use.
type logThrottle struct {
	mu         sync.Mutex
	suppressed int
	next       time.Time
}

// allow counts that it happened, and reports whether it is time to say so; n is how often
// it has happened since that was said last.
func (c *logThrottle) allow(now time.Time) (n int, due bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.suppressed++
	if now.Before(c.next) {
		return c.suppressed, false
	}
	n, c.suppressed, c.next = c.suppressed, 0, now.Add(logInterval)
	return n, true
}
