package store

import (
	"crypto/rand"
	"encoding/binary"
	"slices"
	"time"

	"github.com/google/uuid"

	"comet/models"
	"comet/store/filter"
)

// BenchmarkWebhooks in internal/bench measures the statements on deliveries, which are written
// by hand.

// The states of a delivery's row. Indexes and statements name them as literals, which
// is how the planner finds the indexes of a part of the rows.
const (
	stateWaiting   = 0 // behind an earlier one of its key
	stateReady     = 1
	stateSucceeded = 2
	stateDead      = 3
)

// The columns of a deliveryRow; pages leave out the data.
const (
	selectDelivery   = "SELECT id, webhook_id, event_id, type, key, event_at, data, attempts, tries, created_at, state, due FROM deliveries WHERE webhook_id = ?"
	selectDeliveries = "SELECT id, webhook_id, event_id, type, key, event_at, '', attempts, tries, created_at, state, due FROM deliveries"
)

// deliveryRow is a delivery as it is stored.
type deliveryRow struct {
	models.Delivery
	State int
	Due   time.Time
}

func (r deliveryRow) delivery() models.Delivery {
	d := r.Delivery
	switch d.State = models.DeliveryPending; r.State {
	case stateReady:
		d.NextAttemptAt = &r.Due
	case stateSucceeded:
		d.State, d.EndedAt = models.DeliverySucceeded, &r.Due
	case stateDead:
		d.State, d.EndedAt = models.DeliveryDead, &r.Due
	}
	return d
}

// List returns the page of a webhook's deliveries that q selects, newest first,
// without their data. It is empty for an unknown webhook.
func (r deliveryReader) List(webhookID string, q DeliveryQuery) ([]models.Delivery, error) {
	query, args := deliveriesQuery(webhookID, q)
	rows, err := list[deliveryRow](r.reader, query, args...)
	return convert(rows, deliveryRow.delivery), err
}

// deliveriesQuery builds the statement of a page. The ids carry the time of creation,
// so bounds of time are bounds of the index.
func deliveriesQuery(webhookID string, q DeliveryQuery) (string, []any) {
	where := q.where(webhookID)
	switch q.State {
	case models.DeliveryPending:
		// Either half has an index of its own, so the history is not read.
		where.And("id IN (SELECT id FROM deliveries WHERE webhook_id = ? AND state = 1 UNION ALL SELECT id FROM deliveries WHERE webhook_id = ? AND state = 0 AND "+
			unfinishedOrdered+")", webhookID, webhookID)
	case models.DeliverySucceeded:
		where.And("state = 2")
	case models.DeliveryDead:
		where.And("state = 3")
	}
	where.Optional("id < ?", q.Before)
	return selectDeliveries + where.SQL() + " ORDER BY id DESC LIMIT ?", append(where.Args, q.Limit)
}

// where selects deliveries by their webhook, type, id and time of creation.
func (q DeliveryQuery) where(webhookID string) (where filter.Clause) {
	where.And("webhook_id = ?", webhookID)
	if len(q.Types) > 0 {
		types, args := filter.In(q.Types)
		where.And("type IN "+types, args...)
	}
	where.Optional("id > ?", q.After)
	if !q.Since.IsZero() {
		where.And("id >= ? AND created_at >= ?", firstUUID7(q.Since), q.Since)
	}
	if !q.Until.IsZero() {
		where.And("id < ? AND created_at < ?", firstUUID7(q.Until.Add(time.Millisecond)), q.Until)
	}
	return where
}

// Get returns a delivery of a webhook, or errs.NotFound.
func (r deliveryReader) Get(webhookID, id string) (models.Delivery, error) {
	return findDelivery(r.point(), "", webhookID, id)
}

// Lock returns a delivery of a webhook and locks it, or errs.NotFound.
func (tx Deliveries) Lock(webhookID, id string) (models.Delivery, error) {
	return findDelivery(tx.reader, tx.engine.forUpdate, webhookID, id)
}

func findDelivery(from reader, lock, webhookID, id string) (models.Delivery, error) {
	row, err := one[deliveryRow](from, selectDelivery+" AND id = ?"+lock, webhookID, id)
	return row.delivery(), orMissing(err, "the webhook %q has no delivery %q", webhookID, id)
}

