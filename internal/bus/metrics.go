package bus

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// counters count since New.
type counters struct {
	published, failures, reconnects, dropped atomic.Uint64
}

// metric is a counter with its description.
type metric struct {
	desc  *prometheus.Desc
	value *atomic.Uint64
}

func (b *Bus) metrics() []metric {
	counter := func(name, help string, value *atomic.Uint64) metric {
		return metric{prometheus.NewDesc(name, help, nil, nil), value}
	}
	return []metric{
		counter("comet_bus_messages_published_total", "Messages handed to NATS.", &b.counts.published),
		counter("comet_bus_publish_failures_total", "Messages that could not be handed to NATS.", &b.counts.failures),
		counter("comet_bus_reconnects_total", "Connections to NATS that were lost and made again.", &b.counts.reconnects),
		counter("comet_bus_messages_dropped_total", "Messages dropped because their handler was too slow.", &b.counts.dropped),
	}
}

func connectedDesc() *prometheus.Desc {
	return prometheus.NewDesc("comet_bus_connected", "1 while there is a connection to NATS, else 0.", nil, nil)
}

// Describe implements prometheus.Collector.
func (b *Bus) Describe(to chan<- *prometheus.Desc) {
	for _, m := range b.metrics() {
		to <- m.desc
	}
	to <- connectedDesc()
}

// Collect implements prometheus.Collector.
func (b *Bus) Collect(to chan<- prometheus.Metric) {
	for _, m := range b.metrics() {
		to <- prometheus.MustNewConstMetric(m.desc, prometheus.CounterValue, float64(m.value.Load()))
	}
	connected := 0.0
	if conn := b.conn.Load(); conn != nil && conn.IsConnected() {
		connected = 1
	}
	to <- prometheus.MustNewConstMetric(connectedDesc(), prometheus.GaugeValue, connected)
}

var _ prometheus.Collector = (*Bus)(nil)
