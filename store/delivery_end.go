package store

import (
	"database/sql"
	"strings"
	"time"

	"comet/models"
)

// maxAttemptError is how much of an attempt's error is kept, in bytes.
const maxAttemptError = 1000

// Ended is a delivery whose attempt has ended.
type Ended struct {
	DeliveryID string
	Attempt    models.DeliveryAttempt
}

// SucceedDeliveries ends deliveries of a webhook with their first attempts. It leaves alone, and returns, those that are not there any more or at
// which an attempt was made before.
func (tx *Tx) SucceedDeliveries(webhookID string, all []Ended) (rest []Ended, err error) {
	if !tx.store.dialect.joinsValues {
		return tx.succeedEach(webhookID, all)
	}
	done := make(map[string]bool, len(all))
	for left := all; len(left) > 0; {
		n := maxRows
		for n > len(left) {
			n /= 2
		}
		query, args := tx.succeedQuery(webhookID, left[:n])
		err := tx.query(query, args, func(rows *sql.Rows) error {
			var id string
			err := rows.Scan(&id)
			done[id] = true
			return err
		})
		if err != nil {
			return nil, err
		}
		left = left[n:]
	}
	for _, e := range all {
		if !done[e.DeliveryID] {
			rest = append(rest, e)
		}
	}
	return rest, nil
}

// succeedQuery names the ids twice: by the list the planner finds the rows, whatever
// it believes about the table.
func (tx *Tx) succeedQuery(webhookID string, all []Ended) (string, []any) {
	const row = "(CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS BIGINT), CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS TEXT))"
	more, args, ids := len(all)-1, []any{}, []any{}
	for _, e := range all {
		args, ids = append(append(args, e.DeliveryID), lastAttempt(e.Attempt)...), append(ids, e.DeliveryID)
	}
	return `WITH made (mid, at, ms, status, error, response) AS (VALUES ` + row + strings.Repeat(", "+row, more) + `)
		UPDATE deliveries SET state = 2, due = ?, attempts = 1, tries = 1,
			last_at = at, last_ms = ms, last_status = status, last_error = error, last_response = response
		FROM made WHERE webhook_id = ? AND id = mid AND attempts = 0 AND id IN (?` + strings.Repeat(", ?", more) + `) RETURNING id`,
		append(append(args, micros(tx.now), webhookID), ids...)
}

// succeedEach is SucceedDeliveries with a statement for each.
func (tx *Tx) succeedEach(webhookID string, all []Ended) (rest []Ended, err error) {
	now := micros(tx.now)
	for _, e := range all {
		n, err := tx.exec(`UPDATE deliveries SET last_at = ?, last_ms = ?, last_status = ?, last_error = ?, last_response = ?,
			state = 2, due = ?, attempts = 1, tries = 1 WHERE webhook_id = ? AND id = ? AND attempts = 0`,
			append(lastAttempt(e.Attempt), now, webhookID, e.DeliveryID)...)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			rest = append(rest, e)
		}
	}
	return rest, nil
}

// lastAttempt are the values of the columns of the newest attempt.
func lastAttempt(a models.DeliveryAttempt) []any {
	return []any{
		micros(a.At), a.DurationMS, int64(a.Status), storable(a.Error, maxAttemptError), storable(a.ResponseExcerpt, models.MaxResponseExcerpt),
	}
}

// SucceedDelivery ends a delivery that Delivery returned with an attempt.
func (tx *Tx) SucceedDelivery(d models.Delivery, a models.DeliveryAttempt) error {
	return tx.keepAttempt(d, a, "due = ?, state = 2", micros(tx.now))
}

// FailDelivery keeps a failed attempt at a delivery that Delivery returned and sets
// its next one.
func (tx *Tx) FailDelivery(d models.Delivery, a models.DeliveryAttempt, next time.Time) error {
	return tx.keepAttempt(d, a, "due = ?", micros(next))
}

// MarkDeliveryDead keeps a failed attempt at a delivery that Delivery returned and gives
// the delivery up.
func (tx *Tx) MarkDeliveryDead(d models.Delivery, a models.DeliveryAttempt) error {
	return tx.keepAttempt(d, a, "due = ?, state = 3", micros(tx.now))
}

// CountFailure keeps a failed attempt at a delivery that has ended otherwise.
func (tx *Tx) CountFailure(d models.Delivery, a models.DeliveryAttempt) error {
	return tx.keepAttempt(d, a, "due = due")
}

// keepAttempt makes a the newest attempt and changes what set says.
func (tx *Tx) keepAttempt(d models.Delivery, a models.DeliveryAttempt, set string, args ...any) error {
	if d.Attempts > 0 {
		_, err := tx.exec(`INSERT INTO delivery_attempts (webhook_id, delivery_id, attempt, at, duration_ms, status, error, response)
			SELECT webhook_id, id, attempts, last_at, last_ms, last_status, last_error, last_response FROM deliveries WHERE webhook_id = ? AND id = ?`,
			d.WebhookID, d.ID)
		if err != nil {
			return err
		}
	}
	args = append(append(lastAttempt(a), args...), d.WebhookID, d.ID)
	_, err := tx.exec(`UPDATE deliveries SET attempts = attempts + 1, tries = tries + 1,
		last_at = ?, last_ms = ?, last_status = ?, last_error = ?, last_response = ?, `+set+" WHERE webhook_id = ? AND id = ?", args...)
	return err
}
