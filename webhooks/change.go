package webhooks

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"time"

	"github.com/google/uuid"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/models"
	"comet/store"
	"comet/store/quotas"
	"comet/webhooks/signature"
)

// Created is a webhook with its secret, which is shown once.
type Created struct {
	Webhook models.Webhook
	Secret  string // whsec_…
}

// Create registers a webhook (CHE·NU §9). It reports all violations of the lowest class at once:
// errs.ForeignAgent before errs.InvalidRequest before AddressRefused and LimitReached. A request
// with a known idempotency key has no second effect; the response is stored without the secret.
func (w *Webhooks) Create(ctx context.Context, by models.Principal, d WebhookDraft, once *models.Idempotency) (Created, error) {
	if err := confine(w.store.Agents(ctx).Confine, by, d.AgentID); err != nil {
		return Created{}, err
	}
	v := input.Validate(d)
	if d.URL != nil && !v.Has("/url") {
		w.checkURL(&v, *d.URL)
	}
	checkEvents(&v, d.Events)
	checkHeaders(&v, d.Headers)
	secret := checkSecret(&v, d.Secret)
	return w.storeSecret(ctx, by, secret, once, "a webhook was created", func(tx *store.Tx) (models.Webhook, error) {
		hook, err := fromDraft(tx, by, d, append(errs.Violations(nil), v...))
		if err != nil {
			return hook, err
		}
		hook.Keys.Secret = secret
		if err := tx.Webhooks().Insert(hook); err != nil {
			return hook, err
		}
		return hook, quotas.Add(tx, by, "webhooks", hook.ID)
	})
}

// storeSecret runs a change that stores a secret in a webhook, unless it was run for the idempotency
// key before. message is the log entry of the change.
func (w *Webhooks) storeSecret(ctx context.Context, by models.Principal, secret []byte, once *models.Idempotency, message string,
	change func(*store.Tx) (models.Webhook, error),
) (out Created, err error) {
	err = w.store.Once(ctx, once, func(tx *store.Tx) (any, error) {
		hook, err := change(tx)
		out = Created{hook, signature.FormatSecret(secret)}
		return out, err
	})
	if err != nil {
		return Created{}, err
	}
	if once == nil || once.Replay == nil {
		w.notify(out.Webhook.ID, true)
		w.logChange(ctx, by, out.Webhook.ID, message)
	}
	return out, nil
}

// fromDraft returns the webhook that a draft describes; found are its violations.
func fromDraft(tx *store.Tx, by models.Principal, d WebhookDraft, found errs.Violations) (models.Webhook, error) {
	err := checkFilter(&found, d.AgentID, orFalse(d.Subtree), tx.Agents().Exists)
	if err := cmp.Or(err, found.Err()); err != nil {
		return models.Webhook{}, err
	}
	if n, err := tx.Webhooks().LockAll(); err != nil || n >= MaxWebhooks {
		return models.Webhook{}, cmp.Or(err, error(errs.New(errs.LimitReached, "there are %d webhooks, and there may be no more; delete one first", n)))
	}
	id, err := uuid.NewV7()
	if err != nil {
		return models.Webhook{}, err
	}
	hook := models.Webhook{
		ID: id.String(), URL: *d.URL, Description: d.Description, Events: d.Events, AgentID: d.AgentID, Subtree: orFalse(d.Subtree),
		Ordering: *cmp.Or(d.Ordering, new(models.OrderingNone)), Enabled: *cmp.Or(d.Enabled, new(true)),
		Headers: d.Headers, TimeoutSeconds: *cmp.Or(d.TimeoutSeconds, new(int)), RetrySeconds: append([]int{}, d.RetrySeconds...),
		Keys: models.WebhookKeys{PreviousKeys: []models.PreviousKeys{}}, Version: 1, TokenID: by.TokenID, CreatedBy: by.Name, CreatedAt: tx.Now(), UpdatedAt: tx.Now(),
	}
	if !hook.Enabled {
		hook.DisabledAt = new(tx.Now())
	}
	if orFalse(d.Asymmetric) {
		hook.Keys.SigningKey = signature.NewSigningKey()
	}
	hook.ConfinedTo, err = tx.Tokens().Agents(by)
	return hook, err
}

func orFalse(b *bool) bool { return b != nil && *b }

