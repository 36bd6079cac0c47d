package webhooks

import (
	"sync"
	"sync/atomic"
	"time"

	"comet/internal/background"
)

// runners make the attempts of one worker in parallel. They take deliveries and store results
// without waking the worker each time, which is cheaper.
type runners struct {
	jobs  chan job
	crew  sync.WaitGroup
	size  int          // number of runners
	halt  atomic.Bool  // return deliveries that have not begun
	until atomic.Int64 // end of the lease

	mu        sync.Mutex
	results   []result
	collected time.Time
}

// submit gives a delivery to the runners and starts another runner if needed.
func (r *runners) submit(k *worker, j job) {
	if r.size < min(k.inFlight, k.opts.Concurrency) {
		r.size++
		r.crew.Go(func() { r.runner(k) })
	}
	r.jobs <- j
}

func (r *runners) runner(k *worker) {
	for j := range r.jobs {
		out := result{job: j, skipped: true}
		if r.mayBegin(k, j) && background.AcquireWithin(k.ctx, k.attempts, k.lease) == nil {
			if r.mayBegin(k, j) { // it may have waited for long
				out.skipped, out.attemptResult = false, k.makeAttempt(k.work, *j.hook, j.delivery)
				if !out.succeeded {
					r.halt.Store(true)
				}
			}
			k.attempts.Release(1)
		}
		if r.addResult(out) > gather || len(r.jobs) <= k.opts.Concurrency || r.halt.Load() {
			k.wake.Set()
		}
	}
}

// mayBegin reports whether a delivery may still be sent.
func (r *runners) mayBegin(k *worker, j job) bool {
	return !r.halt.Load() && !k.outdated.Load() && k.ctx.Err() == nil && k.fitsLease(j.hook)
}

// addResult adds a result and returns how long results have not been collected.
func (r *runners) addResult(out result) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.results = append(r.results, out)
	return time.Since(r.collected)
}

func (r *runners) collect() []result {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.results
	r.results, r.collected = nil, time.Now()
	return out
}
