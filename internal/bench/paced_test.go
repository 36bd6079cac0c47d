package bench

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const pacedTime = 500 * time.Millisecond

// BenchmarkRoundTrip measures the round trip of BenchmarkTask at fixed rates, which leave the
// processors idle for a part of the time, against the bare server at the same rates.
func BenchmarkRoundTrip(b *testing.B) {
	b.Run(sqlite, func(b *testing.B) {
		comet, plain := startComet(b, newStorage(b, sqlite), nil), startBareServer(b, sqlite)
		startEnvelopeWorkers(b, comet)
		var all []latencies
		var ratios []figure
		for _, rate := range []int{100, 500, 1000} {
			ours, theirs := pacedTrips(b, comet.addr), pacedTrips(b, plain.addr)
			b.Run(fmt.Sprint(rate), func(b *testing.B) {
				r := rates{}
				for b.Loop() {
					r[inEnvelopes] = append(r[inEnvelopes], paced(b, rate, ours))
					r[bare] = append(r[bare], paced(b, rate, theirs))
				}
				for _, name := range []string{inEnvelopes, bare} {
					all = append(all, latencies{what: fmt.Sprintf("%d a second", rate), subject: name, callers: pacedCallers, rate: r.rate(name), median: r.latency(name, .5), high: r.latency(name, .99), cpu: r.cpu(name)})
				}
				ratio := r.latency(inEnvelopes, .5) / r.latency(bare, .5)
				b.ReportMetric(ratio, "of_bare_p50")
				ratios = append(ratios, figure{what: fmt.Sprintf("median of %d a second, envelopes over bare server", rate), value: ratio})
			})
		}
		printLatencies(os.Stdout, "Round trips at a fixed rate, SQLite.", all)
		printFigures(os.Stdout, "The same, medians as ratios.", ratios)
	})
}

// pacedCallers is the most calls in flight at a fixed rate.
const pacedCallers = 512

// pacedTrips returns one round trip, over one of pacedCallers connections.
func pacedTrips(b *testing.B, addr string) func() error {
	b.Helper()
	s := envelopeRoundTrips(b, "", addr, pacedCallers)
	idle := make(chan int, pacedCallers)
	for c := range pacedCallers {
		idle <- c
	}
	return func() error {
		c := <-idle
		defer func() { idle <- c }()
		return s.do(c, 0)
	}
}

// paced calls do at a fixed rate, independent of the completion of earlier calls.
func paced(b *testing.B, rate int, do func() error) pace {
	b.Helper()
	n := int(pacedTime.Seconds() * float64(rate))
	took := make([]time.Duration, n)
	var failed atomic.Pointer[error]
	var running sync.WaitGroup
	begun, cpu := time.Now(), processorTime()
	for i := range n {
		due := begun.Add(time.Duration(i) * time.Second / time.Duration(rate))
		if early := time.Until(due); early > 0 {
			<-time.After(early)
		}
		running.Go(func() {
			if err := do(); err != nil {
				failed.Store(&err)
			}
			took[i] = time.Since(due)
		})
	}
	running.Wait()
	if err := failed.Load(); err != nil {
		require.NoError(b, *err)
	}
	total := time.Since(begun)
	cpu = processorTime() - cpu
	slices.Sort(took)
	return pace{rate: float64(n) / total.Seconds(), cpu: cpu.Seconds() / float64(n), took: took}
}