// Attempts returns the attempts of a delivery, the first one first; it is empty for an unknown one.
func (r deliveryReader) Attempts(webhookID, id string) ([]models.DeliveryAttempt, error) {
	const query = `SELECT attempt, at, duration_ms, status, error, response FROM delivery_attempts
		WHERE webhook_id = ? AND delivery_id = ?
		UNION ALL SELECT attempts, last_at, last_ms, last_status, last_error, last_response FROM deliveries
		WHERE webhook_id = ? AND id = ? AND attempts > 0 ORDER BY 1`
	return list[models.DeliveryAttempt](r.reader, query, webhookID, id, webhookID, id)
}

// NewDelivery is an event's delivery to one webhook that is to be written.
type NewDelivery struct {
	WebhookID string
	Event     *models.Event
	// Ordered is set in an ordered webhook, Waiting where an earlier event of the key goes first.
	Ordered, Waiting bool
}

const newDeliveryColumns = "webhook_id, id, event_id, position, type, key, event_at, data, due, created_at, state, ordered"

// Insert writes deliveries that are due at once. One that is there already,
// of the same event to the same webhook, is left as it is.
func (tx Deliveries) Insert(all []NewDelivery) error {
	const width = 12
	args := make([]any, 0, width*len(all))
	for _, d := range all {
		state, ordered := stateReady, 0
		if d.Waiting {
			state = stateWaiting
		}
		if d.Ordered {
			ordered = 1
		}
		e := d.Event
		args = append(args, d.WebhookID, uuid7(tx.now, e.Position), e.ID, e.Position, e.Type, e.Key, e.At, e.Data, tx.now, tx.now, state, ordered)
	}
	tx.state.wroteDeliveries = tx.state.wroteDeliveries || len(all) > 0
	return tx.insertRows("INSERT INTO deliveries ("+newDeliveryColumns+")", "ON CONFLICT (webhook_id, event_id) DO NOTHING", width, args)
}

// uuid7 returns a UUIDv7 of a time (RFC 9562 §5.7); those of one millisecond are in
// the order of the lowest 26 bits of n.
func uuid7(at time.Time, n int64) string {
	var id uuid.UUID
	_, _ = rand.Read(id[10:]) // never fails
	binary.BigEndian.PutUint64(id[:8], uint64(at.UnixMilli())<<16|0x7<<12|uint64(n>>14)&0xfff)
	binary.BigEndian.PutUint16(id[8:10], 0x8000|uint16(n&0x3fff))
	return id.String()
}

// firstUUID7 sorts before every UUIDv7 of the time or later.
func firstUUID7(at time.Time) string {
	var id uuid.UUID
	binary.BigEndian.PutUint64(id[:8], uint64(max(0, at.UnixMilli()))<<16)
	return id.String()
}

// Endpoint is an enabled webhook that has deliveries to be made, now or later.
type Endpoint struct {
	WebhookID string
	// Due is when the first of them is due.
	Due time.Time
	// LeaseOwner delivers to it until LeaseUntil; "" for no owner.
	LeaseOwner string
	LeaseUntil time.Time
}

// dueQuery looks once into the index for each webhook.
const dueQuery = `SELECT id, (SELECT min(due) FROM deliveries WHERE webhook_id = webhooks.id AND state = 1), lease_owner, lease_until
	FROM webhooks WHERE enabled = TRUE`

// DueEndpoints returns every enabled webhook with a delivery that is ready, in no particular order.
func (r webhookReader) DueEndpoints() ([]Endpoint, error) {
	out, err := list[Endpoint](r.reader, dueQuery)
	return slices.DeleteFunc(out, func(e Endpoint) bool { return e.Due.IsZero() }), err
}

// DueCursor is a position among a webhook's due deliveries; the zero value is before the first.
type DueCursor struct{ due, position int64 }

// Due returns up to limit of a webhook's deliveries that are ready and due
// at now, after a position, in the order of their due time and then of their events, with
// what an attempt needs to know of them, and the position of the last.
func (r deliveryReader) Due(webhookID string, now time.Time, after DueCursor, limit int) ([]models.Delivery, DueCursor, error) {
	rows, err := list[dueRow](r.reader, duePageQuery, webhookID, now, after.due, after.position, limit)
	if len(rows) > 0 {
		after = DueCursor{rows[len(rows)-1].Due, rows[len(rows)-1].Position}
	}
	return convert(rows, func(r dueRow) models.Delivery {
		r.State = models.DeliveryPending
		return r.Delivery
	}), after, err
}

// dueRow is a row of duePageQuery.
type dueRow struct {
	models.Delivery
	Due, Position int64
}

