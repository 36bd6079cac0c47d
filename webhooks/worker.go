package webhooks

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"

	"comet/internal/background"
	"comet/internal/errs"
	"comet/models"
	"comet/store"
)

const (
	// pageSize is how many due deliveries of a healthy webhook a worker reads at once; of a
	// failing one it reads pagesAhead times as many as it may start.
	pageSize   = 256
	pagesAhead = 4
	// queuedPerAttempt is how many deliveries per parallel attempt are queued for the runners of a healthy
	// webhook, so that they do not wait for the worker.
	queuedPerAttempt = 4
	// groupSize and gather limit how many results wait, and for how long, to be stored together;
	// storing each separately costs more than delivering.
	groupSize = 256
	gather    = 10 * time.Millisecond
	// maxUnstored is the number of unstored results at which no attempt starts; a kill repeats these attempts.
	maxUnstored = 512
	// maxPageAge is how long a page is used, and so how long another replica's change may go unnoticed.
	maxPageAge = 250 * time.Millisecond
	// storeTimeout limits one transaction.
	storeTimeout = 30 * time.Second
)

// worker delivers to one webhook that this replica has leased, until nothing is due. Its fields
// belong to the goroutine of run, except the last ones. Every event for run sets wake; only
// the end of a transaction has a channel of its own.
//
// A delivery is busy from its submission to a runner until its result is stored; no second
// attempt starts meanwhile. The same goroutine reads pages and clears busy, so it never reads a
// delivery whose result is just being stored.
type worker struct {
	*Webhooks
	ctx  context.Context // start nothing more when it ends
	hook *models.Webhook // never changed, only replaced

	page        []models.Delivery // read, not submitted
	pageEnd     store.DueCursor   // where the page ends
	pageReadAt  time.Time         // when the page was read
	more        bool              // there may be due deliveries that are not in page
	busy        map[string]bool
	inFlight    int  // deliveries submitted to the runners
	maxAttempts int  // limit of parallel attempts
	stopping    bool // start nothing more

	unstored []result // results that are not stored
	saving   int      // results that are being stored
	saved    chan saveResult
	flushAt  time.Time // when unstored results have waited long enough; zero if none waits
	retryAt  time.Time // when to ask a failing database again
	backoff  *backoff.ExponentialBackOff

	wake     background.Signal
	due      atomic.Bool // there may be more due deliveries
	outdated atomic.Bool // the webhook was changed
	runners
}

func newWorker(w *Webhooks, hook models.Webhook, until time.Time) *worker {
	k := &worker{
		Webhooks: w, hook: &hook, more: true, maxAttempts: 1, busy: map[string]bool{}, backoff: background.NewBackoff(background.MaxBackoff),
		wake: background.NewSignal(), saved: make(chan saveResult, 1), runners: runners{jobs: make(chan job, queuedPerAttempt*w.opts.Concurrency)},
	}
	k.until.Store(until.UnixMicro())
	return k
}

// run delivers until nothing is due for some time, the lease is lost, or ctx and attempts end.
func (k *worker) run(ctx context.Context) {
	k.ctx = ctx
	defer k.release()
	defer k.crew.Wait()
	defer close(k.jobs)
	defer context.AfterFunc(ctx, k.wake.Set)()
	defer context.AfterFunc(k.work, k.wake.Set)()
	for {
		for _, r := range k.collect() {
			k.collectResult(r)
		}
		k.more = k.due.Swap(false) || k.more
		k.startAttempts()
		k.save()
		if k.idle() {
			if k.stopping || !k.waitForMore() {
				return
			}
			continue
		}
		select {
		case <-k.wake:
		case s := <-k.saved:
			k.finishSave(s)
		}
	}
}

// wakeAfter wakes the worker after d and returns that time.
func (k *worker) wakeAfter(d time.Duration) time.Time {
	at := time.Now().Add(d)
	time.AfterFunc(d, k.wake.Set)
	return at
}

func (k *worker) idle() bool {
	return k.inFlight == 0 && k.saving == 0 && len(k.unstored) == 0 && len(k.page) == 0 && !k.more
}

// backsOff reports whether the worker waits before it uses a failing database again.
func (k *worker) backsOff() bool { return time.Now().Before(k.retryAt) && k.work.Err() == nil }

