package webhooks

import (
	"context"
	"reflect"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/models"
	"comet/store"
	"comet/webhooks/signature"
)

// Update changes a webhook, or returns errs.NotFound before errs.ForeignAgent before
// errs.InvalidRequest before errs.AddressRefused. An attempt in flight still counts. Enabling a
// webhook, or changing its URL, clears its failures. Changing the ordering is errs.LimitReached
// while too many deliveries are pending. A patch that changes nothing leaves no trace.
func (w *Webhooks) Update(ctx context.Context, by models.Principal, id string, p models.WebhookPatch) (models.Webhook, error) {
	found := w.checkPatch(p)
	var out models.Webhook
	var same bool
	err := w.store.Write(ctx, func(tx *store.Tx) error {
		before, err := lock(tx, by, id)
		if err != nil {
			return err
		}
		v := append(errs.Violations(nil), found...)
		after := apply(before, p, tx)
		if err := checkBound(by, after.AgentID); err != nil {
			return err
		}
		if p.AgentID.Set || p.Subtree.Set {
			if err := checkFilter(&v, after.AgentID, after.Subtree, tx.AgentExists); err != nil {
				return err
			}
		}
		if err := checkReorder(tx, &v, before, after); err != nil {
			return err
		}
		if err := v.Err(); err != nil {
			return err
		}
		out, same = after, true
		if reflect.DeepEqual(before, after) {
			return nil
		}
		out.UpdatedAt, same = tx.Now(), false
		if err := tx.SaveWebhook(out); err != nil {
			return err
		}
		return reorder(tx, before, after)
	})
	if err != nil {
		return models.Webhook{}, err
	}
	w.markOutdated(id)
	if !same {
		w.logChange(ctx, by, id, "a webhook was changed")
	}
	return out, nil
}

// checkPatch validates a patch by itself; null is for members that may be empty.
func (w *Webhooks) checkPatch(p models.WebhookPatch) errs.Violations {
	v := input.Validate(p)
	for _, m := range []struct {
		name string
		null bool
	}{
		{"url", p.URL.Null}, {"events", p.Events.Null}, {"subtree", p.Subtree.Null}, {"ordering", p.Ordering.Null},
		{"enabled", p.Enabled.Null}, {"asymmetric", p.Asymmetric.Null},
	} {
		if m.null {
			v.Add(errs.InvalidRequest, "/"+m.name, "not_null", "%s must not be null", m.name)
		}
	}
	if p.URL.Set && !p.URL.Null {
		w.checkURL(&v, p.URL.Value)
	}
	checkEvents(&v, p.Events.Value)
	return v
}

// apply returns the webhook with the patch applied. Without an agent there is no subtree, so
// removing agent_id clears subtree.
func apply(hook models.Webhook, p models.WebhookPatch, tx *store.Tx) models.Webhook {
	if p.URL.Set && p.URL.Value != hook.URL {
		hook.URL, hook.FailingSince, hook.Failures = p.URL.Value, nil, 0
	}
	set(&hook.Events, p.Events)
	set(&hook.Description, p.Description)
	set(&hook.Ordering, p.Ordering)
	if p.AgentID.Set {
		hook.AgentID = p.AgentID.Pointer()
		hook.Subtree = hook.Subtree && hook.AgentID != nil
	}
	set(&hook.Subtree, p.Subtree)
	switch enabled := p.Enabled.Value; {
	case !p.Enabled.Set || enabled == hook.Enabled:
	case enabled:
		hook.Enabled, hook.DisabledReason, hook.DisabledAt, hook.FailingSince, hook.Failures = true, "", nil, nil, 0
	default:
		hook.Enabled, hook.DisabledAt = false, new(tx.Now())
	}
	switch {
	case !p.Asymmetric.Set:
	case !p.Asymmetric.Value:
		hook.Keys.SigningKey, hook.Keys.OldSigningKey = nil, nil
	case hook.Keys.SigningKey == nil:
		hook.Keys.SigningKey = signature.NewSigningKey()
	}
	return hook
}

func set[T any](field *T, o models.Optional[T]) {
	if o.Set {
		*field = o.Value
	}
}

// maxReorder is how many pending deliveries a change of ordering may affect: meanwhile SQLite has
// no other writer and PostgreSQL numbers no event.
const maxReorder = 5000

// checkReorder refuses a change of ordering that would take long.
func checkReorder(tx *store.Tx, v *errs.Violations, before, after models.Webhook) error {
	if before.Ordering == after.Ordering {
		return nil
	}
	n, err := tx.Unfinished(before.ID, before.Ordering, maxReorder+1)
	if err == nil && n > maxReorder {
		v.Add(errs.LimitReached, "/ordering", "pending", "more than %d deliveries of this webhook are pending, "+
			"too many to change their ordering; wait until fewer are, or make a new webhook and delete this one", maxReorder)
	}
	return err
}

// reorder applies the new ordering to existing deliveries.
func reorder(tx *store.Tx, before, after models.Webhook) error {
	switch {
	case before.Ordering == after.Ordering:
		return nil
	case after.Ordering == models.OrderingAgent:
		return tx.OrderDeliveries(after.ID)
	}
	return tx.UnorderDeliveries(after.ID)
}
