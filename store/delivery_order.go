package store

import (
	"strings"

	"comet/models"
)

// In an ordered webhook only the first unfinished delivery of a key is ready, the
// others wait behind it. Whoever ends deliveries of one, makes them unfinished again
// or changes the ordering holds the lock of Tx.Webhook; whoever creates some holds
// that of Tx.KeepSubscriptions. So nobody counts on what another is just changing.

// inLine holds for the unfinished deliveries of ordered webhooks; it is the condition
// of their index.
const inLine = "state < 2 AND in_line = 1"

// PromoteDeliveries makes the first unfinished delivery of each of the keys ready.
func (tx *Tx) PromoteDeliveries(webhookID string, keys []string) error {
	return eachKeys(anys(keys), 1, func(list string, args []any) error {
		return tx.each(promoteQuery(list), append(args, webhookID, webhookID)...)
	})
}

// promoteQuery looks once into the index for each key, however many wait.
func promoteQuery(list string) string {
	rows := strings.ReplaceAll(list[1:len(list)-1], "?", "(?)")
	return "WITH ended (key) AS (VALUES " + rows + ")" + promoteEnded
}

const promoteEnded = ` UPDATE deliveries SET state = 1 WHERE webhook_id = ? AND state = 0 AND id IN
	(SELECT (SELECT d.id FROM deliveries AS d WHERE d.webhook_id = ? AND d.key = ended.key AND ` + inLine + ` ORDER BY d.position LIMIT 1) FROM ended)`

// promoteAllQuery is promoteQuery for every key there is.
const promoteAllQuery = "WITH ended (key) AS (SELECT DISTINCT key FROM deliveries WHERE webhook_id = ? AND " + inLine + ")" + promoteEnded

// OrderKeys puts the deliveries of the keys in line: the first unfinished one of each
// is ready, the others wait.
func (tx *Tx) OrderKeys(webhookID string, keys []string) error {
	err := eachKeys(anys(keys), 1, func(list string, args []any) error {
		return tx.each(waitQuery(list), append([]any{webhookID}, args...)...)
	})
	if err != nil {
		return err
	}
	return tx.PromoteDeliveries(webhookID, keys)
}

// waitQuery makes all of the keys wait.
func waitQuery(list string) string {
	return "UPDATE deliveries SET state = 0 WHERE webhook_id = ? AND state = 1 AND " + inLine + " AND key IN " + list
}

// Unfinished returns how many deliveries of a webhook of that ordering have not ended,
// at most most.
func (tx *Tx) Unfinished(webhookID string, ordering models.Ordering, most int) (n int, err error) {
	which := "state = 1"
	if ordering == models.OrderingAgent {
		which = inLine
	}
	err = tx.queryRow("SELECT count(*) FROM (SELECT 1 FROM deliveries WHERE webhook_id = ? AND "+which+" LIMIT ?) AS unfinished", []any{webhookID, most}, &n)
	return n, err
}

// OrderDeliveries puts every delivery of a webhook in line that was not ordered. An
// attempt that is being made at one that waits from now on still counts. It takes as
// long as there are unfinished ones.
func (tx *Tx) OrderDeliveries(webhookID string) error {
	if err := tx.each("UPDATE deliveries SET state = 0, in_line = 1 WHERE webhook_id = ? AND state = 1", webhookID); err != nil {
		return err
	}
	return tx.each(promoteAllQuery, webhookID, webhookID, webhookID)
}

// UnorderDeliveries makes every delivery of a webhook that waits ready. It takes as
// long as there are unfinished ones.
func (tx *Tx) UnorderDeliveries(webhookID string) error {
	tx.wroteDeliveries = true
	return tx.each("UPDATE deliveries SET state = 1, in_line = 0 WHERE webhook_id = ? AND "+inLine, webhookID)
}

// each is exec for statements about any number of rows.
func (tx *Tx) each(query string, args ...any) error {
	_, err := tx.exec(query, args...)
	return err
}
