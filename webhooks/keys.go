package webhooks

import (
	"time"

	"comet/models"
	"comet/webhooks/signature"
)

// PublicKeys returns the public halves whpk_… of the active signing keys, the newest first.
func PublicKeys(k models.WebhookKeys, now time.Time) []string {
	var all []string
	if k.SigningKey != nil {
		all = append(all, signature.PublicKey(k.SigningKey))
	}
	if k.OldSigningKey != nil && now.Before(k.OldUntil) {
		all = append(all, signature.PublicKey(k.OldSigningKey))
	}
	return all
}

// signatures returns the signature header of an attempt: those of the secrets, then those of the
// signing keys, the newest first. For some time after a rotation the old keys sign, too, so that
// receivers can switch at any time.
func signatures(k models.WebhookKeys, id string, at time.Time, body []byte) string {
	old := at.Before(k.OldUntil)
	header := signature.Sign(k.Secret, id, at, body)
	if old && k.OldSecret != nil {
		header += " " + signature.Sign(k.OldSecret, id, at, body)
	}
	if k.SigningKey != nil {
		header += " " + signature.SignAsymmetric(k.SigningKey, id, at, body)
	}
	if old && k.OldSigningKey != nil {
		header += " " + signature.SignAsymmetric(k.OldSigningKey, id, at, body)
	}
	return header
}