// waitForMore waits for more deliveries, so that a slow stream of events does not need a lease for each.
func (k *worker) waitForMore() bool {
	timeout := time.After(k.opts.Poll)
	for !k.due.Load() {
		select {
		case <-k.wake:
		case <-timeout:
			return false
		case <-k.ctx.Done():
			return false
		}
	}
	return k.ctx.Err() == nil
}

// startAttempts submits as many deliveries to the runners as allowed.
func (k *worker) startAttempts() {
	for {
		if k.stopping || k.ctx.Err() != nil {
			k.halt.Store(true)
			k.page, k.more = nil, false
			return
		}
		k.refresh()
		if k.inFlight == 0 {
			k.halt.Store(false)
		}
		if k.halt.Load() || k.backsOff() || k.inFlight >= k.allowed() || len(k.unstored)+k.saving >= maxUnstored {
			return
		}
		switch {
		case len(k.page) == 0 && !k.more:
			return
		case len(k.page) == 0:
			k.load()
		case k.renewLease():
			d := k.page[0]
			k.page = k.page[1:]
			k.busy[d.ID] = true
			k.inFlight++
			k.submit(k, job{k.hook, d})
		case !k.stopping: // the lease is lost if the worker is stopping
			return
		}
	}
}

// refresh drops a page that may be outdated; after a change runners return deliveries.
func (k *worker) refresh() {
	changed := k.outdated.Load()
	if changed {
		k.halt.Store(true)
		k.outdated.Store(false)
	}
	if changed || len(k.page) > 0 && time.Since(k.pageReadAt) > maxPageAge {
		k.page, k.more, k.pageEnd = nil, true, store.DueCursor{}
	}
}

// allowed returns how many deliveries may be with the runners: as many as parallel attempts while
// the webhook recovers, which starts with one.
func (k *worker) allowed() int {
	if k.maxAttempts == k.opts.Concurrency {
		return queuedPerAttempt * k.maxAttempts
	}
	return k.maxAttempts
}

// pageSize returns how many deliveries to read: few for a webhook that hangs.
func (k *worker) pageSize() int {
	if k.maxAttempts == k.opts.Concurrency {
		return pageSize
	}
	return min(pageSize, pagesAhead*k.maxAttempts)
}

// load reads the webhook and a page of due deliveries.
func (k *worker) load() {
	hook, err := k.store.Webhooks(k.ctx).Get(k.hook.ID)
	if errs.Is(err, errs.NotFound) || err == nil && !hook.Enabled {
		k.stopping = true
		return
	}
	if err != nil {
		k.backOff(k.ctx, err)
		return
	}
	limit := k.pageSize()
	if k.pageEnd == (store.DueCursor{}) {
		limit += len(k.busy)
	}
	due, place, err := k.store.Deliveries(k.ctx).Due(hook.ID, k.store.Now(), k.pageEnd, limit)
	if err != nil {
		k.backOff(k.ctx, err)
		return
	}
	k.hook, k.pageReadAt, k.pageEnd, k.more = &hook, time.Now(), place, len(due) == limit
	if !k.more || hook.Ordering == models.OrderingAgent { // promoted deliveries were due long ago
		k.pageEnd = store.DueCursor{}
	}
	for _, d := range due {
		if !k.busy[d.ID] {
			k.page = append(k.page, d)
		}
	}
}

// collectResult processes a result of a runner. One failure reduces the webhook to one attempt at a time.
func (k *worker) collectResult(r result) {
	k.inFlight--
	if r.skipped || k.work.Err() != nil && !r.succeeded { // not started, or cancelled by this process
		delete(k.busy, r.delivery.ID)
		k.more, k.pageEnd = true, store.DueCursor{}
		return
	}
	k.unstored = append(k.unstored, r)
	k.stopping = k.stopping || r.gone
	if r.succeeded {
		k.maxAttempts = min(2*k.maxAttempts, k.opts.Concurrency)
		return
	}
	k.maxAttempts = 1
	if len(k.page) > k.pageSize() { // do not keep it while the next attempt hangs
		k.page, k.more, k.pageEnd = nil, true, store.DueCursor{}
	}
}
