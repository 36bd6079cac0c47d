package bench

import (
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A slice is how long one subject runs before the next. Slices of writers are long enough for
// dozens of commits.
const (
	readSlice  = 120 * time.Millisecond
	writeSlice = 400 * time.Millisecond
)

// subject is one side of a comparison. Each of its callers calls do repeatedly; turn counts a
// caller's calls over the whole benchmark.
type subject struct {
	name    string
	callers int
	slice   time.Duration
	do      func(caller, turn int) error

	// timed records the duration of each call.
	timed bool
	// cpu returns the processor time of a process that works for the subject, nil for none.
	cpu func() time.Duration

	// For work in batches, prepare sets up and batch does one slice and returns the number of
	// operations.
	prepare func(b *testing.B)
	batch   func(b *testing.B) int
	// measure does one slice where the subject measures itself.
	measure func(b *testing.B) pace

	turns []int
	took  [][]time.Duration // by caller, of the last slice
}

// pace is the result of a subject in one slice: calls per second, and processor time per call in
// seconds, including the callers and the process of the subject. Processor time depends little on the load of the machine.
type pace struct {
	rate, cpu float64
	took      []time.Duration // of each call if the subject is timed, sorted
}

// run runs the subject for one slice.
func (s *subject) run(b *testing.B) pace {
	b.Helper()
	if s.prepare != nil {
		s.prepare(b)
	}
	if s.measure != nil {
		return s.measure(b)
	}
	runtime.GC() // start without garbage of the previous subject
	start, cpu := time.Now(), s.processorTime()
	total := 0
	if s.batch != nil {
		total = s.batch(b)
	} else {
		total = s.together(b)
	}
	took := time.Since(start)
	cpu = s.processorTime() - cpu
	require.Positive(b, total, "%s did nothing", s.name)
	return pace{rate: float64(total) / took.Seconds(), cpu: cpu.Seconds() / float64(total), took: slices.Sorted(slices.Values(slices.Concat(s.took...)))}
}

func (s *subject) processorTime() time.Duration {
	if s.cpu == nil {
		return processorTime()
	}
	return processorTime() + s.cpu()
}

// together runs all callers for one slice and returns the number of calls.
func (s *subject) together(b *testing.B) (total int) {
	b.Helper()
	if s.turns == nil {
		s.turns = make([]int, s.callers)
		s.took = make([][]time.Duration, s.callers)
	}
	var wg sync.WaitGroup
	counts, failures := make([]int, s.callers), make([]error, s.callers)
	end := time.Now().Add(s.slice)
	for c := range s.callers {
		s.took[c] = s.took[c][:0]
		wg.Go(func() {
			for now := time.Now(); now.Before(end); {
				if failures[c] = s.do(c, s.turns[c]); failures[c] != nil {
					return
				}
				begun := now
				if now = time.Now(); s.timed {
					s.took[c] = append(s.took[c], now.Sub(begun))
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

// rates holds the pace of each subject in each round.
type rates map[string][]pace

// alternate runs the subjects in turn for b.N rounds; each round starts with a different one.
func alternate(b *testing.B, subjects []*subject) rates {
	b.Helper()
	for _, s := range subjects { // fills connections, caches and plans
		s.run(b)
	}
	all := rates{}
	for round := 0; b.Loop(); round++ {
		for i := range subjects {
			s := subjects[(round+i)%len(subjects)]
			all[s.name] = append(all[s.name], s.run(b))
		}
	}
	return all
}

// ratio returns the median over the rounds of a's rate over b's, with the first and third quartile.
func (p rates) ratio(a, b string) (median, low, high float64) {
	return quartiles(func(i int) float64 { return p[a][i].rate / p[b][i].rate }, len(p[a]))
}

// saving returns the median over the rounds of b's processor time over a's.
func (p rates) saving(a, b string) float64 {
	median, _, _ := quartiles(func(i int) float64 { return p[b][i].cpu / p[a][i].cpu }, len(p[a]))
	return median
}

// rate returns the median rate of a subject.
func (p rates) rate(name string) float64 {
	median, _, _ := quartiles(func(i int) float64 { return p[name][i].rate }, len(p[name]))
	return median
}

// cpu returns the median processor time per call of a subject, in microseconds.
func (p rates) cpu(name string) float64 {
	median, _, _ := quartiles(func(i int) float64 { return p[name][i].cpu * 1e6 }, len(p[name]))
	return median
}

// latency returns the median over the rounds of a quantile of the durations of a subject's calls,
// in milliseconds; 0 if the subject is not timed.
func (p rates) latency(name string, quantile float64) float64 {
	median, _, _ := quartiles(func(i int) float64 {
		took := p[name][i].took
		if len(took) == 0 {
			return 0
		}
		return took[int(float64(len(took)-1)*quantile)].Seconds() * 1e3
	}, len(p[name]))
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

// at returns a quantile of durations.
func at(all []time.Duration, part float64) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[int(float64(len(sorted)-1)*part)].Round(time.Microsecond)
}
