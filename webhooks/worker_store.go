package webhooks

import (
	"context"
	"time"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
)

// saved is how a transaction ended.
type saved struct {
	stored
	batch []result
	err   error
}

// save begins to store what has ended, in one transaction at a time, so that those
// that end meanwhile are stored together by the next.
func (k *worker) save() {
	if k.saving > 0 || len(k.ended) == 0 || k.retry != nil {
		return
	}
	urgent := k.flushed || k.flying == 0 || k.hook.Ordering == models.OrderingAgent || k.ctx.Err() != nil
	if !urgent && len(k.ended) < groupSize {
		if k.flush == nil {
			k.flush = time.After(gather)
		}
		return
	}
	hook, batch := k.hook, k.ended
	k.ended, k.saving, k.flush, k.flushed = nil, len(batch), nil, false
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(k.work), storeTimeout)
		defer cancel()
		out, err := k.complete(ctx, *hook, batch)
		k.saved <- saved{out, batch, err}
	}()
}

// keep notes that results are stored, or have to wait for the database.
func (k *worker) keep(s saved) {
	k.saving = 0
	switch {
	case s.err == nil:
		k.backoff.Reset()
		k.over = k.over || s.over
		k.more = k.more || s.ordered // the next of each key
		for _, r := range s.batch {
			delete(k.busy, r.delivery.ID)
		}
	case k.work.Err() != nil: // there is no more time
		k.opts.Logger.Error("deliveries' ends were not stored; they are made again", "webhook", k.hook.ID, "deliveries", len(s.batch), "error", s.err)
		k.ended = nil
	default:
		k.ended = append(s.batch, k.ended...)
		k.stall(k.work, s.err)
	}
}

// stall leaves the database alone for some time.
func (k *worker) stall(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // being stopped
	}
	k.opts.Logger.WarnContext(ctx, "the database fails a webhook's deliveries and is asked again", "webhook", k.hook.ID, "error", err)
	k.retry = time.After(k.backoff.NextBackOff())
}

// leased renews the lease in time and reports whether an attempt that begins now ends
// before it does.
func (k *worker) leased() bool {
	if k.left() < k.lease/2 {
		k.renew(k.ctx)
	}
	return !k.over && k.retry == nil && k.inTime()
}

// left is how much there is left of the lease.
func (k *worker) left() time.Duration { return time.UnixMicro(k.until.Load()).Sub(k.store.Now()) }

// inTime reports whether an attempt that begins now ends before the lease does, with
// time left for storing its result and for clocks that differ.
func (k *worker) inTime() bool { return k.left() >= k.opts.Timeout+k.opts.Timeout/3 }

func (k *worker) renew(ctx context.Context) {
	var until time.Time
	kept := false
	err := k.store.Write(ctx, func(tx *store.Tx) (err error) {
		until = tx.Now().Add(k.lease)
		_, kept, err = tx.LeaseWebhook(k.hook.ID, k.owner, until)
		return err
	})
	switch {
	case err != nil:
		k.stall(ctx, err)
	case !kept: // another replica has it, or nobody is to
		k.over = true
	default:
		k.until.Store(until.UnixMicro())
	}
}

// release lets others have the webhook, or this replica again.
func (k *worker) release() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(k.work), storeTimeout)
	defer cancel()
	err := k.store.Write(ctx, func(tx *store.Tx) error { return tx.ReleaseWebhook(k.hook.ID, k.owner) })
	if err != nil {
		k.opts.Logger.Warn("a webhook's lease was not ended and runs out", "webhook", k.hook.ID, "error", err)
	}
}

func missing(err error) bool { return errs.Is(err, errs.NotFound) }
