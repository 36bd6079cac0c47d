// Package missed finds the events that a webhook has not received.
package missed

import (
	"sort"
	"time"

	"comet/internal/errs"
	"comet/store"
)

// maxSkew is how far the order of events may deviate from the order of their times, because transactions take
// time and clocks differ.
const maxSkew = 10 * time.Minute

// Between returns a range of positions (after, upTo] that contains all events in [since, until) whose deliveries
// are written, and possibly other events. A zero until is no bound.
func Between(from store.Source, alone bool, since, until time.Time) (after, upTo int64, err error) {
	head := "position" // on PostgreSQL, the deliveries of an event are written together with its position
	if alone {
		head = "delivered"
	}
	upTo, err = store.Row[int64](from, "SELECT "+head+" FROM event_head WHERE id = 1")
	if err == nil {
		after, err = positionBefore(from, since.Add(-maxSkew), upTo)
	}
	if err == nil && !until.IsZero() {
		upTo, err = positionBefore(from, until.Add(maxSkew), upTo)
	}
	return after, upTo, err
}

// positionBefore returns a position up to head after which the next event is not earlier than at. It uses a
// binary search, because events have no index on their time.
func positionBefore(from store.Source, at time.Time, head int64) (int64, error) {
	var failed error
	n := sort.Search(int(head), func(position int) bool {
		next, err := store.Row[int64](from, "SELECT at FROM events WHERE position > ? ORDER BY position LIMIT 1", position)
		if err != nil && !errs.Is(err, errs.NotFound) {
			failed = err
		}
		return err != nil || next >= at.UnixMicro()
	})
	return int64(n), failed
}

// Received returns the ids of the given events that have a delivery to a webhook.
func Received(tx *store.Tx, webhookID string, eventIDs []string) ([]string, error) {
	return store.Rows[string](tx, "SELECT event_id FROM deliveries WHERE webhook_id = ? AND event_id "+store.In(tx), webhookID, store.Keys(eventIDs))
}
