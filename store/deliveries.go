package store

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"comet/models"
)

// DeliveryReader reads deliveries, on the read pool or in a transaction.
type DeliveryReader struct{ from reader }

// Deliveries holds the operations of a transaction on deliveries.
type Deliveries struct {
	DeliveryReader
	*transaction
}

// Deliveries returns the operations on deliveries.
func (tx *Tx) Deliveries() Deliveries { return Deliveries{DeliveryReader{tx.reader}, &tx.transaction} }

// Deliveries returns the reads of deliveries.
func (s *Store) Deliveries(ctx context.Context) DeliveryReader { return DeliveryReader{s.on(ctx)} }

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

const (
	deliveryFacts   = "webhook_id, id, event_id, type, key, event_at, state, due, attempts, tries, created_at"
	deliveryColumns = deliveryFacts + ", data"
)

// deliveryRow is a row of deliveryColumns.
type deliveryRow struct {
	models.Delivery
	state int
	due   time.Time
}

func (r *deliveryRow) dest() []any {
	d := &r.Delivery
	return []any{
		&d.WebhookID, &d.ID, &d.EventID, &d.Type, &d.Key, ScanTime{&d.EventAt}, intInto(&r.state), ScanTime{&r.due}, intInto(&d.Attempts), intInto(&d.Tries),
		ScanTime{&d.CreatedAt}, scanJSON{(*json.RawMessage)(&d.Data)},
	}
}

func (r deliveryRow) delivery() models.Delivery {
	d := r.Delivery
	switch d.State = models.DeliveryPending; r.state {
	case stateReady:
		d.NextAttemptAt = &r.due
	case stateSucceeded:
		d.State, d.EndedAt = models.DeliverySucceeded, &r.due
	case stateDead:
		d.State, d.EndedAt = models.DeliveryDead, &r.due
	}
	return d
}

// List returns the page of a webhook's deliveries that q selects, newest first,
// without their data. It is empty for an unknown webhook.
func (r DeliveryReader) List(webhookID string, q DeliveryQuery) ([]models.Delivery, error) {
	query, args := deliveriesQuery(webhookID, q)
	rows, err := list(r.from, query, args, (*deliveryRow).dest)
	return convert(rows, deliveryRow.delivery), err
}

// deliveriesQuery builds the statement of a page. The ids carry the time of creation,
// so bounds of time are bounds of the index.
func deliveriesQuery(webhookID string, q DeliveryQuery) (string, []any) {
	query, args := "SELECT "+deliveryFacts+", '' FROM deliveries WHERE webhook_id = ?", []any{webhookID}
	and := func(term string, more ...any) { query, args = query+" AND "+term, append(args, more...) }
	switch q.State {
	case models.DeliveryPending:
		// Either half has an index of its own, so the history is not read.
		and("id IN (SELECT id FROM deliveries WHERE webhook_id = ? AND state = 1 UNION ALL SELECT id FROM deliveries WHERE webhook_id = ? AND state = 0 AND "+
			unfinishedOrdered+")", webhookID, webhookID)
	case models.DeliverySucceeded:
		and("state = 2")
	case models.DeliveryDead:
		and("state = 3")
	}
	if q.Type != "" {
		and("type = ?", string(q.Type))
	}
	if !q.Since.IsZero() {
		and("id >= ? AND created_at >= ?", firstUUID7(q.Since), Micros(q.Since))
	}
	if !q.Until.IsZero() {
		and("id < ? AND created_at < ?", firstUUID7(q.Until.Add(time.Millisecond)), Micros(q.Until))
	}
	if q.Before != "" {
		and("id < ?", q.Before)
	}
	return query + " ORDER BY id DESC LIMIT ?", append(args, q.Limit)
}

const selectDelivery = "SELECT " + deliveryColumns + " FROM deliveries WHERE webhook_id = ? AND id = ?"

// Get returns a delivery of a webhook, or errs.NotFound.
func (r DeliveryReader) Get(webhookID, id string) (models.Delivery, error) {
	return findDelivery(r.from.point(), selectDelivery, webhookID, id)
}

