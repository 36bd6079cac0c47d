package usage

import (
	"github.com/prometheus/client_golang/prometheus"

	"comet/internal/errs"
	"comet/store"
)

// counters count what this process has recorded and granted, after the commit.
type counters struct {
	facts, tokens, settled prometheus.Counter
	reservations           *prometheus.CounterVec
}

func newCounters() *counters {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	return &counters{
		facts:   counter("comet_ledger_facts_total", "Facts recorded, those of settlements among them."),
		tokens:  counter("comet_ledger_tokens_total", "Tokens charged by them."),
		settled: counter("comet_ledger_settlements_total", "Reservations that were settled."),
		reservations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "comet_ledger_reservations_total", Help: "Reservations that were asked for, by whether they were granted or refused for a budget.",
		}, []string{"result"}),
	}
}

// after updates the counters once the operations are committed.
func (c *counters) after(tx *store.Tx, ops []operation) {
	var n counts
	for _, op := range ops {
		n.add(op)
	}
	tx.After(func() {
		c.facts.Add(float64(n.facts))
		c.tokens.Add(float64(n.tokens))
		c.settled.Add(float64(n.settled))
		c.reservations.WithLabelValues("granted").Add(float64(n.granted))
		c.reservations.WithLabelValues("refused").Add(float64(n.refused))
	})
}

// counts are what the operations of a transaction have done.
type counts struct {
	facts, settled, granted, refused int
	tokens                           int64
}

func (n *counts) add(op operation) {
	switch op := op.(type) {
	case *record:
		for _, f := range op.recorded.Facts {
			if !f.Replayed {
				n.facts, n.tokens = n.facts+1, n.tokens+f.Tokens
			}
		}
	case *settle:
		if op.err == nil && !op.settled.Replayed {
			n.settled, n.tokens = n.settled+1, n.tokens+op.fact.Tokens
			if op.fact.Tokens > 0 {
				n.facts++
			}
		}
	case *reserve:
		switch {
		case op.err == nil:
			n.granted++
		case errs.Is(op.err, errs.BudgetExceeded):
			n.refused++
		}
	case *prepay:
		op.count(n)
	}
}

func (c *counters) all() []prometheus.Collector {
	return []prometheus.Collector{c.facts, c.tokens, c.settled, c.reservations}
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