const duePageQuery = `SELECT id, webhook_id, event_id, type, key, event_at, data, attempts, tries, created_at, due, position FROM deliveries
	WHERE webhook_id = ? AND state = 1 AND due <= ? AND (due, position) > (?, ?) ORDER BY due, position LIMIT ?`

// In an ordered webhook only the first unfinished delivery of a key is ready; the others
// wait behind it. A transaction that ends deliveries of an ordered webhook, makes them
// unfinished again or changes the ordering holds the lock of Webhooks.Lock; one that creates
// deliveries holds that of Webhooks.LockSubscriptions. The two locks exclude each other.

// unfinishedOrdered selects the unfinished deliveries of ordered webhooks; it is the
// condition of their index.
const unfinishedOrdered = "state < 2 AND ordered = 1"

// UnfinishedKeys adds to into those of the keys that an ordered webhook has unfinished
// deliveries of.
func (r deliveryReader) UnfinishedKeys(webhookID string, keys []string, into map[string]bool) error {
	found, err := list[string](r.reader, "SELECT DISTINCT key FROM deliveries WHERE webhook_id = ? AND "+unfinishedOrdered+" AND key "+r.engine.in, webhookID, Keys(keys))
	for _, key := range found {
		into[key] = true
	}
	return err
}

// Promote makes the first unfinished delivery of each of the keys ready.
func (tx Deliveries) Promote(webhookID string, keys []string) error {
	return tx.run("WITH ended (key) AS ("+tx.engine.keys+")"+promoteEnded, Keys(keys), webhookID, webhookID)
}

// promoteEnded looks up each key once in the index, however many deliveries wait.
const promoteEnded = ` UPDATE deliveries SET state = 1 WHERE webhook_id = ? AND state = 0 AND id IN
	(SELECT (SELECT d.id FROM deliveries AS d WHERE d.webhook_id = ? AND d.key = ended.key AND ` + unfinishedOrdered + ` ORDER BY d.position LIMIT 1) FROM ended)`

// promoteAllQuery is the statement of Promote for all keys.
const promoteAllQuery = "WITH ended (key) AS (SELECT DISTINCT key FROM deliveries WHERE webhook_id = ? AND " + unfinishedOrdered + ")" + promoteEnded

// OrderKeys orders the deliveries of the keys: the first unfinished one of each key is ready,
// the others wait.
func (tx Deliveries) OrderKeys(webhookID string, keys []string) error {
	if err := tx.run(waitQuery+tx.engine.in, webhookID, Keys(keys)); err != nil {
		return err
	}
	return tx.Promote(webhookID, keys)
}

// waitQuery makes all deliveries of the keys wait.
const waitQuery = "UPDATE deliveries SET state = 0 WHERE webhook_id = ? AND state = 1 AND " + unfinishedOrdered + " AND key "

// CountUnfinished returns how many deliveries of a webhook with that ordering have not ended,
// up to most.
func (r deliveryReader) CountUnfinished(webhookID string, ordering models.Ordering, most int) (int, error) {
	which := "state = 1"
	if ordering == models.OrderingAgent {
		which = unfinishedOrdered
	}
	return one[int](r.reader, "SELECT count(*) FROM (SELECT 1 FROM deliveries WHERE webhook_id = ? AND "+which+" LIMIT ?) AS unfinished", webhookID, most)
}

// Order orders all deliveries of a webhook that was not ordered. A running attempt at a delivery
// that waits from now on still counts. Its duration grows with the number of unfinished deliveries.
func (tx Deliveries) Order(webhookID string) error {
	if err := tx.run("UPDATE deliveries SET state = 0, ordered = 1 WHERE webhook_id = ? AND state = 1", webhookID); err != nil {
		return err
	}
	return tx.run(promoteAllQuery, webhookID, webhookID, webhookID)
}

// Unorder makes every waiting delivery of a webhook ready. Its duration grows
// with the number of unfinished deliveries.
func (tx Deliveries) Unorder(webhookID string) error {
	tx.state.wroteDeliveries = true
	return tx.run("UPDATE deliveries SET state = 1, ordered = 0 WHERE webhook_id = ? AND "+unfinishedOrdered, webhookID)
}

// DeliveryQuery selects a page of a webhook's deliveries, newest first.
type DeliveryQuery struct {
	State models.DeliveryState // "" for all
	Types []models.EventType   // empty for all
	// Since and Until bound the time of creation, [Since, Until); zero for no bound.
	Since, Until time.Time
	// Before is the id behind which the page starts, "" for the newest. After is an id that is older.
	Before, After string
	Limit         int
}
