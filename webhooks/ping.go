package webhooks

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
)

// TestResult is the result of a test delivery.
type TestResult struct {
	Delivery models.Delivery
	Attempt  models.DeliveryAttempt
}

// Test makes one attempt to deliver a webhook.test event, also to a disabled webhook, and waits
// for the result. It is stored as a finished delivery and has no other consequences. It returns
// errs.NotFound, or errs.Busy.
func (w *Webhooks) Test(ctx context.Context, by models.Principal, id string) (TestResult, error) {
	hook, err := w.Get(ctx, by, id)
	if err != nil {
		return TestResult{}, err
	}
	d, err := newPing(hook, w.store.Now())
	if err != nil {
		return TestResult{}, err
	}
	if !w.takeSlot(ctx, w.opts.Timeout) {
		return TestResult{}, errs.New(errs.Busy, "so many deliveries are being made that the test could not begin; try again later")
	}
	out := w.attempt(ctx, hook, d)
	w.leaveSlot()
	out.attempt.Attempt = 1
	d.State = models.DeliveryDead
	if out.succeeded {
		d.State = models.DeliverySucceeded
	}
	// The attempt was made, so it is stored even if the caller has gone.
	err = w.store.Write(context.WithoutCancel(ctx), func(tx *store.Tx) (err error) {
		if _, err = tx.WebhookShared(id); err != nil {
			return err
		}
		d, err = tx.InsertTest(d, out.attempt)
		return err
	})
	return TestResult{Delivery: d, Attempt: out.attempt}, err
}

func newPing(hook models.Webhook, now time.Time) (models.Delivery, error) {
	event, err := uuid.NewV7()
	if err != nil {
		return models.Delivery{}, err
	}
	data, err := json.Marshal(models.WebhookTest{WebhookID: hook.ID, Message: "This is a test: what arrives here is signed and sent like any event."})
	return models.Delivery{WebhookID: hook.ID, EventID: event.String(), Type: models.EventWebhookTest, Key: hook.ID, EventAt: now, Data: data}, err
}

// attempt makes one attempt now.
func (w *Webhooks) attempt(ctx context.Context, hook models.Webhook, d models.Delivery) attemptResult {
	out := w.sender.send(ctx, hook, d, w.store.Now())
	w.opts.OnAttempt(out.succeeded, time.Duration(out.attempt.DurationMS)*time.Millisecond)
	return out
}
