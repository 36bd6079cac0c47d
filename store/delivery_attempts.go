package store

import (
	"slices"
	"strings"
	"time"

	"comet/models"
	"comet/store/columns"
)

// maxAttemptError is the maximum length of an attempt's stored error, in bytes.
const maxAttemptError = 1000

// Ended is a delivery whose attempt has ended.
type Ended struct {
	DeliveryID string
	Attempt    models.DeliveryAttempt
}

// SucceedAll ends deliveries of a webhook with their first attempts. It returns those
// that are missing or had an attempt before, and does not change them.
func (tx Deliveries) SucceedAll(webhookID string, all []Ended) (rest []Ended, err error) {
	if !tx.engine.joinsValues {
		return tx.succeedEach(webhookID, all)
	}
	done := make(map[string]bool, len(all))
	for left := all; len(left) > 0; {
		n := maxRows
		for n > len(left) {
			n /= 2
		}
		query, args := tx.succeedQuery(webhookID, left[:n])
		ids, err := list[string](tx.reader, query, args...)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			done[id] = true
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

// succeedQuery names the ids twice: by the list the planner finds the rows, whatever its
// statistics of the table are.
func (tx Deliveries) succeedQuery(webhookID string, all []Ended) (string, []any) {
	const row = "(CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS BIGINT), CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS TEXT))"
	more, args, ids := len(all)-1, []any{}, []any{}
	for _, e := range all {
		args, ids = append(append(args, e.DeliveryID), lastAttempt(e.Attempt)...), append(ids, e.DeliveryID)
	}
	return `WITH made (mid, at, ms, status, error, response) AS (VALUES ` + row + strings.Repeat(", "+row, more) + `)
		UPDATE deliveries SET state = 2, due = ?, attempts = 1, tries = 1,
			last_at = at, last_ms = ms, last_status = status, last_error = error, last_response = response
		FROM made WHERE webhook_id = ? AND id = mid AND attempts = 0 AND id IN (?` + strings.Repeat(", ?", more) + `) RETURNING id`,
		append(append(args, tx.now, webhookID), ids...)
}

// succeedEach is SucceedDeliveries with a statement for each.
func (tx Deliveries) succeedEach(webhookID string, all []Ended) (rest []Ended, err error) {
	for _, e := range all {
		n, err := tx.exec(`UPDATE deliveries SET last_at = ?, last_ms = ?, last_status = ?, last_error = ?, last_response = ?,
			state = 2, due = ?, attempts = 1, tries = 1 WHERE webhook_id = ? AND id = ? AND attempts = 0`,
			append(lastAttempt(e.Attempt), tx.now, webhookID, e.DeliveryID)...)
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
		a.At, a.DurationMS, a.Status, columns.Text(a.Error, maxAttemptError), columns.Text(a.ResponseExcerpt, MaxResponseExcerpt),
	}
}

// Succeed ends a delivery that Delivery returned with a successful attempt.
func (tx Deliveries) Succeed(d models.Delivery, a models.DeliveryAttempt) error {
	return tx.saveAttempt(d, a, "due = ?, state = 2", tx.now)
}

// Fail stores a failed attempt at a delivery that Delivery returned and sets its next one.
func (tx Deliveries) Fail(d models.Delivery, a models.DeliveryAttempt, next time.Time) error {
	return tx.saveAttempt(d, a, "due = ?", next)
}

// MarkDead stores a failed attempt at a delivery that Delivery returned and gives the delivery up.
func (tx Deliveries) MarkDead(d models.Delivery, a models.DeliveryAttempt) error {
	return tx.saveAttempt(d, a, "due = ?, state = 3", tx.now)
}

// CountFailure stores a failed attempt at a delivery that has ended otherwise.
func (tx Deliveries) CountFailure(d models.Delivery, a models.DeliveryAttempt) error {
	return tx.saveAttempt(d, a, "due = due")
}

// saveAttempt makes a the newest attempt and sets further columns.
func (tx Deliveries) saveAttempt(d models.Delivery, a models.DeliveryAttempt, set string, args ...any) error {
	if d.Attempts > 0 {
		err := tx.run(`INSERT INTO delivery_attempts (webhook_id, delivery_id, attempt, at, duration_ms, status, error, response)
			SELECT webhook_id, id, attempts, last_at, last_ms, last_status, last_error, last_response FROM deliveries WHERE webhook_id = ? AND id = ?`,
			d.WebhookID, d.ID)
		if err != nil {
			return err
		}
	}
	args = append(append(lastAttempt(a), args...), d.WebhookID, d.ID)
	return tx.run(`UPDATE deliveries SET attempts = attempts + 1, tries = tries + 1,
		last_at = ?, last_ms = ?, last_status = ?, last_error = ?, last_response = ?, `+set+" WHERE webhook_id = ? AND id = ?", args...)
}

// InsertTest writes a delivery that has ended with its only attempt and returns it
// with its id. It returns errs.Conflict for an unknown webhook.
func (tx Deliveries) InsertTest(d models.Delivery, a models.DeliveryAttempt) (models.Delivery, error) {
	state := stateDead
	if d.State == models.DeliverySucceeded {
		state = stateSucceeded
	}
	d.ID, d.CreatedAt, d.EndedAt, d.Attempts, d.Tries = uuid7(tx.now, 0), tx.now, &tx.now, 1, 1
	args := append([]any{d.WebhookID, d.ID, d.EventID, d.Type, d.Key, d.EventAt, d.Data, tx.now, tx.now, state}, lastAttempt(a)...)
	return d, tx.run("INSERT INTO deliveries ("+newDeliveryColumns+`, last_at, last_ms, last_status, last_error, last_response, attempts, tries)
		VALUES (?, ?, ?, 0, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?, 1, 1)`, args...)
}

// Redeliver makes a delivery that Delivery returned due at once and resets its tries.
// One that waits behind another keeps waiting; in an ordered webhook one that had ended waits
// for its turn again.
func (tx Deliveries) Redeliver(d models.Delivery, ordering models.Ordering) error {
	tx.state.wroteDeliveries = true
	set, args := "due = ?, tries = 0", []any{tx.now}
	if d.State != models.DeliveryPending {
		state, ordered := redelivered(ordering)
		set, args = set+", state = ?, ordered = ?", append(args, state, ordered)
	}
	if err := tx.run("UPDATE deliveries SET "+set+" WHERE webhook_id = ? AND id = ?", append(args, d.WebhookID, d.ID)...); err != nil {
		return err
	}
	if ordering == models.OrderingAgent && d.State != models.DeliveryPending {
		return tx.OrderKeys(d.WebhookID, []string{d.Key})
	}
	return nil
}

// redelivered returns the state and the order of a delivery that had ended.
func redelivered(ordering models.Ordering) (state, ordered int) {
	if ordering == models.OrderingAgent {
		return stateWaiting, 1 // until it is its turn
	}
	return stateReady, 0
}

// RedeliverAll makes up to q.Limit of the deliveries that q selects and that ended by a time due at once,
// the oldest first: the dead ones, and with succeeded all. It returns how many, and the id of the last. It
// leaves tests out.
func (tx Deliveries) RedeliverAll(webhookID string, q DeliveryQuery, succeeded bool, by time.Time, ordering models.Ordering) (n int, last string, err error) {
	tx.state.wroteDeliveries = true
	state, ordered := redelivered(ordering)
	where := q.where(webhookID)
	where.And(map[bool]string{false: "state = 3", true: "state IN (2, 3)"}[succeeded]+" AND position > 0 AND due <= ?", by)
	var keys []string
	err = each(tx.reader, func(d struct{ ID, Key string }) error {
		keys, last = append(keys, d.Key), max(last, d.ID)
		return nil
	}, "UPDATE deliveries SET due = ?, tries = 0, state = ?, ordered = ? WHERE webhook_id = ? AND state > 1 AND id IN (SELECT id FROM deliveries"+
		where.SQL()+" ORDER BY id LIMIT ?) RETURNING id, key", slices.Concat([]any{tx.now, state, ordered, webhookID}, where.Args, []any{q.Limit})...)
	n = len(keys)
	if err != nil || ordering != models.OrderingAgent {
		return n, last, err
	}
	slices.Sort(keys)
	return n, last, tx.OrderKeys(webhookID, slices.Compact(keys))
}

// Purge deletes up to limit deliveries of a webhook that ended before the
// given time, with their attempts, and returns how many.
func (tx Deliveries) Purge(webhookID string, before time.Time, limit int) (int64, error) {
	return tx.purge("deliveries", before, purgeDeliveriesQuery, webhookID, webhookID, firstUUID7(before.Add(time.Millisecond)), before, limit)
}

// purgeDeliveriesQuery starts with the oldest: a delivery that ended before a time was
// created before it.
const purgeDeliveriesQuery = `DELETE FROM deliveries WHERE webhook_id = ? AND id IN
	(SELECT id FROM deliveries WHERE webhook_id = ? AND id < ? AND state > 1 AND due < ? ORDER BY id LIMIT ?)`

// Delete deletes up to limit deliveries of a webhook, with their attempts, and returns how many.
func (tx Deliveries) Delete(webhookID string, limit int) (int64, error) {
	return tx.exec(`DELETE FROM deliveries WHERE webhook_id = ? AND id IN
		(SELECT id FROM deliveries WHERE webhook_id = ? ORDER BY id LIMIT ?)`, webhookID, webhookID, limit)
}

// MaxResponseExcerpt is the maximum length of a stored response, in bytes.
const MaxResponseExcerpt = 1024