// Update changes a webhook, or returns errs.NotFound before errs.ForeignAgent before
// errs.InvalidRequest before errs.AddressRefused before the precondition's error. An attempt in flight still counts. Enabling a
// webhook, or changing its URL, clears its failures. A change by a principal that is bound to an agent, or
// of agent_id, gives the webhook the authority of the principal, as if it had created it. Changing the ordering is errs.LimitReached
// while too many deliveries are pending. A patch that changes nothing leaves no trace.
func (w *Webhooks) Update(ctx context.Context, by models.Principal, id string, p WebhookPatch, pre models.Precondition) (models.Webhook, error) {
	found := w.checkPatch(p)
	var out models.Webhook
	changed := false
	err := w.store.Write(ctx, func(tx *store.Tx) error {
		before, err := lock(tx, by, id)
		if err != nil {
			return err
		}
		v := append(errs.Violations(nil), found...)
		after := apply(before, p, tx)
		if err := confine(tx.Agents().Confine, by, after.AgentID); err != nil {
			return err
		}
		if p.AgentID.Set || p.Subtree.Set {
			if err := checkFilter(&v, after.AgentID, after.Subtree, tx.Agents().Exists); err != nil {
				return err
			}
		}
		if origin(before.URL) != origin(after.URL) && len(before.Headers) > 0 && !p.Headers.Set {
			v.Add(errs.InvalidRequest, "/headers", "required", "the webhook sends headers with secret values; to change the scheme, host or port of url, send the headers for the new server, or null for none")
		}
		err = checkReorder(tx, &v, before, after)
		if err := cmp.Or(err, v.Err(), pre.Check(before.Version)); err != nil {
			return err
		}
		if by.AgentID != nil && !reflect.DeepEqual(before, after) || p.AgentID.Set {
			after.TokenID = by.TokenID
			after.ConfinedTo, err = tx.Tokens().Agents(by)
		}
		if out, changed = after, !reflect.DeepEqual(before, after); err != nil || !changed {
			return err
		}
		if err := save(tx, &out); err != nil {
			return err
		}
		if before.TokenID != after.TokenID {
			if err := quotas.Add(tx, by, "webhooks", id); err != nil {
				return err
			}
		}
		return reorder(tx, before, after)
	})
	if err != nil {
		return models.Webhook{}, err
	}
	w.notify(id, true)
	if changed {
		w.logChange(ctx, by, id, "a webhook was changed")
	}
	return out, nil
}

// save stores a change of a webhook.
func save(tx *store.Tx, hook *models.Webhook) error {
	hook.UpdatedAt = tx.Now()
	hook.Version++
	return tx.Webhooks().Save(*hook)
}

// checkPatch validates a patch by itself.
func (w *Webhooks) checkPatch(p WebhookPatch) errs.Violations {
	v := input.ValidatePatch(p)
	if p.URL.Set && !p.URL.Null {
		w.checkURL(&v, p.URL.Value)
	}
	checkEvents(&v, p.Events.Value)
	checkHeaders(&v, p.Headers.Value)
	return v
}

// apply returns the webhook with the patch applied. Removing agent_id clears subtree.
func apply(hook models.Webhook, p WebhookPatch, tx *store.Tx) models.Webhook {
	if p.URL.Set && p.URL.Value != hook.URL {
		hook.URL, hook.FailingSince, hook.Failures = p.URL.Value, nil, 0
	}
	p.Events.Apply(&hook.Events)
	p.Description.Apply(&hook.Description)
	p.Ordering.Apply(&hook.Ordering)
	if p.AgentID.Set {
		hook.AgentID = p.AgentID.Pointer()
		hook.Subtree = hook.Subtree && hook.AgentID != nil
	}
	p.Subtree.Apply(&hook.Subtree)
	p.Headers.Apply(&hook.Headers)
	p.TimeoutSeconds.Apply(&hook.TimeoutSeconds)
	if p.RetrySeconds.Set {
		hook.RetrySeconds = append([]int{}, p.RetrySeconds.Value...)
	}
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
		hook.Keys.SigningKey, hook.Keys.PreviousKeys = nil, slices.Clone(hook.Keys.PreviousKeys)
		for i := range hook.Keys.PreviousKeys {
			hook.Keys.PreviousKeys[i].SigningKey = nil
		}
	case hook.Keys.SigningKey == nil:
		hook.Keys.SigningKey = signature.NewSigningKey()
	}
	return hook
}

// maxReorder is how many pending deliveries a change of ordering may affect: meanwhile SQLite has
// no other writer and PostgreSQL numbers no event.
const maxReorder = 5000

