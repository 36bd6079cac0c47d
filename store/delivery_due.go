package store

import (
	"context"
	"database/sql"
	"time"

	"comet/internal/errs"
	"comet/models"
)

// Endpoint is an enabled webhook that has deliveries to be made, now or later.
type Endpoint struct {
	WebhookID string
	// Due is when the first of them is due.
	Due time.Time
	// LeaseOwner delivers to it until LeaseUntil; "" for nobody.
	LeaseOwner string
	LeaseUntil time.Time
}

// dueQuery looks once into the index for each webhook.
func (s *Store) dueQuery() string {
	return "SELECT id, lease_owner, lease_until, (SELECT min(due) FROM deliveries WHERE webhook_id = webhooks.id AND state = 1) FROM webhooks WHERE " +
		s.dialect.isTrue("enabled")
}

// DueEndpoints returns every enabled webhook with a delivery that is ready, in no
// particular order.
func (s *Store) DueEndpoints(ctx context.Context) (out []Endpoint, err error) {
	err = s.query(ctx, s.dueQuery(), nil, func(rows *sql.Rows) error {
		var e Endpoint
		var until int64
		var due *int64
		if err := rows.Scan(&e.WebhookID, &e.LeaseOwner, &until, &due); err != nil || due == nil {
			return err
		}
		e.Due, e.LeaseUntil = fromMicros(*due), fromMicros(until)
		out = append(out, e)
		return nil
	})
	return out, err
}

// DueCursor is a place among a webhook's due deliveries; the zero value is before the
// first.
type DueCursor struct{ due, position int64 }

// DueDeliveries returns up to limit of a webhook's deliveries that are ready and due
// at now, behind a place, in the order of their due time and then of their events, as
// far as an attempt needs to know them, and the place of the last.
func (s *Store) DueDeliveries(ctx context.Context, webhookID string, now time.Time, after DueCursor, limit int) ([]models.Delivery, DueCursor, error) {
	var due, position, eventAt, attempts any
	var data string
	var out []models.Delivery
	d := models.Delivery{WebhookID: webhookID, State: models.DeliveryPending}
	dest := []any{&due, &position, &d.ID, &d.EventID, &d.Type, &d.Key, &eventAt, &attempts, &data}
	err := s.query(ctx, s.duePageQuery(), []any{webhookID, micros(now), after.due, after.position, limit}, func(rows *sql.Rows) error {
		err := rows.Scan(dest...)
		d.EventAt, d.Attempts, d.Data = fromMicros(whole(eventAt)), int(whole(attempts)), []byte(data)
		out = append(out, d)
		return err
	})
	if len(out) > 0 {
		after = DueCursor{whole(due), whole(position)}
	}
	return out, after, err
}

func (s *Store) duePageQuery() string {
	return s.dialect.bind(`SELECT due, position, id, event_id, type, key, event_at, attempts, data FROM deliveries
		WHERE webhook_id = ? AND state = 1 AND due <= ? AND (due, position) > (?, ?) ORDER BY due, position LIMIT ?`)
}

// LeaseWebhook gives an enabled webhook to one owner until the given time, if nobody
// else has it; ok tells. It renews the owner's own lease too.
func (tx *Tx) LeaseWebhook(id, owner string, until time.Time) (w models.Webhook, ok bool, err error) {
	var r webhookRow
	err = tx.queryRow("UPDATE webhooks SET lease_owner = ?, lease_until = ? WHERE id = ? AND "+tx.store.dialect.isTrue("enabled")+
		" AND (lease_owner = '' OR lease_owner = ? OR lease_until <= ?) RETURNING "+webhookColumns,
		[]any{owner, micros(until), id, owner, micros(tx.now)}, r.dest()...)
	if errs.Is(err, errs.NotFound) {
		return w, false, nil
	}
	if err != nil {
		return w, false, err
	}
	w, err = r.webhook()
	return w, err == nil, err
}

// ReleaseWebhook ends the owner's lease, if it still has it.
func (tx *Tx) ReleaseWebhook(id, owner string) error {
	tx.wroteDeliveries = true // another may go on
	_, err := tx.exec("UPDATE webhooks SET lease_owner = '', lease_until = 0 WHERE id = ? AND lease_owner = ?", id, owner)
	return err
}

// ReleaseWebhooks ends every lease, for a database that no other process has open.
func (tx *Tx) ReleaseWebhooks() error {
	_, err := tx.exec("UPDATE webhooks SET lease_owner = '', lease_until = 0 WHERE lease_owner <> ''")
	return err
}
