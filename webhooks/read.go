package webhooks

import (
	"context"

	"comet/models"
)

// Get returns a webhook, or errs.NotFound.
func (w *Webhooks) Get(ctx context.Context, by models.Principal, id string) (models.Webhook, error) {
	hook, err := w.store.Webhook(ctx, id)
	return visible(by, hook, err)
}

// List returns up to limit webhooks in the order of creation, after the id after.
func (w *Webhooks) List(ctx context.Context, by models.Principal, after string, limit int) ([]models.Webhook, error) {
	return w.store.Webhooks(ctx, by.AgentID, after, limit)
}

// Deliveries returns a page of a webhook's deliveries, newest first, without their
// data, or errs.NotFound.
func (w *Webhooks) Deliveries(ctx context.Context, by models.Principal, id string, q models.DeliveryQuery) ([]models.Delivery, error) {
	if _, err := w.Get(ctx, by, id); err != nil {
		return nil, err
	}
	return w.store.Deliveries(ctx, id, q)
}

// Delivery returns a delivery with its attempts, the first one first, or errs.NotFound.
func (w *Webhooks) Delivery(ctx context.Context, by models.Principal, id, deliveryID string) (models.Delivery, []models.DeliveryAttempt, error) {
	if _, err := w.Get(ctx, by, id); err != nil {
		return models.Delivery{}, nil, err
	}
	d, err := w.store.Delivery(ctx, id, deliveryID)
	if err != nil {
		return models.Delivery{}, nil, err
	}
	attempts, err := w.store.DeliveryAttempts(ctx, id, deliveryID)
	return d, attempts, err
}
