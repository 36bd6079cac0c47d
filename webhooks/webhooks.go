// Package webhooks tells other people's servers what happened (CHE·NU §9), signed as
// Standard Webhooks 1.0 describes.
package webhooks

import (
	"context"
	"time"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
)

// errTODO marks what is being written.
var errTODO = errs.New(errs.Internal, "not written yet")

// Created is a webhook with its secret, which is shown this once.
type Created struct {
	Webhook models.Webhook
	Secret  string // whsec_…
}

// Tested is what became of a test.
type Tested struct {
	Delivery models.Delivery
	Attempt  models.DeliveryAttempt
}

func (w *Webhooks) Create(ctx context.Context, by models.Principal, d models.WebhookDraft, once *models.Once) (Created, error) {
	return Created{}, errTODO
}

func (w *Webhooks) Get(ctx context.Context, id string) (models.Webhook, error) {
	return models.Webhook{}, errTODO
}

// List returns up to limit webhooks in the order of creation, behind the id after.
func (w *Webhooks) List(ctx context.Context, after string, limit int) ([]models.Webhook, error) {
	return nil, errTODO
}

func (w *Webhooks) Update(ctx context.Context, by models.Principal, id string, p models.WebhookPatch) (models.Webhook, error) {
	return models.Webhook{}, errTODO
}

func (w *Webhooks) Delete(ctx context.Context, by models.Principal, id string) error { return errTODO }

// Rotate gives a webhook new keys; the old ones sign too for the grace period.
// secret is the new one, "" to have one made.
func (w *Webhooks) Rotate(ctx context.Context, by models.Principal, id, secret string, grace time.Duration, once *models.Once) (Created, error) {
	return Created{}, errTODO
}

// Test makes one attempt to deliver a webhook.test event and waits for its end.
func (w *Webhooks) Test(ctx context.Context, by models.Principal, id string) (Tested, error) {
	return Tested{}, errTODO
}

func (w *Webhooks) Deliveries(ctx context.Context, id string, q models.DeliveryQuery) ([]models.Delivery, error) {
	return nil, errTODO
}

// Delivery returns a delivery with its attempts, the first one first.
func (w *Webhooks) Delivery(ctx context.Context, id, deliveryID string) (models.Delivery, []models.DeliveryAttempt, error) {
	return models.Delivery{}, nil, errTODO
}

// Redeliver makes a delivery due at once, whatever became of it.
func (w *Webhooks) Redeliver(ctx context.Context, by models.Principal, id, deliveryID string) (models.Delivery, error) {
	return models.Delivery{}, errTODO
}

// RedeliverSince makes every dead delivery created at or after since due at once
// and returns how many.
func (w *Webhooks) RedeliverSince(ctx context.Context, by models.Principal, id string, since time.Time) (int64, error) {
	return 0, errTODO
}

// Options configures New; nil is the zero value.
type Options struct{}

// Webhooks keeps the subscriptions and delivers.
type Webhooks struct{ store *store.Store }

// New returns the webhooks over the store.
func New(s *store.Store, _ *Options) *Webhooks { return &Webhooks{store: s} }
