package webhooks

import (
	"context"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"

	"comet/store"
)

// leaseBatch is how many webhooks one transaction leases.
const leaseBatch = 100

// idleShare is how many times longer than its last look the dispatcher rests, however often it is
// woken.
const idleShare = 4

// dispatch looks for webhooks with due deliveries and runs a worker for each that this replica
// can lease, until ctx and the workers end.
func (w *Webhooks) dispatch(ctx context.Context) {
	defer w.running.Wait()
	wait := newBackoff()
	failing := false
	for ctx.Err() == nil {
		begun := time.Now()
		idle, err := w.startDueWorkers(ctx)
		switch {
		case ctx.Err() != nil: // stopped, not failed
		case err != nil:
			if !failing {
				w.opts.Logger.WarnContext(ctx, "looking for due deliveries fails and is tried again", "error", err)
			}
			failing = true
			pause(ctx, wait.NextBackOff(), nil, nil)
		default:
			if failing {
				w.opts.Logger.InfoContext(ctx, "looking for due deliveries works again")
			}
			failing = false
			wait.Reset()
			pause(ctx, min(idleShare*time.Since(begun), w.opts.Poll), nil, nil)
			pause(ctx, idle, w.store.DeliveriesWritten(), w.ended)
		}
	}
}

// startDueWorkers starts or wakes the workers of due deliveries, and returns how long nothing is due apart
// from what this process is woken for. It only reads when nothing is due.
func (w *Webhooks) startDueWorkers(ctx context.Context) (idle time.Duration, err error) {
	endpoints, err := w.store.DueEndpoints(ctx)
	if err != nil {
		return 0, err
	}
	now, idle := w.store.Now(), w.opts.Poll
	var free []string
	for _, e := range endpoints {
		switch {
		case e.Due.After(now):
			idle = min(idle, e.Due.Sub(now))
		case w.wake(e.WebhookID):
		case e.LeaseOwner != "" && e.LeaseOwner != w.owner && e.LeaseUntil.After(now): // another replica delivers
		default:
			free = append(free, e.WebhookID)
		}
	}
	slices.Sort(free) // transactions lock in one order
	for ids := range slices.Chunk(free, leaseBatch) {
		if err := w.startWorkers(ctx, ids); err != nil {
			return 0, err
		}
	}
	return idle, nil
}

// startWorkers leases webhooks and starts a worker for each that no other replica has leased
// meanwhile.
func (w *Webhooks) startWorkers(ctx context.Context, ids []string) error {
	var leased []*worker
	err := w.store.Write(ctx, func(tx *store.Tx) error {
		leased = leased[:0]
		until := tx.Now().Add(w.lease)
		for _, id := range ids {
			hook, ok, err := tx.LeaseWebhook(id, w.owner, until)
			if err != nil {
				return err
			}
			if ok {
				leased = append(leased, newWorker(w, hook, until))
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range leased {
		w.workers[k.hook.ID] = k
		w.running.Go(func() {
			k.run(ctx)
			w.mu.Lock()
			delete(w.workers, k.hook.ID)
			w.mu.Unlock()
			signal(w.ended) // look again: the last wake-up may have come too late for the worker
		})
	}
	return nil
}

// wake notifies the worker of a webhook of due deliveries; it reports whether there is one.
func (w *Webhooks) wake(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	k, ok := w.workers[id]
	if ok {
		signal(k.wake)
	}
	return ok
}

// markOutdated notifies the worker of a webhook that the webhook was changed.
func (w *Webhooks) markOutdated(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if k, ok := w.workers[id]; ok {
		k.outdated.Store(true)
		signal(k.wake)
	}
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// pause waits for d, the end of ctx or a signal.
func pause(ctx context.Context, d time.Duration, one, other <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-one:
	case <-other:
	case <-t.C:
	}
}

// newBackoff returns the waits after database failures, from 50 ms to about 5 s.
func newBackoff() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.Multiplier, b.MaxInterval = 50*time.Millisecond, 2, 5*time.Second
	return b
}
