package webhooks

import (
	"context"
	"time"

	"comet/models"
	"comet/store"
)

type saveResult struct {
	completion
	batch []result
	err   error
}

// save starts to store results, one transaction at a time; later results share the next one.
func (k *worker) save() {
	if k.saving > 0 || len(k.unstored) == 0 || k.backsOff() {
		return
	}
	gathered := !k.flushAt.IsZero() && !time.Now().Before(k.flushAt)
	urgent := gathered || k.inFlight == 0 || k.hook.Ordering == models.OrderingAgent || k.ctx.Err() != nil
	if !urgent && len(k.unstored) < groupSize {
		if k.flushAt.IsZero() {
			k.flushAt = k.wakeAfter(gather)
		}
		return
	}
	hook, batch := k.hook, k.unstored
	k.unstored, k.saving, k.flushAt = nil, len(batch), time.Time{}
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(k.work), storeTimeout)
		defer cancel()
		out, err := k.storeResults(ctx, *hook, batch)
		k.saved <- saveResult{out, batch, err}
	}()
}

// finishSave processes the end of a transaction.
func (k *worker) finishSave(s saveResult) {
	k.saving = 0
	switch {
	case s.err == nil:
		k.backoff.Reset()
		k.stopping = k.stopping || s.stopped
		k.more = k.more || s.ordered // the next delivery of each key
		for _, r := range s.batch {
			delete(k.busy, r.delivery.ID)
		}
	case k.work.Err() != nil: // there is no more time
		k.opts.Logger.Error("deliveries' ends were not stored; they are made again", "webhook", k.hook.ID, "deliveries", len(s.batch), "error", s.err)
		k.unstored = nil
	default:
		k.unstored = append(s.batch, k.unstored...)
		k.backOff(k.work, s.err)
	}
}

// backOff waits before the next use of the database.
func (k *worker) backOff(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // stopping
	}
	k.opts.Logger.WarnContext(ctx, "the database fails a webhook's deliveries and is asked again", "webhook", k.hook.ID, "error", err)
	k.retryAt = k.wakeAfter(k.backoff.NextBackOff())
}

// renewLease renews the lease in time and reports whether an attempt ends before it.
func (k *worker) renewLease() bool {
	if k.leaseLeft() < k.leaseLength()/2 {
		k.renew(k.ctx)
	}
	return !k.stopping && !k.backsOff() && k.fitsLease(k.hook)
}

func (k *worker) leaseLeft() time.Duration { return time.UnixMicro(k.until.Load()).Sub(k.store.Now()) }

// fitsLease reports whether an attempt that starts now ends before the lease does, with time left to
// store its result and for differences between clocks.
func (k *worker) fitsLease(hook *models.Webhook) bool {
	timeout := attemptTimeout(*hook, k.opts.Timeout)
	return k.leaseLeft() >= timeout+timeout/3
}

// leaseLength returns the length of the webhook's lease, in which several attempts fit.
func (k *worker) leaseLength() time.Duration {
	return max(k.lease, 4*attemptTimeout(*k.hook, k.opts.Timeout))
}

func (k *worker) renew(ctx context.Context) {
	var until time.Time
	kept := false
	err := k.store.Write(ctx, func(tx *store.Tx) (err error) {
		until = tx.Now().Add(k.leaseLength())
		_, kept, err = tx.Webhooks().Lease(k.hook.ID, k.owner, until)
		return err
	})
	switch {
	case err != nil:
		k.backOff(ctx, err)
	case !kept: // another replica has leased it, or the webhook was deleted
		k.stopping = true
	default:
		k.until.Store(until.UnixMicro())
	}
}

// release ends the lease, so that any replica can take the webhook.
func (k *worker) release() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(k.work), storeTimeout)
	defer cancel()
	err := k.store.Write(ctx, func(tx *store.Tx) error { return tx.Webhooks().Release(k.hook.ID, k.owner) })
	if err != nil {
		k.opts.Logger.Warn("a webhook's lease was not ended and runs out", "webhook", k.hook.ID, "error", err)
	}
}
