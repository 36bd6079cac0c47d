package bus

import "github.com/prometheus/client_golang/prometheus"

// metrics are the metrics of a bus. The counters count since New.
type metrics struct {
	published, failures, reconnects, dropped prometheus.Counter
	connected                                prometheus.GaugeFunc
}

func newMetrics(isConnected func() bool) metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	return metrics{
		published:  counter("comet_bus_messages_published_total", "Messages handed to NATS."),
		failures:   counter("comet_bus_publish_failures_total", "Messages that could not be handed to NATS."),
		reconnects: counter("comet_bus_reconnects_total", "Connections to NATS that were lost and made again."),
		dropped:    counter("comet_bus_messages_dropped_total", "Messages dropped because their handler was too slow."),
		connected: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "comet_bus_connected", Help: "1 while there is a connection to NATS, else 0.",
		}, func() float64 {
			if isConnected() {
				return 1
			}
			return 0
		}),
	}
}

func (m metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.published, m.failures, m.reconnects, m.dropped, m.connected}
}
