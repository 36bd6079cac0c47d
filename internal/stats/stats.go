// Package stats computes how much work was done in a window of time, and how long it took, in steps. Steps that are over
// do not change, so they are computed once and kept; a request reads only the rows of the last steps.
package stats

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/singleflight"

	"comet/store"
	rows "comet/store/stats"
)

const (
	// fresh is how long a cached result is returned.
	fresh = 2 * time.Second
	// settled is how long after its end a step is final: its last rows may be committed late.
	settled = time.Minute
	// maxDurations is how many durations one computation reads, the newest; maxSample how many of a step are kept.
	maxDurations, maxSample = 20_000, 200
	// longest is the maximum time of a computation.
	longest = 30 * time.Second
	// maxViews is how many combinations of window and filter are kept.
	maxViews = 256
)

// Window is a length of time up to now, in steps.
type Window struct {
	Name         string
	Length, Step time.Duration
}

// Windows are the windows that can be requested.
func Windows() []Window {
	return []Window{{"1h", time.Hour, time.Minute}, {"24h", 24 * time.Hour, time.Hour}, {"7d", 7 * 24 * time.Hour, time.Hour}}
}

// Filter selects whose work is counted.
type Filter struct {
	// Root limits tasks, workers and tokens to an agent and the agents below it, "" for all.
	Root string
	// Token limits tool calls and workflows to those of one token, "" for all. Set it only if the reader may see tool calls, so
	// that other readers share their results.
	Token string
}

// Step is the work in one step.
type Step struct {
	At                                                        time.Time
	TasksCreated, TasksCompleted, TasksFailed, TasksCancelled int64
	ToolCalls, ToolFailures, Tokens                           int64
	TaskDurations, CallDurations                              Durations
}

// Durations are the sorted durations of a step, in microseconds: all, or an even selection of them.
type Durations struct {
	sample []int64
	count  int64
}

// Result is the work in a window.
type Result struct {
	Window   Window
	From, To time.Time
	Steps    []Step
	// Now has the number of tasks, workers, workflows and agents by their state.
	Now map[string]int64
}

// Stats computes results. It is safe for concurrent use.
type Stats struct {
	store     *store.Store
	views     *lru.Cache[key, *view]
	computing singleflight.Group // by the key of the view

	work    context.Context // of the computations
	cancel  context.CancelFunc
	running sync.RWMutex // computations hold a read lock
}

type key struct {
	window string
	filter Filter
}

// view has the final steps of one window and filter, and the last result. Only one computation at a time uses it.
type view struct {
	final map[int64]Step
	last  Result
	at    time.Time
}

// New returns a Stats on the store.
func New(s *store.Store) *Stats {
	views, _ := lru.New[key, *view](maxViews) // New fails only for a size below 1
	work, cancel := context.WithCancel(context.Background())
	return &Stats{store: s, views: views, work: work, cancel: cancel}
}

// Start implements background.Service; there is nothing to start.
func (s *Stats) Start(context.Context) error { return nil }

// Stop implements background.Service. It cancels the computations and waits for their end, whatever ctx says.
func (s *Stats) Stop(context.Context) error {
	s.cancel()
	s.running.Lock()
	defer s.running.Unlock()
	return nil
}

// Get returns the work in a window. Requests for the same window and filter share one computation every two seconds. It
// continues even if the request that started it ends, and ends with Stop.
func (s *Stats) Get(ctx context.Context, w Window, f Filter) (Result, error) {
	computed := s.computing.DoChan(fmt.Sprintf("%q", []string{w.Name, f.Root, f.Token}), func() (out any, err error) {
		defer func() { // it runs in a goroutine of its own, where a panic would end the process
			if p := recover(); p != nil {
				out, err = Result{}, fmt.Errorf("computing statistics: panic: %v\n%s", p, debug.Stack())
			}
		}()
		s.running.RLock()
		defer s.running.RUnlock()
		ctx, cancel := context.WithTimeout(s.work, longest)
		defer cancel()
		return s.current(ctx, w, f)
	})
	select {
	case <-ctx.Done():
		return Result{}, ctx.Err()
	case r := <-computed:
		return r.Val.(Result), r.Err
	}
}

// current returns the last result, or computes a new one.
func (s *Stats) current(ctx context.Context, w Window, f Filter) (Result, error) {
	v, ok := s.views.Get(key{w.Name, f})
	if !ok {
		v = &view{final: map[int64]Step{}}
		s.views.Add(key{w.Name, f}, v)
	}
	now := s.store.Now()
	if age := now.Sub(v.at); age >= 0 && age < fresh {
		return v.last, nil
	}
	r, err := s.compute(ctx, v, w, f, now)
	if err == nil {
		v.last, v.at = r, s.store.Now()
	}
	return r, err
}

