package store

import (
	"database/sql"
	"time"

	"comet/models"
)

// maxAttemptError is how much of an attempt's error is kept, in bytes.
const maxAttemptError = 1000

// Ended is a delivery whose attempt has ended.
type Ended struct {
	DeliveryID string
	Key        string
	// Attempt carries its number once it is counted.
	Attempt models.DeliveryAttempt
}

// SucceedDeliveries ends a webhook's deliveries and keeps their successful attempts.
// It returns those that there still are.
func (tx *Tx) SucceedDeliveries(webhookID string, all []Ended) ([]Ended, error) {
	attempts := make(map[string]models.DeliveryAttempt, len(all))
	ids := make([]any, len(all))
	for i, e := range all {
		attempts[e.DeliveryID], ids[i] = e.Attempt, e.DeliveryID
	}
	ended := make([]Ended, 0, len(all))
	err := eachKeys(ids, 1, func(list string, args []any) error {
		return tx.query(`UPDATE deliveries SET state = 2, due = ?, attempts = attempts + 1, tries = tries + 1
			WHERE webhook_id = ? AND id IN `+list+" RETURNING id, key, attempts", append([]any{micros(tx.now), webhookID}, args...),
			func(rows *sql.Rows) error {
				var e Ended
				var number int
				err := rows.Scan(&e.DeliveryID, &e.Key, &number)
				e.Attempt = attempts[e.DeliveryID]
				e.Attempt.Attempt = number
				ended = append(ended, e)
				return err
			})
	})
	if err != nil {
		return nil, err
	}
	return ended, tx.insertAttempts(webhookID, ended)
}

// FailDelivery keeps a failed attempt at a delivery that Delivery returned and sets
// its next one.
func (tx *Tx) FailDelivery(d models.Delivery, a models.DeliveryAttempt, next time.Time) error {
	return tx.fail(d, a, "due = ?", micros(next))
}

// BuryDelivery keeps a failed attempt at a delivery that Delivery returned and gives
// the delivery up.
func (tx *Tx) BuryDelivery(d models.Delivery, a models.DeliveryAttempt) error {
	return tx.fail(d, a, "due = ?, state = 3", micros(tx.now))
}

// CountFailure keeps a failed attempt at a delivery that has ended otherwise.
func (tx *Tx) CountFailure(d models.Delivery, a models.DeliveryAttempt) error {
	return tx.fail(d, a, "due = due")
}

func (tx *Tx) fail(d models.Delivery, a models.DeliveryAttempt, set string, args ...any) error {
	_, err := tx.exec("UPDATE deliveries SET attempts = attempts + 1, tries = tries + 1, "+set+" WHERE webhook_id = ? AND id = ?",
		append(args, d.WebhookID, d.ID)...)
	if err != nil {
		return err
	}
	a.Attempt = d.Attempts + 1
	return tx.insertAttempts(d.WebhookID, []Ended{{DeliveryID: d.ID, Attempt: a}})
}

func (tx *Tx) insertAttempts(webhookID string, all []Ended) error {
	const width = 8
	args := make([]any, 0, width*len(all))
	for _, e := range all {
		a := e.Attempt
		args = append(args, webhookID, e.DeliveryID, max(1, a.Attempt), micros(a.At), a.DurationMS, a.Status,
			storable(a.Error, maxAttemptError), storable(a.ResponseExcerpt, models.MaxResponseExcerpt))
	}
	return tx.insertRows("INSERT INTO delivery_attempts (webhook_id, delivery_id, attempt, at, duration_ms, status, error, response)", "", width, args)
}
