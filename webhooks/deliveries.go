package webhooks

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/google/uuid"

	"comet/internal/background"
	"comet/internal/errs"
	"comet/internal/events"
	"comet/models"
	"comet/store"
	"comet/store/missed"
)

// DeliveryQuery is the parameter of Deliveries.
type DeliveryQuery = store.DeliveryQuery

// Deliveries returns a page of deliveries without data, newest first, or errs.NotFound.
func (w *Webhooks) Deliveries(ctx context.Context, by models.Principal, id string, q store.DeliveryQuery) ([]models.Delivery, error) {
	if _, err := w.managed(ctx, by, id); err != nil {
		return nil, err
	}
	return w.store.Deliveries(ctx).List(id, q)
}

// Delivery returns a delivery with its attempts, the first one first, or errs.NotFound.
func (w *Webhooks) Delivery(ctx context.Context, by models.Principal, id, deliveryID string) (models.Delivery, []models.DeliveryAttempt, error) {
	if _, err := w.managed(ctx, by, id); err != nil {
		return models.Delivery{}, nil, err
	}
	d, err := w.store.Deliveries(ctx).Get(id, deliveryID)
	if err != nil {
		return models.Delivery{}, nil, err
	}
	attempts, err := w.store.Deliveries(ctx).Attempts(id, deliveryID)
	return d, attempts, err
}

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
		d, err := tx.Deliveries().Lock(id, deliveryID)
		if err != nil {
			return err
		}
		if err := requireEnabled(hook); err != nil {
			return err
		}
		if err := tx.Deliveries().Redeliver(d, hook.Ordering); err != nil {
			return err
		}
		out, err = tx.Deliveries().Lock(id, deliveryID)
		return err
	})
	return out, err
}

// RedeliverAll makes the deliveries that a request selects due at once, with those of missed events if the
// request includes them, and returns their number. It returns errs.NotFound, errs.WebhookDisabled, or
// errs.InvalidRequest.
func (w *Webhooks) RedeliverAll(ctx context.Context, by models.Principal, id string, d RedeliveryDraft) (total int64, err error) {
	var v errs.Violations
	checkEvents(&v, d.Events)
	if d.Until != nil && !d.Until.After(*d.Since) {
		v.Add(errs.InvalidRequest, "/until", "after", "until must be after since")
	}
	if err := v.Err(); err != nil {
		return 0, err
	}
	q, begun := store.DeliveryQuery{Since: *d.Since, Until: *cmp.Or(d.Until, new(time.Time))}, w.store.Now()
	for _, t := range events.ForWebhooks() {
		if wants(d.Events, t) {
			q.Types = append(q.Types, t)
		}
	}
	q.Limit = redeliveredAtOnce
	for n := q.Limit; err == nil && n == q.Limit; total += int64(n) {
		var last string
		err = w.store.Write(ctx, func(tx *store.Tx) error {
			hook, err := lock(tx, by, id)
			if err == nil {
				err = requireEnabled(hook)
			}
			if err == nil {
				n, last, err = tx.Deliveries().RedeliverAll(id, q, d.IncludeSucceeded, begun, hook.Ordering)
			}
			return err
		})
		if err != nil {
			return total, err
		}
		q.After = last
	}
	if !d.IncludeMissed {
		return total, nil
	}
	n, err := w.deliverMissed(ctx, by, id, q)
	return total + n, err
}

// redeliveredAtOnce is how many deliveries one transaction makes due.
const redeliveredAtOnce = 1000

// deliverMissed creates the deliveries of the events that q selects and that the webhook has not received,
// because it was created later, was disabled or had another filter. It returns their number.
func (w *Webhooks) deliverMissed(ctx context.Context, by models.Principal, id string, q store.DeliveryQuery) (total int64, err error) {
	if oldest := w.store.Now().Add(-w.opts.Retention); q.Since.Before(oldest) { // older deliveries may be purged
		q.Since = oldest
	}
	after, upTo, err := missed.Between(w.store.Reads(ctx), w.store.Alone(), q.Since, q.Until)
	for n := 0; err == nil && after < upTo; total += int64(n) {
		var batch []models.Event
		if batch, err = w.store.Events(ctx).Between(after, upTo, q.Types, q.Limit); err != nil || len(batch) == 0 {
			break
		}
		after = batch[len(batch)-1].Position
		batch = slices.DeleteFunc(batch, func(e models.Event) bool {
			return e.At.Before(q.Since) || !q.Until.IsZero() && !e.At.Before(q.Until)
		})
		err = w.store.Write(ctx, func(tx *store.Tx) (err error) {
			n, err = insertMissed(tx, by, id, batch)
			return err
		})
	}
	return total, err
}