func checkReorder(tx *store.Tx, v *errs.Violations, before, after models.Webhook) error {
	if before.Ordering == after.Ordering {
		return nil
	}
	n, err := tx.Deliveries().CountUnfinished(before.ID, before.Ordering, maxReorder+1)
	if err == nil && n > maxReorder {
		v.Add(errs.LimitReached, "/ordering", "pending", "more than %d deliveries of this webhook are pending, "+
			"too many to change their ordering; wait until fewer are, or make a new webhook and delete this one", maxReorder)
	}
	return err
}

func reorder(tx *store.Tx, before, after models.Webhook) error {
	switch {
	case before.Ordering == after.Ordering:
		return nil
	case after.Ordering == models.OrderingAgent:
		return tx.Deliveries().Order(after.ID)
	}
	return tx.Deliveries().Unorder(after.ID)
}

// Rotate gives a webhook a new secret and, if it has one, a new signing key. The previous keys sign
// during the grace period, those of earlier rotations until their own end; without a grace period
// all end at once. It returns errs.InvalidRequest before errs.NotFound before errs.LimitReached.
func (w *Webhooks) Rotate(ctx context.Context, by models.Principal, id string, d SecretRotation, pre models.Precondition, once *models.Idempotency) (Created, error) {
	found, grace := input.Validate(d), defaultGrace
	if d.GraceSeconds != nil {
		grace = time.Duration(*d.GraceSeconds) * time.Second
	}
	made := checkSecret(&found, d.Secret)
	if err := found.Err(); err != nil {
		return Created{}, err
	}
	return w.storeSecret(ctx, by, made, once, "a webhook got a new secret", func(tx *store.Tx) (models.Webhook, error) {
		hook, err := lock(tx, by, id)
		if err := cmp.Or(err, pre.Check(hook.Version)); err != nil {
			return hook, err
		}
		if grace > 0 && len(activeKeys(hook.Keys, tx.Now())) > maxPreviousSecrets {
			return hook, errs.New(errs.LimitReached, "%d previous secrets of this webhook still sign, which is the maximum; wait until one expires, or rotate with grace_seconds 0, which ends all of them", maxPreviousSecrets)
		}
		hook.Keys = rotated(hook.Keys, made, grace, tx.Now())
		err = save(tx, &hook)
		return hook, err
	})
}

// maxPreviousSecrets limits how many secrets sign besides the newest.
const maxPreviousSecrets = 5

func rotated(k models.WebhookKeys, secret []byte, grace time.Duration, now time.Time) models.WebhookKeys {
	fresh := models.WebhookKeys{Secret: secret, PreviousKeys: []models.PreviousKeys{}}
	if k.SigningKey != nil {
		fresh.SigningKey = signature.NewSigningKey()
	}
	if grace > 0 {
		fresh.PreviousKeys = activeKeys(k, now)
		fresh.PreviousKeys[0].Until = now.Add(grace)
	}
	return fresh
}

// Delete removes a webhook with its deliveries, or returns errs.NotFound. It disables the webhook
// and deletes its history in batches: if ctx ends before that, the call can be repeated.
func (w *Webhooks) Delete(ctx context.Context, by models.Principal, id string, pre models.Precondition) error {
	err := w.store.Write(ctx, func(tx *store.Tx) error {
		hook, err := orCreated(lock(tx, by, id))
		if err := cmp.Or(err, pre.Check(hook.Version)); err != nil || !hook.Enabled {
			return err
		}
		hook.Enabled, hook.DisabledAt = false, new(tx.Now())
		return save(tx, &hook)
	})
	if err != nil {
		return err
	}
	w.notify(id, true)
	_, err = w.store.Repeat(ctx, func(tx *store.Tx, limit int) (int64, error) { return tx.Deliveries().Delete(id, limit) })
	if err != nil {
		return err
	}
	err = w.store.Write(ctx, func(tx *store.Tx) error {
		if _, err := orCreated(lock(tx, by, id)); err != nil { // deleted by another request meanwhile
			return err
		}
		return tx.Webhooks().Delete(id)
	})
	if err == nil {
		w.logChange(ctx, by, id, "a webhook was deleted")
	}
	return err
}

// Purge deletes deliveries that ended before the retention, with attempts; call it periodically.
func (w *Webhooks) Purge(ctx context.Context) error {
	before := w.store.Now().Add(-w.opts.Retention)
	hooks, err := w.store.Webhooks(ctx).List(models.System(), "", MaxWebhooks)
	for _, hook := range hooks {
		if err == nil {
			err = w.store.InBatches(ctx, func(tx *store.Tx, limit int) (int64, error) { return tx.Deliveries().Purge(hook.ID, before, limit) })
		}
	}
	return err
}
