package webhooks

import (
	"context"
	"net/url"
	"time"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
)

// The reasons for which comet disables a webhook.
const (
	reasonGone    = "the server answered 410 Gone"
	reasonFailing = "no delivery succeeded for 5 days"
)

// result is an attempt that was made at a delivery.
type result struct {
	outcome
	skipped  bool            // or rather was not
	hook     *models.Webhook // as it was then
	delivery models.Delivery
}

// goneFrom reports whether the webhook's receiver is gone, not only one it had before.
func (r result) goneFrom(hook models.Webhook) bool { return r.gone && r.hook.URL == hook.URL }

// stored says what the transaction that kept results has found.
type stored struct {
	over    bool // the webhook is deleted or disabled
	ordered bool
	reason  string // of its being disabled in this transaction
}

// complete keeps what became of attempts at one webhook, in the order in which they
// ended, and what follows: the next attempt or the end of each delivery, the next one
// of its key in an ordered webhook, and the end of a webhook that is gone or has failed
// for too long. Attempts count whatever has become of the delivery meanwhile.
func (w *Webhooks) complete(ctx context.Context, hook models.Webhook, all []result) (out stored, err error) {
	err = w.store.Write(ctx, func(tx *store.Tx) (err error) {
		out, err = w.completeIn(tx, hook, all)
		return err
	})
	if err == nil && out.reason != "" {
		w.opts.Logger.WarnContext(ctx, "a webhook was disabled", "webhook", hook.ID, "reason", out.reason)
	}
	return out, err
}

func (w *Webhooks) completeIn(tx *store.Tx, believed models.Webhook, all []result) (stored, error) {
	hook, err := lockFor(tx, believed)
	if errs.Is(err, errs.NotFound) {
		return stored{over: true}, nil // deleted, and its deliveries with it
	}
	if err != nil {
		return stored{}, err
	}
	keys, err := w.endDeliveries(tx, hook, all)
	if err != nil {
		return stored{}, err
	}
	out := stored{ordered: hook.Ordering == models.OrderingAgent}
	if out.ordered {
		if err := tx.PromoteDeliveries(hook.ID, keys); err != nil {
			return stored{}, err
		}
	}
	out.reason, err = judge(tx, hook, all)
	out.over = !hook.Enabled || out.reason != ""
	return out, err
}

// lockFor locks the webhook as its ordering demands, which may have changed.
func lockFor(tx *store.Tx, believed models.Webhook) (models.Webhook, error) {
	if believed.Ordering != models.OrderingAgent {
		if hook, err := tx.WebhookShared(believed.ID); err != nil || hook.Ordering != models.OrderingAgent {
			return hook, err
		}
	}
	return tx.Webhook(believed.ID)
}

// endDeliveries keeps the attempts and returns the keys of deliveries that have ended.
func (w *Webhooks) endDeliveries(tx *store.Tx, hook models.Webhook, all []result) (keys []string, err error) {
	quick := make([]store.Ended, 0, len(all))
	for _, r := range all {
		if r.succeeded && r.delivery.Attempts == 0 {
			quick = append(quick, store.Ended{DeliveryID: r.delivery.ID, Attempt: r.attempt})
		}
	}
	rest, err := tx.SucceedDeliveries(hook.ID, quick)
	if err != nil {
		return nil, err
	}
	slow := make(map[string]bool, len(rest))
	for _, e := range rest {
		slow[e.DeliveryID] = true
	}
	for _, r := range all {
		ended := true
		if !r.succeeded || r.delivery.Attempts > 0 || slow[r.delivery.ID] {
			if ended, err = w.endDelivery(tx, r, r.goneFrom(hook)); err != nil {
				return nil, err
			}
		}
		if ended {
			keys = append(keys, r.delivery.Key)
		}
	}
	return keys, nil
}

// endDelivery keeps one attempt and reports whether the delivery has ended with it.
func (w *Webhooks) endDelivery(tx *store.Tx, r result, gone bool) (ended bool, err error) {
	d, err := tx.Delivery(r.delivery.WebhookID, r.delivery.ID)
	switch {
	case errs.Is(err, errs.NotFound): // deleted meanwhile
		return false, nil
	case err != nil:
		return false, err
	case r.succeeded:
		return true, tx.SucceedDelivery(d, r.attempt)
	}
	if d.State != models.DeliveryPending { // another replica had it too and was quicker
		return false, tx.CountFailure(d, r.attempt)
	}
	wait, again := next(d.Tries+1, w.opts.Random(), r.retryAfter)
	if !again || gone {
		return true, tx.MarkDeliveryDead(d, r.attempt)
	}
	return false, tx.FailDelivery(d, r.attempt, tx.Now().Add(wait))
}

// judge keeps since when a webhook fails and how often, and disables it where that is
// too long or it is gone; it returns the reason. What an earlier URL answered does not
// count.
func judge(tx *store.Tx, hook models.Webhook, all []result) (reason string, err error) {
	since, failures := hook.FailingSince, hook.Failures
	for _, r := range all {
		switch {
		case r.hook.URL != hook.URL:
		case r.succeeded:
			since, failures = nil, 0
		case since == nil:
			since, failures = &r.attempt.At, 1
		default:
			failures = min(failures+1, minFailures)
		}
		if r.goneFrom(hook) {
			reason = reasonGone
		}
	}
	if reason == "" && since != nil && failures >= minFailures && tx.Now().Sub(*since) >= patience {
		reason = reasonFailing
	}
	if !hook.Enabled || reason == "" {
		if same(since, hook.FailingSince) && failures == hook.Failures {
			return "", nil
		}
		return "", tx.SaveFailing(hook.ID, since, failures)
	}
	return reason, disable(tx, hook.ID, reason, since, failures)
}

func same(a, b *time.Time) bool { return a == b || a != nil && b != nil && a.Equal(*b) }

func disable(tx *store.Tx, id, reason string, since *time.Time, failures int) error {
	hook, err := tx.Webhook(id)
	if err != nil {
		return err
	}
	hook.Enabled, hook.DisabledReason, hook.DisabledAt, hook.UpdatedAt = false, reason, new(tx.Now()), tx.Now()
	hook.FailingSince, hook.Failures = since, failures
	if err := tx.SaveWebhook(hook); err != nil {
		return err
	}
	data := models.WebhookDisabled{ID: id, Origin: origin(hook.URL), Description: hook.Description, AgentID: hook.AgentID, Reason: reason}
	if reason == reasonFailing {
		data.FailingSince = since
	}
	return tx.Emit(models.EventWebhookDisabled, id, data)
}

// origin is what others may know of a URL, whose path and query may hold a secret.
func origin(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "" // it was parsed when it was registered
	}
	return u.Scheme + "://" + u.Host
}
