package webhooks

import (
	"context"
	"time"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
)

// Redeliver makes a delivery due at once, whatever its state, with all its retries; its earlier
// attempts stay in the history. A delivery that waits for an earlier event of its agent keeps
// waiting. It returns errs.NotFound, or errs.WebhookDisabled.
func (w *Webhooks) Redeliver(ctx context.Context, by models.Principal, id, deliveryID string) (models.Delivery, error) {
	var out models.Delivery
	err := w.store.Write(ctx, func(tx *store.Tx) error {
		hook, err := lock(tx, by, id)
		if err != nil {
			return err
		}
		d, err := tx.Delivery(id, deliveryID)
		if err != nil {
			return err
		}
		if err := requireEnabled(hook); err != nil {
			return err
		}
		if err := tx.RedeliverDelivery(d, hook.Ordering); err != nil {
			return err
		}
		out, err = tx.Delivery(id, deliveryID)
		return err
	})
	return out, err
}

// RedeliverSince makes every dead delivery created at or after since due at once and returns
// their number. It returns errs.NotFound, or errs.WebhookDisabled.
func (w *Webhooks) RedeliverSince(ctx context.Context, by models.Principal, id string, since time.Time) (int64, error) {
	return w.inBatches(ctx, func(tx *store.Tx) (int64, error) {
		hook, err := lock(tx, by, id)
		if err != nil {
			return 0, err
		}
		if err := requireEnabled(hook); err != nil {
			return 0, err
		}
		return tx.RedeliverDead(id, since, hook.Ordering, deleteBatch)
	})
}

func requireEnabled(hook models.Webhook) error {
	if hook.Enabled {
		return nil
	}
	return errs.New(errs.WebhookDisabled, "the webhook %q is disabled; enable it first", hook.ID)
}
