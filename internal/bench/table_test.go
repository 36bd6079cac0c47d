package bench

import (
	"cmp"
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
	// also receives the rates for further tables, nil for none.
	also func(rates)
}

// comparison is one row of the table: comet's rate over that of another subject. An aim of 0
// means no aim.
type comparison struct {
	subject string
	metric  string
	aim     float64
	of      string // the subject that is compared, the first one if empty
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
	r := alternate(b, subjects)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(r.rate(subjects[0].name), "req/s")
	if m.also != nil {
		m.also(r)
	}
	return m.results(b, subjects, r)
}

func (m measurement) results(b *testing.B, subjects []*subject, r rates) (results []result) {
	b.Helper()
	for _, c := range m.against {
		ours := cmp.Or(c.of, subjects[0].name)
		if r[ours] == nil || r[c.subject] == nil { // a peer that is not available
			continue
		}
		l := result{what: m.what, subject: c.subject, ours: r.rate(ours), baseline: r.rate(c.subject), aim: c.aim}
		if c.of != "" {
			l.what += ", " + c.of
		}
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

// figure is a row of a table of absolute figures, which depend on the machine.
type figure struct {
	what  string
	value float64
	unit  string
	// most and least are aims, 0 for none.
	most, least float64
}

func (f figure) verdict() (aim, verdict string) {
	switch {
	case f.most > 0 && f.value <= f.most:
		return fmt.Sprintf("≤ %g", f.most), "met"
	case f.most > 0:
		return fmt.Sprintf("≤ %g", f.most), "NOT MET"
	case f.least > 0 && f.value >= f.least:
		return fmt.Sprintf("≥ %g", f.least), "met"
	case f.least > 0:
		return fmt.Sprintf("≥ %g", f.least), "NOT MET"
	default:
		return "", ""
	}
}

// printFigures prints absolute figures.
func printFigures(out io.Writer, title string, figures []figure) {
	if len(figures) == 0 {
		return
	}
	_, _ = fmt.Fprintf(out, "\n%s Callers and servers share %d processors.\n", title, runtime.GOMAXPROCS(0))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(w, "\nwhat\tfigure\t\taim\t\t")
	for _, f := range figures {
		aim, verdict := f.verdict()
		_, _ = fmt.Fprintf(w, "%s\t%.2f\t%s\t%s\t%s\t\n", f.what, f.value, f.unit, aim, verdict)
	}
	_ = w.Flush()
}

// printLatencies prints the rate, the median and the 99th percentile of the calls of timed
// subjects, and their processor time, as medians over the rounds.
func printLatencies(out io.Writer, title string, all []latencies) {
	_, _ = fmt.Fprintf(out, "\n%s\n", title)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(w, "\nwhat\tcallers\tsubject\ta second\tp50 ms\tp99 ms\tcpu µs\taim\t\t")
	for _, l := range all {
		aim, verdict := figure{value: l.median, most: l.most}.verdict()
		if l.least > 0 {
			aim, verdict = figure{value: l.rate, least: l.least}.verdict()
			aim += "/s"
		}
		_, _ = fmt.Fprintf(w, "%s\t%d\t%s\t%.0f\t%.2f\t%.2f\t%.0f\t%s\t%s\t\n", l.what, l.callers, l.subject, l.rate, l.median, l.high, l.cpu, aim, verdict)
	}
	_ = w.Flush()
}

// latencies is a row of printLatencies; most is the aim of the median and least that of the rate, 0
// for none.
type latencies struct {
	what, subject           string
	callers                 int
	rate, median, high, cpu float64
	most, least             float64
}
