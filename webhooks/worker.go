package webhooks

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"

	"comet/models"
)

const (
	// pageSize is how many due deliveries a worker reads at once.
	pageSize = 256
	// groupSize and gather bound how many results, and for how long, wait to be stored
	// together; storing each by itself costs more than delivering.
	groupSize = 64
	gather    = 5 * time.Millisecond
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
// any more. All its fields belong to the goroutine of run, but for wake and outdated.
//
// A delivery is busy from its reading until its result is stored, and a busy one is
// not read again; reading begins after a result is stored or has it in busy still.
type worker struct {
	*Webhooks
	hook  models.Webhook
	until time.Time // the end of the lease

	wake     chan struct{} // there may be more to do
	outdated atomic.Bool   // the webhook is not what it was

	page   []models.Delivery // read, not begun
	read   time.Time         // when the page was
	more   bool              // there may be due deliveries that are not in page
	busy   map[string]bool
	flying int  // attempts that are being made
	width  int  // how many there may be
	over   bool // begin nothing more

	results chan result
	ended   []result // not stored
	saving  int      // results that are being stored
	saved   chan saved
	flush   <-chan time.Time // when results have waited for long enough
	flushed bool

	retry   <-chan time.Time // when to ask the database again that has failed
	backoff *backoff.ExponentialBackOff
}

// saved is how a transaction ended.
type saved struct {
	stored
	batch []result
	err   error
}

func newWorker(w *Webhooks, hook models.Webhook, until time.Time) *worker {
	return &worker{
		Webhooks: w, hook: hook, until: until, more: true, width: 1, busy: map[string]bool{}, backoff: newBackoff(),
		wake: make(chan struct{}, 1), results: make(chan result, w.opts.Concurrency), saved: make(chan saved, 1),
	}
}

// run delivers until there is nothing to do for some time, the webhook is not this
// replica's any more, or ctx ends; it waits for the attempts that are being made.
func (k *worker) run(ctx context.Context) {
	defer k.release()
	stop := ctx.Done()
	for {
		k.begin(ctx)
		k.save(ctx)
		if k.idle() {
			if k.over || !k.linger(ctx) {
				return
			}
			continue
		}
		select {
		case r := <-k.results:
			k.take(r)
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
func (k *worker) linger(ctx context.Context) bool {
	t := time.NewTimer(k.opts.Poll)
	defer t.Stop()
	select {
	case <-k.wake:
		k.more = ctx.Err() == nil
		return k.more
	case <-t.C:
	case <-ctx.Done():
	}
	return false
}

// begin begins as many attempts as there may be.
func (k *worker) begin(ctx context.Context) {
	for {
		if k.over || ctx.Err() != nil {
			k.page, k.more = nil, false
			return
		}
		if k.retry != nil || k.flying >= k.width || len(k.ended)+k.saving >= maxUnstored {
			return
		}
		if k.outdated.Swap(false) || len(k.page) > 0 && time.Since(k.read) > freshness {
			k.page, k.more = nil, true
		}
		switch {
		case len(k.page) == 0 && !k.more:
			return
		case len(k.page) == 0:
			k.load(ctx)
		case k.leased(ctx):
			d := k.page[0]
			k.page = k.page[1:]
			k.fly(d)
		default:
			return
		}
	}
}

// load reads the webhook and a page of what is due.
func (k *worker) load(ctx context.Context) {
	hook, err := k.store.Webhook(ctx, k.hook.ID)
	if missing(err) || err == nil && !hook.Enabled {
		k.over = true
		return
	}
	if err != nil {
		k.stall(ctx, err)
		return
	}
	limit := pageSize + len(k.busy)
	due, err := k.store.DueDeliveries(ctx, hook.ID, k.store.Now(), limit)
	if err != nil {
		k.stall(ctx, err)
		return
	}
	k.hook, k.read, k.more = hook, time.Now(), len(due) == limit
	for _, d := range due {
		if !k.busy[d.ID] {
			k.page = append(k.page, d)
		}
	}
}

// fly makes an attempt in a goroutine of its own.
func (k *worker) fly(d models.Delivery) {
	k.busy[d.ID] = true
	k.flying++
	hook := k.hook
	go func() { k.results <- result{k.attempt(k.work, hook, d), hook, d} }()
}

// take notes an attempt that has ended. One failure is enough to go on carefully.
func (k *worker) take(r result) {
	k.flying--
	if k.work.Err() != nil && !r.succeeded { // cut off by ourselves
		delete(k.busy, r.delivery.ID)
		return
	}
	k.ended = append(k.ended, r)
	k.over = k.over || r.gone
	if r.succeeded {
		k.width = min(2*k.width, k.opts.Concurrency)
	} else {
		k.width = 1
	}
}
