package webhooks

import (
	"context"
	"time"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
	"comet/webhooks/signature"
)

// Rotate gives a webhook a new secret and, if it has one, a new signing key. The previous keys
// sign during the grace period; those of earlier rotations stop signing. secret is the new
// secret, "" to generate one. It returns errs.NotFound, or errs.InvalidRequest.
func (w *Webhooks) Rotate(ctx context.Context, by models.Principal, id, secret string, grace time.Duration, once *models.Idempotency) (Created, error) {
	var found errs.Violations
	made := checkSecret(&found, secret)
	if grace < 0 || grace > maxGrace {
		found.Add(errs.InvalidRequest, "/grace_seconds", "max", "grace_seconds must be 0 to %d", int64(maxGrace/time.Second))
	}
	var out Created
	err := w.store.Write(ctx, func(tx *store.Tx) error {
		return tx.Idempotent(once, func() (any, error) {
			hook, err := lock(tx, by, id)
			if err != nil {
				return nil, err
			}
			if err := found.Err(); err != nil {
				return nil, err
			}
			hook.Keys, hook.UpdatedAt = rotated(hook.Keys, made, grace, tx.Now()), tx.Now()
			out = Created{hook, signature.FormatSecret(made)}
			return out, tx.SaveWebhook(hook)
		})
	})
	if err != nil {
		return Created{}, err
	}
	w.markOutdated(id)
	if notReplayed(once) {
		w.logChange(ctx, by, id, "a webhook got a new secret")
	}
	return out, nil
}

func rotated(k models.WebhookKeys, secret []byte, grace time.Duration, now time.Time) models.WebhookKeys {
	fresh := models.WebhookKeys{Secret: secret}
	if k.SigningKey != nil {
		fresh.SigningKey = signature.NewSigningKey()
	}
	if grace > 0 {
		fresh.OldSecret, fresh.OldSigningKey, fresh.OldUntil = k.Secret, k.SigningKey, now.Add(grace)
	}
	return fresh
}
