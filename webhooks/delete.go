package webhooks

import (
	"context"

	"comet/models"
	"comet/store"
)

// deleteBatch limits the deliveries that one transaction deletes, so that other writers do not
// wait long.
const deleteBatch = 1000

// Delete removes a webhook with its deliveries, or returns errs.NotFound. It disables the webhook
// and then deletes a long history in batches: if ctx ends before that, the webhook still exists,
// and the call can be repeated.
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
	w.markOutdated(id)
	_, err = w.inBatches(ctx, func(tx *store.Tx) (int64, error) { return tx.DeleteDeliveries(id, deleteBatch) })
	if err != nil {
		return err
	}
	err = w.store.Write(ctx, func(tx *store.Tx) error {
		if _, err := lock(tx, by, id); err != nil { // deleted by another request meanwhile
			return err
		}
		return tx.DeleteWebhook(id)
	})
	if err == nil {
		w.logChange(ctx, by, id, "a webhook was deleted")
	}
	return err
}

// Purge deletes deliveries that ended longer ago than the retention, with their attempts. Call it
// periodically.
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

// inBatches repeats a transaction until it changes less than a batch, and returns the number of
// changes.
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
