package bench

import (
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A slice is how long one subject runs before the next has its turn. Where it
// writes, the slice is long enough for dozens of commits.
const (
	readSlice  = 120 * time.Millisecond
	writeSlice = 400 * time.Millisecond
)

// subject is something whose rate is measured. Each of its callers calls do
// again and again; turn counts a caller's calls over the whole benchmark.
type subject struct {
	name    string
	callers int
	slice   time.Duration
	do      func(caller, turn int) error

	// Where work has to be done at a stretch, prepare makes it ready and batch does it,
	// a slice a call, and returns how much it was.
	prepare func(b *testing.B)
	batch   func(b *testing.B) int

	turns []int
}

// pace is what a subject reached in one slice: calls completed a second, and
// processor time a call in seconds, the callers' share included. The latter
// hardly minds who else is working on the machine.
type pace struct{ rate, cpu float64 }

// run lets the subject work for one slice.
func (s *subject) run(b *testing.B) pace {
	b.Helper()
	if s.prepare != nil {
		s.prepare(b)
	}
	runtime.GC() // nobody pays for the garbage of the one before
	start, cpu := time.Now(), processorTime()
	total := 0
	if s.batch != nil {
		total = s.batch(b)
	} else {
		total = s.together(b)
	}
	took := time.Since(start)
	cpu = processorTime() - cpu
	return pace{rate: float64(total) / took.Seconds(), cpu: cpu.Seconds() / float64(total)}
}

// together lets every caller work for the time of a slice and returns how many calls
// they made.
func (s *subject) together(b *testing.B) (total int) {
	b.Helper()
	if s.turns == nil {
		s.turns = make([]int, s.callers)
	}
	var wg sync.WaitGroup
	counts, failures := make([]int, s.callers), make([]error, s.callers)
	end := time.Now().Add(s.slice)
	for c := range s.callers {
		wg.Go(func() {
			for time.Now().Before(end) {
				if failures[c] = s.do(c, s.turns[c]); failures[c] != nil {
					return
				}
				s.turns[c]++
				counts[c]++
			}
		})
	}
	wg.Wait()
	for _, err := range failures {
		require.NoError(b, err, s.name)
	}
	for _, n := range counts {
		total += n
	}
	return total
}

// paces are what every subject reached in each round.
type paces map[string][]pace

// alternate runs the subjects by turns, b.N rounds of them, each round beginning
// with another one.
func alternate(b *testing.B, subjects []*subject) paces {
	b.Helper()
	for _, s := range subjects { // connections, caches and the statements' plans
		s.run(b)
	}
	all := paces{}
	for round := 0; b.Loop(); round++ {
		for i := range subjects {
			s := subjects[(round+i)%len(subjects)]
			all[s.name] = append(all[s.name], s.run(b))
		}
	}
	return all
}

// ratio is the median over the rounds of a's rate over b's, with the first and
// the third quartile.
func (p paces) ratio(a, b string) (median, low, high float64) {
	return quartiles(func(i int) float64 { return p[a][i].rate / p[b][i].rate }, len(p[a]))
}

// saving is the median over the rounds of b's processor time over a's.
func (p paces) saving(a, b string) float64 {
	median, _, _ := quartiles(func(i int) float64 { return p[b][i].cpu / p[a][i].cpu }, len(p[a]))
	return median
}

// rate is the median rate of a subject.
func (p paces) rate(name string) float64 {
	median, _, _ := quartiles(func(i int) float64 { return p[name][i].rate }, len(p[name]))
	return median
}

// cpu is the median processor time a call of a subject, in microseconds.
func (p paces) cpu(name string) float64 {
	median, _, _ := quartiles(func(i int) float64 { return p[name][i].cpu * 1e6 }, len(p[name]))
	return median
}

func quartiles(value func(round int) float64, rounds int) (median, low, high float64) {
	all := make([]float64, rounds)
	for i := range all {
		all[i] = value(i)
	}
	slices.Sort(all)
	return all[rounds/2], all[rounds/4], all[rounds*3/4]
}
