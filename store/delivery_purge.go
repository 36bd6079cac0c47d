package store

import "time"

// PurgeDeliveries deletes up to limit deliveries of a webhook that ended before the
// given time, with their attempts, and returns how many.
func (tx *Tx) PurgeDeliveries(webhookID string, before time.Time, limit int) (int64, error) {
	return tx.exec(purgeDeliveriesQuery, webhookID, webhookID, firstUUID7(before.Add(time.Millisecond)), micros(before), limit)
}

// purgeDeliveriesQuery begins with the oldest; what ended before a time was created
// before it.
const purgeDeliveriesQuery = `DELETE FROM deliveries WHERE webhook_id = ? AND id IN
	(SELECT id FROM deliveries WHERE webhook_id = ? AND id < ? AND state > 1 AND due < ? ORDER BY id LIMIT ?)`

// DeleteDeliveries deletes up to limit deliveries of a webhook, with their attempts,
// and returns how many.
func (tx *Tx) DeleteDeliveries(webhookID string, limit int) (int64, error) {
	return tx.exec(`DELETE FROM deliveries WHERE webhook_id = ? AND id IN
		(SELECT id FROM deliveries WHERE webhook_id = ? ORDER BY id LIMIT ?)`, webhookID, webhookID, limit)
}
