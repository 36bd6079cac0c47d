package bench

import (
	"fmt"
	"io"
	"runtime"
	"testing"
	"text/tabwriter"
)

// measurement compares subjects. The first one that open returns is comet's.
type measurement struct {
	name    string // of the sub-benchmark
	what    string
	open    func(b *testing.B) []*subject
	against []comparison
}

// comparison is one row of the table: comet's rate over that of another subject. An aim of 0
// means no aim.
type comparison struct {
	subject string
	metric  string
	aim     float64
}

// result is a completed comparison.
type result struct {
	what, subject    string
	ours, baseline   float64
	wait             float64 // of a caller of comet for a response, in milliseconds
	ratio, low, high float64
	cpu, saving      float64
	aim              float64
}

func (m measurement) run(b *testing.B) []result {
	b.Helper()
	subjects := m.open(b)
	ours := subjects[0].name
	r := alternate(b, subjects)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(r.rate(ours), "req/s")
	var results []result
	for _, c := range m.against {
		l := result{what: m.what, subject: c.subject, ours: r.rate(ours), baseline: r.rate(c.subject), aim: c.aim}
		l.ratio, l.low, l.high = r.ratio(ours, c.subject)
		l.wait = float64(subjects[0].callers) / l.ours * 1e3
		l.cpu, l.saving = r.cpu(ours), r.saving(ours, c.subject)
		b.ReportMetric(l.ratio, c.metric)
		results = append(results, l)
	}
	return results
}

func (l result) verdict() (aim, verdict string) {
	switch {
	case l.aim == 0:
		return "", ""
	case l.ratio >= l.aim:
		return fmt.Sprintf("≥ %.2f", l.aim), "met"
	default:
		return fmt.Sprintf("≥ %.2f", l.aim), "NOT MET"
	}
}

// printTable prints the rates, the latency of comet, its processor time per call (clients and
// server together), the ratio of the rates with its quartiles over the rounds, and the ratio of
// processor times. Processor time excludes PostgreSQL's.
func printTable(out io.Writer, title string, results []result) {
	_, _ = fmt.Fprintf(out, "\n%s Callers and servers share %d processors.\n", title, runtime.GOMAXPROCS(0))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(w, "\nwhat\tours/s\tms\tcpu µs\tagainst\tbaseline/s\tratio\tquartiles\tby cpu\taim\t\t")
	for _, l := range results {
		aim, verdict := l.verdict()
		_, _ = fmt.Fprintf(w, "%s\t%.0f\t%.2f\t%.0f\t%s\t%.0f\t%.2f\t%.2f-%.2f\t%.2f\t%s\t%s\t\n",
			l.what, l.ours, l.wait, l.cpu, l.subject, l.baseline, l.ratio, l.low, l.high, l.saving, aim, verdict)
	}
	_ = w.Flush()
}
