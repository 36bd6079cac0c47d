package webhooks

import (
	"sync"
	"sync/atomic"
	"time"

	"comet/models"
)

// job is a delivery in the hands of a runner.
type job struct {
	hook     *models.Webhook
	delivery models.Delivery
}

// runners make the attempts of one worker, side by side. They take deliveries and put
// down results without its help, which costs less than asking it each time.
type runners struct {
	jobs    chan job
	crew    sync.WaitGroup
	size    int          // how many there are
	halt    atomic.Bool  // bring back what is not begun
	until   atomic.Int64 // the end of the lease
	arrived chan struct{}

	mu        sync.Mutex
	results   []result
	collected time.Time
}

// hand gives a delivery to the runners, of whom there are as many as are needed.
func (r *runners) hand(k *worker, j job) {
	if r.size < min(k.flying, k.opts.Concurrency) {
		r.size++
		r.crew.Go(func() { r.runner(k) })
	}
	r.jobs <- j
}

func (r *runners) runner(k *worker) {
	for j := range r.jobs {
		out := result{hook: j.hook, delivery: j.delivery, skipped: true}
		if r.mayBegin(k) && k.takeSlot(k.ctx, k.lease) {
			if r.mayBegin(k) { // it may have waited for long
				out.skipped, out.outcome = false, k.attempt(k.work, *j.hook, j.delivery)
				if !out.succeeded {
					r.halt.Store(true)
				}
			}
			k.leaveSlot()
		}
		if r.put(out) > gather || len(r.jobs) <= k.opts.Concurrency || r.halt.Load() {
			signal(r.arrived)
		}
	}
}

// mayBegin reports whether the next delivery is still to be sent.
func (r *runners) mayBegin(k *worker) bool {
	return !r.halt.Load() && !k.outdated.Load() && k.ctx.Err() == nil && k.inTime()
}

// put puts down a result and returns for how long nobody has collected any.
func (r *runners) put(out result) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.results = append(r.results, out)
	return time.Since(r.collected)
}

// collect takes what the runners have put down.
func (r *runners) collect() []result {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.results
	r.results, r.collected = nil, time.Now()
	return out
}

// dismiss ends the runners, which have nothing to do any more.
func (r *runners) dismiss() {
	close(r.jobs)
	r.crew.Wait()
}
