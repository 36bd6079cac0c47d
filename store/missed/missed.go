// Package missed executes the statements on the events that a webhook has not received.
package missed

import (
	"time"

	"comet/store"
)

// Positions contains the positions (After, UpTo] of events.
type Positions struct{ After, UpTo int64 }

// Between returns the positions of the events in [since, until) whose deliveries are written; there may be
// other events among them.
func Between(from store.Source, alone bool, since, until time.Time) (Positions, error) {
	head := "position" // on PostgreSQL, the deliveries of an event are written together with its position
	if alone {
		head = "delivered"
	}
	return store.Row[Positions](from, "SELECT coalesce(min(position) - 1, 0), coalesce(max(position), 0) FROM events"+
		" WHERE at >= ? AND at < ? AND position <= (SELECT "+head+" FROM event_head WHERE id = 1)", since, until)
}

// Received returns the ids of those of the events that have a delivery to a webhook.
func Received(tx *store.Tx, webhookID string, eventIDs []string) ([]string, error) {
	return store.Rows[string](tx, "SELECT event_id FROM deliveries WHERE webhook_id = ? AND event_id "+store.In(tx), webhookID, store.Keys(eventIDs))
}