// Lock returns a delivery of a webhook and locks it, or errs.NotFound.
func (tx Deliveries) Lock(webhookID, id string) (models.Delivery, error) {
	return findDelivery(tx.reader, selectDelivery+tx.engine.forUpdate, webhookID, id)
}

func findDelivery(from reader, query, webhookID, id string) (models.Delivery, error) {
	row, err := one(from, query, []any{webhookID, id}, (*deliveryRow).dest)
	return row.delivery(), orMissing(err, "the webhook %q has no delivery %q", webhookID, id)
}

// Attempts returns the attempts of a delivery, the first one first; it is
// empty for an unknown one.
func (r DeliveryReader) Attempts(webhookID, id string) ([]models.DeliveryAttempt, error) {
	const query = `SELECT attempt, at, duration_ms, status, error, response FROM delivery_attempts
		WHERE webhook_id = ? AND delivery_id = ?
		UNION ALL SELECT attempts, last_at, last_ms, last_status, last_error, last_response FROM deliveries
		WHERE webhook_id = ? AND id = ? AND attempts > 0 ORDER BY 1`
	return list(r.from, query, []any{webhookID, id, webhookID, id}, func(a *models.DeliveryAttempt) []any {
		return []any{intInto(&a.Attempt), ScanTime{&a.At}, &a.DurationMS, intInto(&a.Status), &a.Error, &a.ResponseExcerpt}
	})
}

// NewDelivery is an event's delivery to one webhook that is to be written.
type NewDelivery struct {
	WebhookID string
	Event     *models.Event
	// Ordered is set in an ordered webhook, Waiting where an earlier event of the key
	// goes first.
	Ordered, Waiting bool
}

const newDeliveryColumns = "webhook_id, id, event_id, position, type, key, event_at, data, due, created_at, state, ordered"

