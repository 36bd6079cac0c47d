package webhooks

import (
	"context"

	"comet/models"
	"comet/store"
)

// deleteBatch bounds how long one transaction that deletes deliveries keeps the other
// writers.
const deleteBatch = 1000

// Delete removes a webhook with its deliveries, or returns errs.NotFound. A long
// history goes piece by piece, behind the webhook's being disabled: where ctx ends
// before that is done, the webhook is still there, and the call may be repeated.
func (w *Webhooks) Delete(ctx context.Context, by models.Principal, id string) error {
	err := w.store.Write(ctx, func(tx *store.Tx) error {
		hook, err := lock(tx, by, id)
		if err != nil || !hook.Enabled {
			return err
		}
		hook.Enabled, hook.DisabledAt, hook.UpdatedAt = false, new(tx.Now()), tx.Now()
		return tx.SaveWebhook(hook)
	})
	if err != nil {
		return err
	}
	w.changed(id)
	_, err = w.inBatches(ctx, func(tx *store.Tx) (int64, error) { return tx.DeleteDeliveries(id, deleteBatch) })
	if err != nil {
		return err
	}
	err = w.store.Write(ctx, func(tx *store.Tx) error {
		if _, err := lock(tx, by, id); err != nil { // deleted by somebody else meanwhile
			return err
		}
		return tx.DeleteWebhook(id)
	})
	if err == nil {
		w.tell(ctx, by, id, "a webhook was deleted")
	}
	return err
}

// Purge deletes the deliveries that ended longer ago than the retention, with their
// attempts; it is to be done again and again.
func (w *Webhooks) Purge(ctx context.Context) error {
	hooks, err := w.store.Webhooks(ctx, nil, "", models.MaxWebhooks)
	if err != nil {
		return err
	}
	for _, hook := range hooks {
		_, err := w.inBatches(ctx, func(tx *store.Tx) (int64, error) {
			return tx.PurgeDeliveries(hook.ID, tx.Now().Add(-w.opts.Retention), deleteBatch)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// inBatches repeats a transaction until it has changed less than a batch, and returns
// how much all of them have changed.
func (w *Webhooks) inBatches(ctx context.Context, do func(tx *store.Tx) (int64, error)) (total int64, err error) {
	for {
		var n int64
		err := w.store.Write(ctx, func(tx *store.Tx) (err error) {
			n, err = do(tx)
			return err
		})
		if err != nil {
			return total, err
		}
		if total += n; n < deleteBatch {
			return total, nil
		}
	}
}
