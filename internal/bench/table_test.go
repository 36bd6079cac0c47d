package bench

import (
	"fmt"
	"io"
	"runtime"
	"testing"
	"text/tabwriter"
)

// measurement is one thing that is measured and what it is compared with. The
// first subject that open returns is ours.
type measurement struct {
	name    string // of the sub-benchmark
	what    string
	open    func(b *testing.B) []*subject
	against []comparison
}

// comparison is one line of the table: the rate of ours over that of another
// subject. An aim of 0 is no aim; the line is for information.
type comparison struct {
	subject string
	metric  string
	aim     float64
}

// line is a comparison that was made.
type line struct {
	what, subject    string
	ours, baseline   float64
	wait             float64 // for an answer of ours, in milliseconds
	ratio, low, high float64
	cpu, saving      float64
	aim              float64
}

func (m measurement) run(b *testing.B) []line {
	b.Helper()
	subjects := m.open(b)
	ours := subjects[0].name
	r := alternate(b, subjects)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(r.rate(ours), "req/s")
	var lines []line
	for _, c := range m.against {
		l := line{what: m.what, subject: c.subject, ours: r.rate(ours), baseline: r.rate(c.subject), aim: c.aim}
		l.ratio, l.low, l.high = r.ratio(ours, c.subject)
		l.wait = float64(subjects[0].callers) / l.ours * 1e3
		l.cpu, l.saving = r.cpu(ours), r.saving(ours, c.subject)
		b.ReportMetric(l.ratio, c.metric)
		lines = append(lines, l)
	}
	return lines
}

func (l line) verdict() (aim, verdict string) {
	switch {
	case l.aim == 0:
		return "", ""
	case l.ratio >= l.aim:
		return fmt.Sprintf("≥ %.2f", l.aim), "met"
	default:
		return fmt.Sprintf("≥ %.2f", l.aim), "NOT MET"
	}
}

// printTable prints the rates, how long a caller of ours waits for an answer, the
// processor time a call of ours (callers and server together), the ratio of the rates
// with its quartiles over the rounds, and the same ratio reckoned by processor time.
// PostgreSQL's processor time is not in it.
func printTable(out io.Writer, title string, lines []line) {
	_, _ = fmt.Fprintf(out, "\n%s Callers and servers share %d processors.\n", title, runtime.GOMAXPROCS(0))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(w, "\nwhat\tours/s\tms\tcpu µs\tagainst\tbaseline/s\tratio\tquartiles\tby cpu\taim\t\t")
	for _, l := range lines {
		aim, verdict := l.verdict()
		_, _ = fmt.Fprintf(w, "%s\t%.0f\t%.2f\t%.0f\t%s\t%.0f\t%.2f\t%.2f-%.2f\t%.2f\t%s\t%s\t\n",
			l.what, l.ours, l.wait, l.cpu, l.subject, l.baseline, l.ratio, l.low, l.high, l.saving, aim, verdict)
	}
	_ = w.Flush()
}
