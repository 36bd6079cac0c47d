package store

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"comet/internal/errs"
	"comet/models"
)

// webhookColumns is scanned by webhookRow. The lease is not among them: it is the
// dispatchers' own and changes beside everything else.
const webhookColumns = "id, url, description, events, agent_id, subtree, ordering, enabled, disabled_reason, disabled_at, failing_since, failures, " +
	"secret, signing_key, old_secret, old_signing_key, old_until, created_by, created_at, updated_at"

// webhookRow is the scan target of webhookColumns.
type webhookRow struct {
	w                               models.Webhook
	events                          string
	subtree, enabled                any
	disabledAt, failingSince        *int64
	oldUntil, createdAt, lastChange int64
}

func (r *webhookRow) dest() []any {
	w := &r.w
	return []any{
		&w.ID, &w.URL, &w.Description, &r.events, &w.AgentID, &r.subtree, &w.Ordering, &r.enabled, &w.DisabledReason, &r.disabledAt, &r.failingSince, &w.Failures,
		&w.Keys.Secret, &w.Keys.SigningKey, &w.Keys.OldSecret, &w.Keys.OldSigningKey, &r.oldUntil, &w.CreatedBy, &r.createdAt, &r.lastChange,
	}
}

func (r *webhookRow) webhook() (models.Webhook, error) {
	w := r.w
	w.Subtree, w.Enabled = truth(r.subtree), truth(r.enabled)
	w.DisabledAt, w.FailingSince = timePtr(r.disabledAt), timePtr(r.failingSince)
	if r.oldUntil != 0 {
		w.Keys.OldUntil = fromMicros(r.oldUntil)
	}
	w.CreatedAt, w.UpdatedAt = fromMicros(r.createdAt), fromMicros(r.lastChange)
	var err error
	w.Events, err = decodeTypes(r.events)
	return w, err
}

func decodeTypes(text string) ([]models.EventType, error) {
	names, err := decodeStrings(text)
	types := make([]models.EventType, len(names))
	for i, n := range names {
		types[i] = models.EventType(n)
	}
	return types, err
}

// webhookValues are the values of webhookColumns.
func webhookValues(w models.Webhook) ([]any, error) {
	names := make([]string, len(w.Events))
	for i, t := range w.Events {
		names[i] = string(t)
	}
	events, err := encodeStrings(names)
	oldUntil := int64(0)
	if !w.Keys.OldUntil.IsZero() {
		oldUntil = micros(w.Keys.OldUntil)
	}
	return []any{
		w.ID, w.URL, w.Description, events, nullable(w.AgentID), w.Subtree, string(w.Ordering), w.Enabled, w.DisabledReason,
		nullable(microsPtr(w.DisabledAt)), nullable(microsPtr(w.FailingSince)), w.Failures, w.Keys.Secret, nullableBytes(w.Keys.SigningKey),
		nullableBytes(w.Keys.OldSecret), nullableBytes(w.Keys.OldSigningKey), oldUntil, w.CreatedBy, micros(w.CreatedAt), micros(w.UpdatedAt),
	}, err
}

func nullableBytes(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}

// Webhook returns the webhook with that id, or errs.NotFound.
func (s *Store) Webhook(ctx context.Context, id string) (models.Webhook, error) {
	var r webhookRow
	if err := s.pointRow(ctx, s.dialect.bind("SELECT "+webhookColumns+" FROM webhooks WHERE id = ?"), []any{id}, r.dest()...); err != nil {
		return models.Webhook{}, webhookMissing(err, id)
	}
	return r.webhook()
}

// Webhooks returns up to limit webhooks in the order of their ids, which is that of
// their creation, after the id after ("" starts at the first); of an agent only its
// own, nil for all.
func (s *Store) Webhooks(ctx context.Context, agentID *string, after string, limit int) ([]models.Webhook, error) {
	out, where, args := []models.Webhook{}, "id > ?", []any{after}
	if agentID != nil {
		where, args = where+" AND agent_id = ?", append(args, *agentID)
	}
	err := s.query(ctx, s.dialect.bind("SELECT "+webhookColumns+" FROM webhooks WHERE "+where+" ORDER BY id LIMIT ?"), append(args, limit),
		func(rows *sql.Rows) error {
			var r webhookRow
			if err := rows.Scan(r.dest()...); err != nil {
				return err
			}
			w, err := r.webhook()
			out = append(out, w)
			return err
		})
	return out, err
}

