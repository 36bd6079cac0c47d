package bench

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/app"
	"comet/store/storetest"
)

// statementCounter counts what the connections of a server do.
type statementCounter struct {
	commits, written, read atomic.Int64

	open sync.Map // connections with an open transaction
}

func (c *statementCounter) record(s storetest.Statement) {
	verb, _, _ := strings.Cut(strings.TrimSpace(s.Query), " ")
	_, inside := c.open.Load(s.Connection)
	switch strings.ToUpper(verb) {
	case "BEGIN":
		c.open.Store(s.Connection, true)
	case "COMMIT":
		c.open.Delete(s.Connection)
		c.commits.Add(1)
	case "ROLLBACK":
		if !strings.Contains(strings.ToUpper(s.Query), " TO ") { // not to a savepoint
			c.open.Delete(s.Connection)
		}
	case "SAVEPOINT", "RELEASE", "PRAGMA":
	default:
		if inside {
			c.written.Add(1)
		} else {
			c.read.Add(1)
		}
	}
}

// BenchmarkTaskCosts counts the commits, the statements and the events of a task under load, in the
// round trip of BenchmarkTask in envelopes. A commit that several tasks share counts once. The rates
// are not measured, because counting takes time.
func BenchmarkTaskCosts(b *testing.B) {
	var all []figure
	eachDatabase(b, func(b *testing.B, database string) {
		for _, requesters := range requesterCounts() {
			b.Run(fmt.Sprint(requesters), func(b *testing.B) { all = append(all, taskCosts(b, database, requesters)...) })
		}
	})
	printFigures(os.Stdout, "Of one task in envelopes, at load.", all)
}

func taskCosts(b *testing.B, database string, requesters int) []figure {
	b.Helper()
	counter := &statementCounter{}
	data := newStorage(b, database)
	comet := startComet(b, data, &app.Options{Connector: storetest.Statements(counter.record)})
	startEnvelopeWorkers(b, comet)
	s := envelopeRoundTrips(b, inEnvelopes, comet.addr, requesters)
	s.run(b) // fills connections, caches and plans
	tasks := 0
	commits, written, read, events := counter.commits.Load(), counter.written.Load(), counter.read.Load(), countRows(b, data, "events")
	for b.Loop() {
		tasks += s.together(b)
	}
	commits, written, read, events = counter.commits.Load()-commits, counter.written.Load()-written, counter.read.Load()-read, countRows(b, data, "events")-events
	require.Positive(b, commits, "the connector does not see the commits")
	require.Positive(b, written, "the connector does not see the statements of transactions")
	per := func(n int64) float64 { return float64(n) / float64(tasks) }
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(per(commits), "commits/task")
	b.ReportMetric(per(written+read), "statements/task")
	b.ReportMetric(per(events), "events/task")
	what := fmt.Sprintf("%s, %d requesters: ", database, requesters)
	rows := []figure{
		{what: what + "commits", value: per(commits)}, {what: what + "events", value: per(events)},
		{what: what + "statements", value: per(written + read)}, {what: what + "... of them in transactions", value: per(written)},
	}
	if requesters == aimedRequesters {
		rows[0].most, rows[1].most, rows[2].most = 2, 2, 12
	}
	return rows
}
