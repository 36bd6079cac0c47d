package store

import (
	"database/sql"
	"time"

	"comet/models"
)

// RedeliverDelivery makes a delivery that Delivery returned due at once, as if no
// attempt had been made yet. One that waits behind another keeps waiting, and in an
// ordered webhook one that had ended gets in line again.
func (tx *Tx) RedeliverDelivery(d models.Delivery, ordering models.Ordering) error {
	tx.wroteDeliveries = true
	set, args := "due = ?, tries = 0", []any{micros(tx.now)}
	if d.State != models.DeliveryPending {
		state, line := stateOfAgain(ordering)
		set, args = set+", state = ?, in_line = ?", append(args, state, line)
	}
	if err := tx.each("UPDATE deliveries SET "+set+" WHERE webhook_id = ? AND id = ?", append(args, d.WebhookID, d.ID)...); err != nil {
		return err
	}
	if ordering == models.OrderingAgent && d.State != models.DeliveryPending {
		return tx.OrderKeys(d.WebhookID, []string{d.Key})
	}
	return nil
}

func stateOfAgain(ordering models.Ordering) (state, line int) {
	if ordering == models.OrderingAgent {
		return stateWaiting, 1 // until it is its turn
	}
	return stateReady, 0
}

// RedeliverDead makes up to limit of a webhook's dead deliveries of events that were
// created at or after since due at once and returns how many. Tests are no events.
func (tx *Tx) RedeliverDead(webhookID string, since time.Time, ordering models.Ordering, limit int) (n int64, err error) {
	tx.wroteDeliveries = true
	keys := map[string]bool{}
	state, line := stateOfAgain(ordering)
	err = tx.query(`UPDATE deliveries SET due = ?, tries = 0, state = ?, in_line = ? WHERE webhook_id = ? AND state = 3 AND id IN
			(SELECT id FROM deliveries WHERE webhook_id = ? AND state = 3 AND position > 0 AND id >= ? AND created_at >= ? ORDER BY id LIMIT ?)
		RETURNING key`, []any{micros(tx.now), state, line, webhookID, webhookID, firstUUID7(since), micros(since), limit},
		func(rows *sql.Rows) error {
			var key string
			err := rows.Scan(&key)
			keys[key] = true
			n++
			return err
		})
	if err != nil || ordering != models.OrderingAgent {
		return n, err
	}
	list := make([]string, 0, len(keys))
	for key := range keys {
		list = append(list, key)
	}
	return n, tx.OrderKeys(webhookID, list)
}