// compute reads the steps that are not final, and keeps those that are now.
func (s *Stats) compute(ctx context.Context, v *view, w Window, f Filter, now time.Time) (Result, error) {
	width := w.Step.Microseconds()
	last := now.UnixMicro() / width
	first := last - int64(w.Length/w.Step) + 1
	from := first
	for ; from < last; from++ {
		if _, ok := v.final[from]; !ok {
			break
		}
	}
	at := func(step int64) time.Time { return time.UnixMicro(step * width).UTC() }
	fresh, open, err := s.read(ctx, rows.Query{From: at(from), To: now.Add(time.Microsecond), Step: w.Step, Root: f.Root, Token: f.Token})
	if err != nil {
		return Result{}, err
	}
	r := Result{Window: w, From: at(first), To: now, Now: open}
	for step := first; step <= last; step++ {
		value, ok := v.final[step]
		if !ok {
			value = fresh[step]
			if now.Sub(at(step+1)) >= settled {
				v.final[step] = value
			}
		}
		value.At = at(step)
		r.Steps = append(r.Steps, value)
	}
	for step := range v.final {
		if step < first || step >= last { // the clock may have been set back
			delete(v.final, step)
		}
	}
	return r, nil
}

// read returns the steps of a query by their number, and what is in progress.
func (s *Stats) read(ctx context.Context, q rows.Query) (map[int64]Step, map[string]int64, error) {
	steps, open := map[int64]Step{}, map[string]int64{}
	add := func(counts []rows.Count, err error, count func(*Step, rows.Count)) error {
		for _, c := range counts {
			step := steps[c.Step]
			count(&step, c)
			steps[c.Step] = step
		}
		return err
	}
	durations := func(list []rows.Duration, err error, of func(*Step) *Durations) error {
		bySteps := map[int64][]int64{}
		for _, d := range list {
			bySteps[d.Step] = append(bySteps[d.Step], d.Micros)
		}
		for number, values := range bySteps {
			step := steps[number]
			*of(&step) = newDurations(values)
			steps[number] = step
		}
		return err
	}
	err := s.store.Snapshot(ctx, func(from store.Source) error {
		created, err := rows.Created(from, q)
		if err = add(created, err, func(s *Step, c rows.Count) { s.TasksCreated = c.Count }); err != nil {
			return err
		}
		ended, err := rows.Ended(from, q)
		if err = add(ended, err, countEnded); err != nil {
			return err
		}
		calls, err := rows.Calls(from, q)
		if err = add(calls, err, countCalls); err != nil {
			return err
		}
		tokens, err := rows.Tokens(from, q)
		if err = add(tokens, err, func(s *Step, c rows.Count) { s.Tokens = c.Count }); err != nil {
			return err
		}
		took, err := rows.TaskDurations(from, q, maxDurations)
		if err = durations(took, err, func(s *Step) *Durations { return &s.TaskDurations }); err != nil {
			return err
		}
		took, err = rows.CallDurations(from, q, maxDurations)
		if err = durations(took, err, func(s *Step) *Durations { return &s.CallDurations }); err != nil {
			return err
		}
		now, err := rows.Open(from, q.Root, q.Token)
		for _, c := range now {
			open[c.Kind] = c.Count
		}
		return err
	})
	return steps, open, err
}

func countEnded(s *Step, c rows.Count) {
	switch c.Kind {
	case "completed":
		s.TasksCompleted = c.Count
	case "failed":
		s.TasksFailed = c.Count
	default:
		s.TasksCancelled = c.Count
	}
}

func countCalls(s *Step, c rows.Count) {
	s.ToolCalls += c.Count
	if c.Kind != "success" {
		s.ToolFailures += c.Count
	}
}

// newDurations returns the durations of a step, of which it keeps at most maxSample.
func newDurations(micros []int64) Durations {
	slices.Sort(micros)
	n := len(micros)
	if n <= maxSample {
		return Durations{micros, int64(n)}
	}
	d := Durations{make([]int64, maxSample), int64(n)}
	for i := range d.sample {
		d.sample[i] = micros[i*(n-1)/(maxSample-1)]
	}
	return d
}

// Percentile returns the duration in milliseconds that a share of the durations of steps does not exceed, nil without any.
func Percentile(share float64, of ...Durations) *float64 {
	type weighted struct {
		micros int64
		weight float64
	}
	var all []weighted
	total := 0.0
	for _, d := range of {
		for _, micros := range d.sample {
			weight := float64(d.count) / float64(len(d.sample))
			all, total = append(all, weighted{micros, weight}), total+weight
		}
	}
	slices.SortFunc(all, func(a, b weighted) int { return int(min(max(a.micros-b.micros, -1), 1)) })
	sum := 0.0
	for _, w := range all {
		if sum += w.weight; sum >= share*total-1e-9 {
			return new(float64(w.micros) / 1000)
		}
	}
	return nil
}

// Below returns how many agents are directly below agents, and how many are below them in all, by their ids.
func (s *Stats) Below(ctx context.Context, ids []string) (children, descendants map[string]int, err error) {
	return rows.Below(s.store.Reads(ctx), ids)
}

// Use is what an agent and the agents below it use today.
type Use = rows.Use

// Usage returns what agents use today, by their ids.
func (s *Stats) Usage(ctx context.Context, ids []string) (map[string]Use, error) {
	list, err := rows.Usage(s.store.Reads(ctx), ids, s.store.Now())
	out := make(map[string]Use, len(list))
	for _, u := range list {
		out[u.ID] = u
	}
	return out, err
}
