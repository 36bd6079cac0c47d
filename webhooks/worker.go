package webhooks

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"

	"comet/models"
	"comet/store"
)

const (
	// pageSize is how many due deliveries of a webhook that works a worker reads at once;
	// of one that has to prove itself it reads pagesAhead times as many as it may begin.
	pageSize   = 256
	pagesAhead = 4
	// ahead is how many times as many deliveries are handed to the runners of a webhook
	// that works as they can make attempts at, so that they do not wait for the worker.
	ahead = 4
	// groupSize and gather bound how many results, and for how long, wait to be stored
	// together; storing each by itself costs more than delivering.
	groupSize = 256
	gather    = 10 * time.Millisecond
	// maxUnstored is how many results may wait to be stored while more attempts begin:
	// so many deliveries are made again when the process is killed.
	maxUnstored = 512
	// freshness is for how long a page is believed: so long what another replica changed
	// about the webhook may go unnoticed.
	freshness = 250 * time.Millisecond
	// storeTimeout is for one transaction.
	storeTimeout = 30 * time.Second
)

// worker delivers to one webhook, which this replica has leased, until nothing is due
// any more. Its fields belong to the goroutine of run, but for those at the end.
//
// A delivery is busy from its being handed to a runner until its result is stored, and
// no second attempt is begun meanwhile. Reading a page and forgetting that a delivery
// is busy are the same goroutine's, so none is read in between that is just stored.
type worker struct {
	*Webhooks
	ctx  context.Context // begin nothing more when it ends
	hook *models.Webhook // never changed, only replaced

	page   []models.Delivery // read, not handed out
	place  store.DuePlace    // where it ends
	read   time.Time         // when it was
	more   bool              // there may be due deliveries that are not in page
	busy   map[string]bool
	flying int  // deliveries that are with the runners
	width  int  // how many attempts there may be at the same time
	over   bool // begin nothing more

	ended   []result // not stored
	saving  int      // results that are being stored
	saved   chan saved
	flush   <-chan time.Time // when results have waited for long enough
	flushed bool

	retry   <-chan time.Time // when to ask the database again that has failed
	backoff *backoff.ExponentialBackOff

	wake     chan struct{} // there may be more to do
	outdated atomic.Bool   // the webhook is not what it was
	runners
}

func newWorker(w *Webhooks, hook models.Webhook, until time.Time) *worker {
	k := &worker{
		Webhooks: w, hook: &hook, more: true, width: 1, busy: map[string]bool{}, backoff: newBackoff(),
		wake: make(chan struct{}, 1), saved: make(chan saved, 1),
		runners: runners{jobs: make(chan job, ahead*w.opts.Concurrency), arrived: make(chan struct{}, 1)},
	}
	k.until.Store(until.UnixMicro())
	return k
}

// run delivers until there is nothing to do for some time, the webhook is not this
// replica's any more, or ctx ends; it waits for the attempts that are being made.
func (k *worker) run(ctx context.Context) {
	k.ctx = ctx
	defer k.release()
	defer k.dismiss()
	stop := ctx.Done()
	for {
		k.begin()
		k.save()
		if k.idle() {
			if k.over || !k.linger() {
				return
			}
			continue
		}
		select {
		case <-k.arrived:
			for _, r := range k.collect() {
				k.take(r)
			}
		case s := <-k.saved:
			k.keep(s)
		case <-k.wake:
			k.more = true
		case <-k.flush:
			k.flush, k.flushed = nil, true
		case <-k.retry:
			k.retry = nil
		case <-k.hurry():
			k.retry = nil
		case <-stop:
			stop = nil
		}
	}
}

// hurry ends a wait for the database when the worker is to end.
func (k *worker) hurry() <-chan struct{} {
	if k.retry == nil {
		return nil
	}
	return k.work.Done()
}

func (k *worker) idle() bool {
	return k.flying == 0 && k.saving == 0 && len(k.ended) == 0 && len(k.page) == 0 && !k.more && k.retry == nil
}

// linger waits for more to do, which saves leasing the webhook for each event of a
// slow stream.
func (k *worker) linger() bool {
	t := time.NewTimer(k.opts.Poll)
	defer t.Stop()
	select {
	case <-k.wake:
		k.more = k.ctx.Err() == nil
		return k.more
	case <-t.C:
	case <-k.ctx.Done():
	}
	return false
}

// begin hands as many deliveries to the runners as there may be.
func (k *worker) begin() {
	for {
		if k.over || k.ctx.Err() != nil {
			k.halt.Store(true)
			k.page, k.more = nil, false
			return
		}
		k.refresh()
		if k.flying == 0 {
			k.halt.Store(false)
		}
		if k.halt.Load() || k.retry != nil || k.flying >= k.allowed() || len(k.ended)+k.saving >= maxUnstored {
			return
		}
		switch {
		case len(k.page) == 0 && !k.more:
			return
		case len(k.page) == 0:
			k.load()
		case k.leased():
			d := k.page[0]
			k.page = k.page[1:]
			k.busy[d.ID] = true
			k.flying++
			k.hand(k, job{k.hook, d})
		default:
			return
		}
	}
}

// refresh drops a page that may not be true any more, and has the runners bring back
// what they have of a webhook that has changed.
func (k *worker) refresh() {
	changed := k.outdated.Load()
	if changed {
		k.halt.Store(true)
		k.outdated.Store(false)
	}
	if changed || len(k.page) > 0 && time.Since(k.read) > freshness {
		k.page, k.more, k.place = nil, true, store.DuePlace{}
	}
}

// allowed is how many deliveries may be with the runners: as many as attempts while
// the webhook proves itself, which it begins with one by one.
func (k *worker) allowed() int {
	if k.width == k.opts.Concurrency {
		return ahead * k.width
	}
	return k.width
}

// pageSize is how many deliveries to read: few of a webhook at which they hang.
func (k *worker) pageSize() int {
	if k.width == k.opts.Concurrency {
		return pageSize
	}
	return min(pageSize, pagesAhead*k.width)
}

// load reads the webhook and a page of what is due.
func (k *worker) load() {
	hook, err := k.store.Webhook(k.ctx, k.hook.ID)
	if missing(err) || err == nil && !hook.Enabled {
		k.over = true
		return
	}
	if err != nil {
		k.stall(k.ctx, err)
		return
	}
	limit := k.pageSize()
	if k.place == (store.DuePlace{}) {
		limit += len(k.busy)
	}
	due, place, err := k.store.DueDeliveries(k.ctx, hook.ID, k.store.Now(), k.place, limit)
	if err != nil {
		k.stall(k.ctx, err)
		return
	}
	k.hook, k.read, k.place, k.more = &hook, time.Now(), place, len(due) == limit
	if !k.more || hook.Ordering == models.OrderingAgent { // what is promoted was due long ago
		k.place = store.DuePlace{}
	}
	for _, d := range due {
		if !k.busy[d.ID] {
			k.page = append(k.page, d)
		}
	}
}

// take notes what came back from a runner. One failure is enough to go on carefully.
func (k *worker) take(r result) {
	k.flying--
	if r.skipped || k.work.Err() != nil && !r.succeeded { // not begun, or cut off by ourselves
		delete(k.busy, r.delivery.ID)
		k.more, k.place = true, store.DuePlace{}
		return
	}
	k.ended = append(k.ended, r)
	k.over = k.over || r.gone
	if r.succeeded {
		k.width = min(2*k.width, k.opts.Concurrency)
		return
	}
	k.width = 1
	if len(k.page) > k.pageSize() { // not to keep for as long as the next attempt hangs
		k.page, k.more, k.place = nil, true, store.DuePlace{}
	}
}
