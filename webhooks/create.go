package webhooks

import (
	"context"

	"github.com/google/uuid"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/models"
	"comet/store"
	"comet/webhooks/signature"
)

// Created is a webhook with its secret, which is shown once.
type Created struct {
	Webhook models.Webhook
	Secret  string // whsec_…
}

// Create registers a webhook (CHE·NU §9). It reports all violations of the lowest class at once:
// errs.ForeignAgent before errs.InvalidRequest before AddressRefused and LimitReached. With an
// idempotency key a repeated request has no second effect; the caller stores the response without
// the secret.
func (w *Webhooks) Create(ctx context.Context, by models.Principal, d models.WebhookDraft, once *models.Idempotency) (Created, error) {
	if err := checkBound(by, d.AgentID); err != nil {
		return Created{}, err
	}
	v := input.Validate(d)
	if d.URL != nil && !v.Has("/url") {
		w.checkURL(&v, *d.URL)
	}
	checkEvents(&v, d.Events)
	text := ""
	if d.Secret != nil {
		text = *d.Secret
		if text == "" {
			v.Add(errs.InvalidRequest, "/secret", "secret", "secret must not be empty; leave it out to have one made")
		}
	}
	secret := checkSecret(&v, text)
	var out Created
	err := w.store.Write(ctx, func(tx *store.Tx) error {
		return tx.Idempotent(once, func() (any, error) {
			hook, err := fromDraft(tx, by, d, append(errs.Violations(nil), v...))
			if err != nil {
				return nil, err
			}
			hook.Keys.Secret = secret
			out = Created{hook, signature.FormatSecret(secret)}
			return out, tx.InsertWebhook(hook)
		})
	})
	if err != nil {
		return Created{}, err
	}
	if notReplayed(once) {
		w.logChange(ctx, by, out.Webhook.ID, "a webhook was created")
	}
	return out, nil
}

// fromDraft returns the webhook that a draft describes; found are its violations.
func fromDraft(tx *store.Tx, by models.Principal, d models.WebhookDraft, found errs.Violations) (models.Webhook, error) {
	err := checkFilter(&found, d.AgentID, orFalse(d.Subtree), tx.AgentExists)
	if err != nil {
		return models.Webhook{}, err
	}
	if err := found.Err(); err != nil {
		return models.Webhook{}, err
	}
	if err := checkWebhookLimit(tx); err != nil {
		return models.Webhook{}, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return models.Webhook{}, err
	}
	hook := models.Webhook{
		ID: id.String(), URL: *d.URL, Description: d.Description, Events: d.Events, AgentID: d.AgentID, Subtree: orFalse(d.Subtree),
		Ordering: models.OrderingNone, Enabled: d.Enabled == nil || *d.Enabled, CreatedBy: by.Name, CreatedAt: tx.Now(), UpdatedAt: tx.Now(),
	}
	if d.Ordering != nil {
		hook.Ordering = *d.Ordering
	}
	if !hook.Enabled {
		hook.DisabledAt = new(tx.Now())
	}
	if orFalse(d.Asymmetric) {
		hook.Keys.SigningKey = signature.NewSigningKey()
	}
	return hook, nil
}

func checkWebhookLimit(tx *store.Tx) error {
	if err := tx.LockWebhooks(); err != nil {
		return err
	}
	n, err := tx.CountWebhooks()
	if err == nil && n >= models.MaxWebhooks {
		return errs.New(errs.LimitReached, "there are %d webhooks, and there may be no more; delete one first", n)
	}
	return err
}

func orFalse(b *bool) bool { return b != nil && *b }
