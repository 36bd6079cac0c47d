package webhooks

import (
	"context"
	"slices"
	"time"

	"comet/internal/background"
	"comet/store"
)

// leaseBatch is how many webhooks one transaction leases.
const leaseBatch = 100

// idleShare is the pause of the dispatcher as a multiple of its last look; wake-ups do not shorten it.
const idleShare = 4

// look starts due workers, then rests. It returns how long nothing is due.
func (w *Webhooks) look(ctx context.Context) (time.Duration, error) {
	begun := time.Now()
	idle, err := w.startDueWorkers(ctx)
	if err == nil {
		_ = background.Sleep(ctx, min(idleShare*time.Since(begun), w.opts.Poll))
	}
	return idle, err
}

// startDueWorkers starts or wakes the workers of due deliveries, and returns how long nothing is due apart
// from what this process is woken for. It only reads when nothing is due.
func (w *Webhooks) startDueWorkers(ctx context.Context) (idle time.Duration, err error) {
	endpoints, err := w.store.Webhooks(ctx).DueEndpoints()
	if err != nil {
		return 0, err
	}
	now, idle := w.store.Now(), w.opts.Poll
	var free []string
	for _, e := range endpoints {
		switch {
		case e.Due.After(now):
			idle = min(idle, e.Due.Sub(now))
		case w.notify(e.WebhookID, false):
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

// startWorkers leases webhooks and starts a worker for each one that no other replica has leased.
func (w *Webhooks) startWorkers(ctx context.Context, ids []string) error {
	var leased []*worker
	err := w.store.Write(ctx, func(tx *store.Tx) error {
		leased = leased[:0]
		until := tx.Now().Add(w.lease)
		for _, id := range ids {
			hook, ok, err := tx.Webhooks().Lease(id, w.owner, until)
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
			w.poll.Wake() // look again: the last wake-up may have come too late for the worker
		})
	}
	return nil
}

// notify wakes the worker of a webhook, if there is one. If changed is set, the worker reads the webhook.
func (w *Webhooks) notify(id string, changed bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	k, ok := w.workers[id]
	if ok {
		if changed {
			k.outdated.Store(true)
		}
		k.due.Store(true)
		k.wake.Set()
	}
	return ok
}
