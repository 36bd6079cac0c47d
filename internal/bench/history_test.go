package bench

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/app"
)

const (
	historyTasks   = 50_000 // COMET_BENCH_HISTORY sets another number
	historyCallers = 64
	afterHistory   = "after the history"
	duringPurge    = "while purging"
	emptyDatabase  = "empty database"
	purgeAge       = 100 * 24 * time.Hour // beyond the retention of tasks
	betweenPurges  = 2 * time.Hour        // longer than the interval of purges
)

// BenchmarkHistory measures the round trip of BenchmarkTask, 64 requesters in envelopes on SQLite, in
// a database with many finished tasks and while they are purged, against an empty database; and the
// bytes of the database for each finished task. A full run has COMET_BENCH_HISTORY=1000000.
func BenchmarkHistory(b *testing.B) {
	count, err := strconv.Atoi(cmp.Or(os.Getenv("COMET_BENCH_HISTORY"), strconv.Itoa(historyTasks)))
	require.NoError(b, err, "COMET_BENCH_HISTORY")
	require.GreaterOrEqual(b, count, templateTasks, "COMET_BENCH_HISTORY")
	h := newHistory(b, count)
	m := measurement{what: fmt.Sprintf("round trips, %d finished tasks", h.tasks), against: []comparison{
		{of: afterHistory, subject: emptyDatabase, metric: "of_empty", aim: 0.9}, {of: duringPurge, subject: emptyDatabase, metric: "purging_of_empty", aim: 0.9},
	}}
	m.open = func(b *testing.B) []*subject {
		b.Helper()
		full := newStorage(b, sqlite)
		copyDatabase(b, h.storage, full)
		return []*subject{historySubject(b, emptyDatabase, newStorage(b, sqlite), nil), historySubject(b, afterHistory, full, h.workers), newPurge(b, h).subject()}
	}
	var results []result
	b.Run(sqlite, func(b *testing.B) { results = m.run(b) })
	printTable(os.Stdout, fmt.Sprintf("%d requesters in envelopes.", historyCallers), results)
	printFigures(os.Stdout, "Size of the history.", []figure{
		{what: fmt.Sprintf("SQLite for each of %d finished tasks", h.tasks), value: h.bytes, unit: "bytes", most: 1536},
		{what: "... rows", value: float64(h.rowsPerTask())},
	})
}

// historySubject starts comet with registered workers, or new ones if they are nil.
func historySubject(b *testing.B, name string, data storage, workers map[string]string) *subject {
	b.Helper()
	comet := startComet(b, data, nil)
	if workers == nil {
		workers = registerEnvelopeWorkers(b, comet)
	}
	connectEnvelopeWorkers(b, comet, workers, new(atomic.Int64))
	return envelopeRoundTrips(b, name, comet.addr, historyCallers)
}

// history is a closed SQLite database with finished tasks that ended in the last 20 hours.
type history struct {
	storage
	workers map[string]string // tokens by id
	tables  []*taskTable
	tasks   int
	bytes   float64 // of the database for each task
}

// newHistory lets comet do a few tasks and copies their rows, with other keys, in SQL. So it knows
// nothing of the schema.
func newHistory(b *testing.B, count int) *history {
	b.Helper()
	h := &history{storage: newStorage(b, sqlite)}
	h.doTasks(b, 1) // creates the rows that are not of one task
	before := readRows(b, h.storage)
	h.doTasks(b, templateTasks)
	h.tables = addedRows(b, before, readRows(b, h.storage))
	size, copies := databaseBytes(b, h.storage), count/templateTasks
	copyTasks(b, h.storage, before, h.tables, copies)
	h.tasks = copies * templateTasks
	h.bytes = float64(databaseBytes(b, h.storage)-size) / float64(h.tasks)
	return h
}

// doTasks lets comet complete n tasks with a clock that is historySpan behind.
func (h *history) doTasks(b *testing.B, n int) {
	b.Helper()
	comet, stop := openComet(b, h.storage, &app.Options{Clock: func() time.Time { return time.Now().Add(-historySpan) }})
	if h.workers == nil {
		h.workers = registerEnvelopeWorkers(b, comet)
	}
	disconnect := connectEnvelopeWorkers(b, comet, h.workers, new(atomic.Int64))
	trips := envelopeRoundTrips(b, "", comet.addr, 1)
	for i := range n {
		require.NoError(b, trips.do(0, i))
	}
	disconnect()
	stop(b)
}

func (h *history) rowsPerTask() int64 {
	n := int64(0)
	for _, t := range h.tables {
		n += int64(len(t.rows))
	}
	return n / templateTasks
}

// purge is a server whose clock is ahead of the retention of tasks, on a copy of a history. It is started
// for each slice, because a start begins the purge.
type purge struct {
	*history
	copy  storage
	ahead time.Duration // of the clock
	done  *atomic.Int64 // tasks in the copy since it was restored, nil before
	trips *subject
	end   func(b *testing.B)
}

func newPurge(b *testing.B, h *history) *purge {
	b.Helper()
	return &purge{history: h, copy: newStorage(b, sqlite), ahead: purgeAge}
}

func (p *purge) subject() *subject {
	return &subject{name: duringPurge, callers: historyCallers, measure: func(b *testing.B) pace {
		b.Helper()
		p.begin(b)
		return p.slice(b)
	}}
}

// begin starts the server. It restores the history if half of a table is purged.
func (p *purge) begin(b *testing.B) {
	b.Helper()
	if p.done == nil || slices.Min(p.rows(b)) < int64(p.tasks)/2 {
		copyDatabase(b, p.storage, p.copy)
		p.done = new(atomic.Int64)
	}
	p.ahead += betweenPurges
	ahead := p.ahead
	comet, stop := openComet(b, p.copy, &app.Options{Clock: func() time.Time { return time.Now().Add(ahead) }})
	disconnect := connectEnvelopeWorkers(b, comet, p.workers, p.done)
	p.trips = envelopeRoundTrips(b, duringPurge, comet.addr, historyCallers)
	p.end = func(b *testing.B) {
		b.Helper()
		disconnect()
		stop(b)
	}
}

// rows counts the rows of the tables of tasks, for each row of a task.
func (p *purge) rows(b *testing.B) []int64 {
	b.Helper()
	all := make([]int64, len(p.tables))
	for i, t := range p.tables {
		all[i] = countRows(b, p.copy, t.name) * templateTasks / int64(len(t.rows))
	}
	return all
}

// slice measures one slice and stops the server. It fails if the purge was not at work from its
// beginning to its end: if no table became smaller and still has rows of the history.
func (p *purge) slice(b *testing.B) pace {
	b.Helper()
	before, done := p.rows(b), p.done.Load()
	measured := p.trips.run(b)
	after, total := p.rows(b), p.done.Load()
	p.end(b)
	active := false
	for i := range after {
		active = active || after[i] < before[i]+total-done && after[i] > total
	}
	require.True(b, active, "nothing was purged in a slice, or everything before its end; a larger COMET_BENCH_HISTORY makes the purge longer: %d, then %d rows", before, after)
	return measured
}