// Insert writes deliveries that are due at once. One that is there already,
// of the same event to the same webhook, is left as it is.
func (tx Deliveries) Insert(all []NewDelivery) error {
	const width = 12
	args := make([]any, 0, width*len(all))
	now := Micros(tx.now)
	for _, d := range all {
		state, ordered := stateReady, 0
		if d.Waiting {
			state = stateWaiting
		}
		if d.Ordered {
			ordered = 1
		}
		e := d.Event
		args = append(args, d.WebhookID, uuid7(tx.now, e.Position), e.ID, e.Position, string(e.Type), e.Key, Micros(e.At), string(e.Data),
			now, now, state, ordered)
	}
	tx.wroteDeliveries = tx.wroteDeliveries || len(all) > 0
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
func (r WebhookReader) dueQuery() string {
	return "SELECT id, lease_owner, lease_until, (SELECT min(due) FROM deliveries WHERE webhook_id = webhooks.id AND state = 1) FROM webhooks WHERE " +
		r.from.store.engine.isTrue("enabled")
}

// DueEndpoints returns every enabled webhook with a delivery that is ready, in no
// particular order.
func (r WebhookReader) DueEndpoints() ([]Endpoint, error) {
	out, err := list(r.from, r.dueQuery(), nil, func(e *Endpoint) []any {
		return []any{&e.WebhookID, &e.LeaseOwner, ScanTime{&e.LeaseUntil}, ScanTime{&e.Due}}
	})
	return slices.DeleteFunc(out, func(e Endpoint) bool { return e.Due.IsZero() }), err
}

// DueCursor is a position among a webhook's due deliveries; the zero value is before the
// first.
type DueCursor struct{ due, position int64 }

// Due returns up to limit of a webhook's deliveries that are ready and due
// at now, after a position, in the order of their due time and then of their events, with
// what an attempt needs to know of them, and the position of the last.
func (r DeliveryReader) Due(webhookID string, now time.Time, after DueCursor, limit int) ([]models.Delivery, DueCursor, error) {
	out, err := list(r.from, duePageQuery, []any{webhookID, Micros(now), after.due, after.position, limit}, func(d *models.Delivery) []any {
		d.WebhookID, d.State = webhookID, models.DeliveryPending
		return []any{&after.due, &after.position, &d.ID, &d.EventID, &d.Type, &d.Key, ScanTime{&d.EventAt}, intInto(&d.Attempts), scanJSON{(*json.RawMessage)(&d.Data)}}
	})
	return out, after, err
}

const duePageQuery = `SELECT due, position, id, event_id, type, key, event_at, attempts, data FROM deliveries
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
func (r DeliveryReader) UnfinishedKeys(webhookID string, keys []string, into map[string]bool) error {
	found, err := listIn(r.from, keys, column[string],
		"SELECT DISTINCT key FROM deliveries WHERE webhook_id = ? AND "+unfinishedOrdered+" AND key IN (keys)", webhookID)
	for _, key := range found {
		into[key] = true
	}
	return err
}

// Promote makes the first unfinished delivery of each of the keys ready.
func (tx Deliveries) Promote(webhookID string, keys []string) error {
	return EachKeys(anys(keys), 1, func(list string, args []any) error {
		return tx.each(promoteQuery(list), append(args, webhookID, webhookID)...)
	})
}

// promoteQuery looks once into the index for each key, however many deliveries wait.
func promoteQuery(list string) string {
	rows := strings.ReplaceAll(list[1:len(list)-1], "?", "(?)")
	return "WITH ended (key) AS (VALUES " + rows + ")" + promoteEnded
}

const promoteEnded = ` UPDATE deliveries SET state = 1 WHERE webhook_id = ? AND state = 0 AND id IN
	(SELECT (SELECT d.id FROM deliveries AS d WHERE d.webhook_id = ? AND d.key = ended.key AND ` + unfinishedOrdered + ` ORDER BY d.position LIMIT 1) FROM ended)`

// promoteAllQuery is promoteQuery for every key there is.
const promoteAllQuery = "WITH ended (key) AS (SELECT DISTINCT key FROM deliveries WHERE webhook_id = ? AND " + unfinishedOrdered + ")" + promoteEnded

// orderKeys orders the deliveries of the keys: the first unfinished one of each is ready,
// the others wait.
func (tx Deliveries) orderKeys(webhookID string, keys []string) error {
	if _, err := tx.execIn(keys, waitQuery, webhookID); err != nil {
		return err
	}
	return tx.Promote(webhookID, keys)
}

// waitQuery makes all deliveries of the keys wait.
const waitQuery = "UPDATE deliveries SET state = 0 WHERE webhook_id = ? AND state = 1 AND " + unfinishedOrdered + " AND key IN (keys)"

// CountUnfinished returns how many deliveries of a webhook with that ordering have not ended,
// up to most.
func (r DeliveryReader) CountUnfinished(webhookID string, ordering models.Ordering, most int) (int, error) {
	which := "state = 1"
	if ordering == models.OrderingAgent {
		which = unfinishedOrdered
	}
	return value[int](r.from, "SELECT count(*) FROM (SELECT 1 FROM deliveries WHERE webhook_id = ? AND "+which+" LIMIT ?) AS unfinished", webhookID, most)
}

// Order orders all deliveries of a webhook that was not ordered. A running
// attempt at a delivery that waits from now on still counts. Its duration grows with the
// number of unfinished deliveries.
func (tx Deliveries) Order(webhookID string) error {
	if err := tx.each("UPDATE deliveries SET state = 0, ordered = 1 WHERE webhook_id = ? AND state = 1", webhookID); err != nil {
		return err
	}
	return tx.each(promoteAllQuery, webhookID, webhookID, webhookID)
}

// Unorder makes every waiting delivery of a webhook ready. Its duration grows
// with the number of unfinished deliveries.
func (tx Deliveries) Unorder(webhookID string) error {
	tx.wroteDeliveries = true
	return tx.each("UPDATE deliveries SET state = 1, ordered = 0 WHERE webhook_id = ? AND "+unfinishedOrdered, webhookID)
}

// DeliveryQuery selects a page of a webhook's deliveries, newest first.
type DeliveryQuery struct {
	State models.DeliveryState // "" for all
	Type  models.EventType     // "" for all
	// Since and Until bound the time of creation, [Since, Until); zero for no bound.
	Since, Until time.Time
	// Before is the id behind which the page starts, "" for the newest.
	Before string
	Limit  int
}