// insertMissed creates the deliveries of a webhook that the relay has not created for events that it has
// handled, and returns their number. The lock of the webhook excludes the relay, which may handle later events.
func insertMissed(tx *store.Tx, by models.Principal, id string, all []models.Event) (int, error) {
	hook, err := lock(tx, by, id)
	if err == nil {
		err = requireEnabled(hook)
	}
	if err != nil {
		return 0, err
	}
	s := store.Subscription{WebhookID: id, Events: hook.Events, AgentID: hook.AgentID, Subtree: hook.Subtree, Ordering: hook.Ordering, ConfinedTo: hook.ConfinedTo}
	deliveries, err := newDeliveries(tx, []store.Subscription{s}, all)
	var ids, keys []string
	for _, d := range deliveries {
		ids, keys = append(ids, d.Event.ID), append(keys, d.Event.Key)
	}
	received, receivedErr := missed.Received(tx, id, ids)
	slices.Sort(received)
	deliveries = slices.DeleteFunc(deliveries, func(d store.NewDelivery) bool {
		_, found := slices.BinarySearch(received, d.Event.ID)
		return found
	})
	if err = cmp.Or(err, receivedErr); err == nil {
		err = tx.Deliveries().Insert(deliveries)
	}
	if err == nil && s.Ordering == models.OrderingAgent {
		slices.Sort(keys)
		err = tx.Deliveries().OrderKeys(id, slices.Compact(keys)) // earlier events before pending ones
	}
	return len(deliveries), err
}

func requireEnabled(hook models.Webhook) error {
	if hook.Enabled {
		return nil
	}
	return errs.New(errs.WebhookDisabled, "the webhook %q is disabled; enable it first", hook.ID)
}

// Test makes one attempt to deliver a webhook.test event, also to a disabled webhook. It is stored
// as a finished delivery without other consequences. It returns errs.NotFound, or errs.Busy.
func (w *Webhooks) Test(ctx context.Context, by models.Principal, id string) (models.Delivery, models.DeliveryAttempt, error) {
	hook, err := w.managed(ctx, by, id)
	if err != nil {
		return models.Delivery{}, models.DeliveryAttempt{}, err
	}
	d, err := newPing(hook, w.store.Now())
	if err != nil {
		return models.Delivery{}, models.DeliveryAttempt{}, err
	}
	if background.AcquireWithin(ctx, w.attempts, w.opts.Timeout) != nil {
		return models.Delivery{}, models.DeliveryAttempt{}, errs.New(errs.Busy, "so many deliveries are being made that the test could not begin; try again later")
	}
	out := w.makeAttempt(ctx, hook, d)
	w.attempts.Release(1)
	out.attempt.Attempt = 1
	d.State = models.DeliveryDead
	if out.succeeded {
		d.State = models.DeliverySucceeded
	}
	// The attempt was made, so it is stored even if the caller has disconnected.
	err = w.store.Write(context.WithoutCancel(ctx), func(tx *store.Tx) (err error) {
		if _, err = tx.Webhooks().LockShared(id); err != nil {
			return err
		}
		d, err = tx.Deliveries().InsertTest(d, out.attempt)
		return err
	})
	return d, out.attempt, err
}

func newPing(hook models.Webhook, now time.Time) (models.Delivery, error) {
	event, err := uuid.NewV7()
	if err != nil {
		return models.Delivery{}, err
	}
	data, err := json.Marshal(WebhookTest{WebhookID: hook.ID, Message: "This is a test: what arrives here is signed and sent like any event."})
	return models.Delivery{WebhookID: hook.ID, EventID: event.String(), Type: events.WebhookTest, Key: hook.ID, EventAt: now, Data: data}, err
}

func (w *Webhooks) makeAttempt(ctx context.Context, hook models.Webhook, d models.Delivery) attemptResult {
	out := w.sender.send(ctx, hook, d, w.store.Now())
	w.opts.OnAttempt(out.succeeded, time.Duration(out.attempt.DurationMS)*time.Millisecond)
	return out
}
