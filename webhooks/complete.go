package webhooks

import (
	"context"
	"net/url"
	"time"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/models"
	"comet/store"
)

// Reasons for which comet disables a webhook.
const (
	reasonFailing = "no delivery succeeded for 5 days"
)

type job struct {
	hook     *models.Webhook // at the time of the attempt
	delivery models.Delivery
}

// result is a finished attempt at a delivery.
type result struct {
	job
	attemptResult
	skipped bool // the attempt was not made
}

// goneFrom reports whether the webhook's current URL is gone, not only an earlier one.
func (r result) goneFrom(hook models.Webhook) bool { return r.gone && r.hook.URL == hook.URL }

// completion is what the transaction that stored results found.
type completion struct {
	stopped bool // the webhook is deleted or disabled
	ordered bool
	reason  string // why this transaction disabled it
}

// storeResults stores attempts at one webhook in the order in which they ended, and their
// consequences: the next attempt or the end of each delivery, the next delivery of its key in an
// ordered webhook, and the end of a webhook that is gone or has failed for too long. Attempts
// count even if the delivery was changed meanwhile.
func (w *Webhooks) storeResults(ctx context.Context, hook models.Webhook, all []result) (out completion, err error) {
	err = w.store.Write(ctx, func(tx *store.Tx) (err error) {
		out, err = w.completeIn(tx, hook, all)
		return err
	})
	if err == nil && out.reason != "" {
		w.opts.Logger.WarnContext(ctx, "a webhook was disabled", "webhook", hook.ID, "reason", out.reason)
	}
	return out, err
}

func (w *Webhooks) completeIn(tx *store.Tx, believed models.Webhook, all []result) (completion, error) {
	hook, err := lockFor(tx, believed)
	if errs.Is(err, errs.NotFound) {
		return completion{stopped: true}, nil // deleted together with its deliveries
	}
	if err != nil {
		return completion{}, err
	}
	keys, err := w.endDeliveries(tx, hook, all)
	if err != nil {
		return completion{}, err
	}
	out := completion{ordered: hook.Ordering == models.OrderingAgent}
	if out.ordered {
		if err := tx.Deliveries().Promote(hook.ID, keys); err != nil {
			return completion{}, err
		}
	}
	if out.reason, err = updateHealth(tx, hook, all); err == nil && out.reason == "" && hook.Enabled && endsTask(hook, all, keys) {
		err = endTask(tx, hook.ID)
		hook.Enabled = false
	}
	out.stopped = !hook.Enabled || out.reason != ""
	return out, err
}

// lockFor locks the webhook as its current ordering requires, which may have changed.
func lockFor(tx *store.Tx, believed models.Webhook) (models.Webhook, error) {
	if believed.Ordering != models.OrderingAgent {
		if hook, err := tx.Webhooks().LockShared(believed.ID); err != nil || hook.Ordering != models.OrderingAgent {
			return hook, err
		}
	}
	return tx.Webhooks().Lock(believed.ID)
}

// endDeliveries stores the attempts and returns the keys of deliveries that have ended.
func (w *Webhooks) endDeliveries(tx *store.Tx, hook models.Webhook, all []result) (keys []string, err error) {
	quick := make([]store.Ended, 0, len(all))
	for _, r := range all {
		if r.succeeded && r.delivery.Attempts == 0 {
			quick = append(quick, store.Ended{DeliveryID: r.delivery.ID, Attempt: r.attempt})
		}
	}
	rest, err := tx.Deliveries().SucceedAll(hook.ID, quick)
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
			if ended, err = w.endDelivery(tx, hook, r); err != nil {
				return nil, err
			}
		}
		if ended {
			keys = append(keys, r.delivery.Key)
		}
	}
	return keys, nil
}

