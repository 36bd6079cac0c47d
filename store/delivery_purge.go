package store

import "time"

// PurgeDeliveries deletes up to limit deliveries that ended before the given time,
// with their attempts, and returns how many.
func (tx *Tx) PurgeDeliveries(before time.Time, limit int) (int64, error) {
	return tx.exec(purgeDeliveriesQuery, micros(before), limit)
}

const purgeDeliveriesQuery = `DELETE FROM deliveries WHERE (webhook_id, id) IN
	(SELECT webhook_id, id FROM deliveries WHERE state > 1 AND due < ? ORDER BY due LIMIT ?)`

// DeleteDeliveries deletes up to limit deliveries of a webhook, with their attempts,
// and returns how many.
func (tx *Tx) DeleteDeliveries(webhookID string, limit int) (int64, error) {
	return tx.exec(`DELETE FROM deliveries WHERE webhook_id = ? AND id IN
		(SELECT id FROM deliveries WHERE webhook_id = ? ORDER BY id LIMIT ?)`, webhookID, webhookID, limit)
}