// Webhook returns the webhook with that id, or errs.NotFound. Until the transaction
// ends nobody changes it, creates deliveries for it or ends any.
func (tx *Tx) Webhook(id string) (models.Webhook, error) {
	return tx.webhook(id, tx.store.dialect.forUpdate)
}

// WebhookShared is Webhook for those who only need it to stay as it is: others may
// create and end deliveries meanwhile.
func (tx *Tx) WebhookShared(id string) (models.Webhook, error) {
	return tx.webhook(id, tx.store.dialect.forKeyShare)
}

func (tx *Tx) webhook(id, lock string) (models.Webhook, error) {
	var r webhookRow
	if err := tx.queryRow("SELECT "+webhookColumns+" FROM webhooks WHERE id = ?"+lock, []any{id}, r.dest()...); err != nil {
		return models.Webhook{}, webhookMissing(err, id)
	}
	return r.webhook()
}

// LockWebhooks makes transactions that count webhooks run one after the other.
func (tx *Tx) LockWebhooks() error {
	if tx.store.dialect.lockWebhooks == "" {
		return nil
	}
	_, err := tx.exec(tx.store.dialect.lockWebhooks)
	return err
}

// CountWebhooks returns how many webhooks there are.
func (tx *Tx) CountWebhooks() (n int, err error) {
	err = tx.queryRow("SELECT count(*) FROM webhooks", nil, &n)
	return n, err
}

// CountEnabledWebhooks returns how many webhooks hear of events.
func (tx *Tx) CountEnabledWebhooks() (n int, err error) {
	err = tx.queryRow("SELECT count(*) FROM webhooks WHERE "+tx.store.dialect.isTrue("enabled"), nil, &n)
	return n, err
}

// InsertWebhook stores a new webhook. It returns errs.Conflict when its id is taken
// or its agent unknown.
func (tx *Tx) InsertWebhook(w models.Webhook) error {
	args, err := webhookValues(w)
	if err != nil {
		return err
	}
	return tx.insertRows("INSERT INTO webhooks ("+webhookColumns+")", "", len(args), args)
}

// SaveWebhook stores the changed form of a webhook that Webhook returned. It returns
// errs.Conflict when its agent is unknown.
func (tx *Tx) SaveWebhook(w models.Webhook) error {
	args, err := webhookValues(w)
	if err != nil {
		return err
	}
	tx.wroteDeliveries = true // it may have been enabled
	_, err = tx.exec(`UPDATE webhooks SET url = ?, description = ?, events = ?, agent_id = ?, subtree = ?, ordering = ?, enabled = ?,
		disabled_reason = ?, disabled_at = ?, failing_since = ?, failures = ?, secret = ?, signing_key = ?, old_secret = ?, old_signing_key = ?,
		old_until = ?, created_by = ?, created_at = ?, updated_at = ? WHERE id = ?`, append(slices.Clone(args[1:]), w.ID)...)
	return err
}

// SaveFailing stores since when a webhook fails, nil where it works, and how often it
// has since.
func (tx *Tx) SaveFailing(id string, since *time.Time, failures int) error {
	_, err := tx.exec("UPDATE webhooks SET failing_since = ?, failures = ? WHERE id = ?", nullable(microsPtr(since)), failures, id)
	return err
}

// DeleteWebhook deletes a webhook that Webhook returned, with its deliveries.
func (tx *Tx) DeleteWebhook(id string) error {
	_, err := tx.exec("DELETE FROM webhooks WHERE id = ?", id)
	return err
}

func webhookMissing(err error, id string) error {
	if errs.Is(err, errs.NotFound) {
		return WebhookMissing(id)
	}
	return err
}

// WebhookMissing is the errs.NotFound of a webhook.
func WebhookMissing(id string) error { return errs.New(errs.NotFound, "there is no webhook %q", id) }