// endDelivery stores one attempt and reports whether it ended the delivery.
func (w *Webhooks) endDelivery(tx *store.Tx, hook models.Webhook, r result) (ended bool, err error) {
	d, err := tx.Deliveries().Lock(r.delivery.WebhookID, r.delivery.ID)
	switch {
	case errs.Is(err, errs.NotFound): // deleted meanwhile
		return false, nil
	case err != nil:
		return false, err
	case r.succeeded:
		return true, tx.Deliveries().Succeed(d, r.attempt)
	}
	if d.State != models.DeliveryPending { // another replica attempted it, too, and was faster
		return false, tx.Deliveries().CountFailure(d, r.attempt)
	}
	wait, again := nextWait(hook.RetrySeconds, d.Tries+1, w.opts.Random(), r.retryAfter)
	if !again || r.goneFrom(hook) {
		if err = tx.Deliveries().MarkDead(d, r.attempt); err == nil {
			err = emitDead(tx, hook, d, r.attempt)
		}
		return true, err
	}
	return false, tx.Deliveries().Fail(d, r.attempt, tx.Now().Add(wait))
}

// emitDead emits webhook.delivery_dead. A dead delivery of such an event causes no other one, which
// would go back and forth between two failing webhooks.
func emitDead(tx *store.Tx, hook models.Webhook, d models.Delivery, last models.DeliveryAttempt) error {
	if d.Type == events.DeliveryDead {
		return nil
	}
	return tx.Events().Emit(events.DeliveryDead, hook.ID, DeliveryDead{
		WebhookID: hook.ID, Origin: origin(hook.URL), Description: hook.Description, AgentID: hook.AgentID,
		DeliveryID: d.ID, EventID: d.EventID, Event: d.Type, Attempts: d.Attempts + 1, Error: last.Error,
	})
}

// updateHealth updates since when and how often a webhook has failed. It disables a webhook that is gone
// or has failed for too long and returns the reason. Responses of an earlier URL do not count.
func updateHealth(tx *store.Tx, hook models.Webhook, all []result) (reason string, err error) {
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
			reason = r.attempt.Error
		}
	}
	if reason == "" && since != nil && failures >= minFailures && tx.Now().Sub(*since) >= maxFailingTime {
		reason = reasonFailing
	}
	if !hook.Enabled || reason == "" {
		if same(since, hook.FailingSince) && failures == hook.Failures {
			return "", nil
		}
		return "", tx.Webhooks().SaveFailing(hook.ID, since, failures)
	}
	return reason, disable(tx, hook.ID, reason, since, failures)
}

func same(a, b *time.Time) bool { return a == b || a != nil && b != nil && a.Equal(*b) }

func disable(tx *store.Tx, id, reason string, since *time.Time, failures int) error {
	hook, err := tx.Webhooks().Lock(id)
	if err != nil {
		return err
	}
	hook.Enabled, hook.DisabledReason, hook.DisabledAt = false, reason, new(tx.Now())
	hook.FailingSince, hook.Failures = since, failures
	if err := save(tx, &hook); err != nil {
		return err
	}
	data := WebhookDisabled{ID: id, Origin: origin(hook.URL), Description: hook.Description, AgentID: hook.AgentID, Reason: reason}
	if reason == reasonFailing {
		data.FailingSince = since
	}
	return tx.Events().Emit(events.WebhookDisabled, id, data)
}

// origin returns the part of a URL that other webhooks may see; the rest may be secret.
func origin(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "" // the URL was parsed at registration
	}
	return u.Scheme + "://" + u.Host
}

const (
	// jitter is the relative variation of a wait, so that deliveries are not retried together.
	jitter = 0.1
	// maxFailingTime is how long a webhook may fail without a success.
	maxFailingTime = 5 * 24 * time.Hour
	// minFailures is the least number of failures in that time, because two alone mean little.
	minFailures = 10
)

// retrySeconds returns the default wait after each failure of a delivery; after one more failure it
// is dead.
func retrySeconds() []int { return []int{5, 300, 1800, 7200, 18_000, 36_000, 36_000} }

// nextWait returns the wait after the failed attempt with that number, from 1; ok is false after the
// last. schedule is empty for the default, random in [0, 1). A receiver may ask for a longer wait, not
// for a shorter one.
func nextWait(schedule []int, try int, random float64, retryAfter time.Duration) (wait time.Duration, ok bool) {
	if len(schedule) == 0 {
		schedule = retrySeconds()
	}
	if try > len(schedule) {
		return 0, false
	}
	wait = time.Duration(schedule[try-1]) * time.Second
	wait += time.Duration((2*random - 1) * jitter * float64(wait))
	return max(wait, retryAfter), true
}
