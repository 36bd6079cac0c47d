package usage

import (
	"github.com/prometheus/client_golang/prometheus"

	"comet/models"
)

// counters count what this process has recorded and granted, after the commit.
type counters struct {
	facts, tokens, settled, granted, refused prometheus.Counter
}

func newCounters() *counters {
	counter := func(name, help string, labels prometheus.Labels) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels})
	}
	reservations := func(result string) prometheus.Counter {
		return counter("comet_ledger_reservations_total", "Reservations that were asked for, by whether they were granted or refused for a budget.",
			prometheus.Labels{"result": result})
	}
	return &counters{
		facts:   counter("comet_ledger_facts_total", "Facts recorded, those of settlements among them.", nil),
		tokens:  counter("comet_ledger_tokens_total", "Tokens charged by them.", nil),
		settled: counter("comet_ledger_settlements_total", "Reservations that were settled.", nil),
		granted: reservations("granted"),
		refused: reservations("refused"),
	}
}

// after updates the counters once the batch is committed.
func (c *counters) after(b *batch) {
	var tokens int64
	for _, f := range b.facts {
		tokens += f.Tokens
	}
	states := map[models.ReservationState]int{}
	for _, r := range b.ended {
		states[r.State]++
	}
	b.tx.After(func() {
		c.facts.Add(float64(len(b.facts)))
		c.tokens.Add(float64(tokens))
		c.settled.Add(float64(states[models.ReservationSettled]))
		c.granted.Add(float64(states[models.ReservationHeld]))
		c.refused.Add(float64(b.refused))
	})
}

func (c *counters) all() []prometheus.Collector {
	return []prometheus.Collector{c.facts, c.tokens, c.settled, c.granted, c.refused}
}

// Describe implements prometheus.Collector.
func (l *Ledger) Describe(to chan<- *prometheus.Desc) {
	for _, c := range l.counters.all() {
		c.Describe(to)
	}
}

// Collect implements prometheus.Collector.
func (l *Ledger) Collect(to chan<- prometheus.Metric) {
	for _, c := range l.counters.all() {
		c.Collect(to)
	}
}

var _ prometheus.Collector = (*Ledger)(nil)
