package store

import (
	"context"
	"database/sql"
	"time"

	"comet/internal/errs"
	"comet/models"
)

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

// deliveryRow is the scan target of deliveryColumns; numbers go into interfaces,
// which the drivers fill without a detour.
type deliveryRow struct {
	d                                                 models.Delivery
	data                                              string
	eventAt, state, due, attempts, tries, createdTime any
}

func (r *deliveryRow) dest() []any {
	d := &r.d
	return []any{
		&d.WebhookID, &d.ID, &d.EventID, &d.Type, &d.Key, &r.eventAt, &r.state, &r.due, &r.attempts, &r.tries, &r.createdTime, &r.data,
	}
}

func (r *deliveryRow) delivery() models.Delivery {
	d := r.d
	d.EventAt, d.CreatedAt = fromMicros(whole(r.eventAt)), fromMicros(whole(r.createdTime))
	d.Attempts, d.Tries = int(whole(r.attempts)), int(whole(r.tries))
	if r.data != "" {
		d.Data = []byte(r.data)
	}
	due := fromMicros(whole(r.due))
	switch whole(r.state) {
	case stateWaiting:
		d.State = models.DeliveryPending
	case stateReady:
		d.State, d.NextAttemptAt = models.DeliveryPending, &due
	case stateSucceeded:
		d.State, d.EndedAt = models.DeliverySucceeded, &due
	case stateDead:
		d.State, d.EndedAt = models.DeliveryDead, &due
	}
	return d
}

func scanDeliveries(out *[]models.Delivery) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		var r deliveryRow
		err := rows.Scan(r.dest()...)
		*out = append(*out, r.delivery())
		return err
	}
}

// Deliveries returns the page of a webhook's deliveries that q selects, newest first,
// without their data. It is empty for an unknown webhook.
func (s *Store) Deliveries(ctx context.Context, webhookID string, q models.DeliveryQuery) ([]models.Delivery, error) {
	out := []models.Delivery{}
	query, args := s.deliveriesQuery(webhookID, q)
	err := s.query(ctx, query, args, scanDeliveries(&out))
	return out, err
}

// deliveriesQuery builds the statement of a page. The ids carry the time of creation,
// so bounds of time are bounds of the index.
func (s *Store) deliveriesQuery(webhookID string, q models.DeliveryQuery) (string, []any) {
	query, args := "SELECT "+deliveryFacts+", '' FROM deliveries WHERE webhook_id = ?", []any{webhookID}
	and := func(term string, more ...any) { query, args = query+" AND "+term, append(args, more...) }
	switch q.State {
	case models.DeliveryPending:
		// Either half has an index of its own, so the history is not read.
		and("id IN (SELECT id FROM deliveries WHERE webhook_id = ? AND state = 1 UNION ALL SELECT id FROM deliveries WHERE webhook_id = ? AND state = 0 AND "+
			inLine+")", webhookID, webhookID)
	case models.DeliverySucceeded:
		and("state = 2")
	case models.DeliveryDead:
		and("state = 3")
	}
	if q.Type != "" {
		and("type = ?", string(q.Type))
	}
	if !q.Since.IsZero() {
		and("id >= ? AND created_at >= ?", firstUUID7(q.Since), micros(q.Since))
	}
	if !q.Until.IsZero() {
		and("id < ? AND created_at < ?", firstUUID7(q.Until.Add(time.Millisecond)), micros(q.Until))
	}
	if q.Before != "" {
		and("id < ?", q.Before)
	}
	return s.dialect.bind(query + " ORDER BY id DESC LIMIT ?"), append(args, q.Limit)
}

// Delivery returns a delivery of a webhook, or errs.NotFound.
func (s *Store) Delivery(ctx context.Context, webhookID, id string) (models.Delivery, error) {
	var r deliveryRow
	err := s.pointRow(ctx, s.dialect.bind("SELECT "+deliveryColumns+" FROM deliveries WHERE webhook_id = ? AND id = ?"),
		[]any{webhookID, id}, r.dest()...)
	if err != nil {
		return models.Delivery{}, deliveryMissing(err, webhookID, id)
	}
	return r.delivery(), nil
}

// Delivery returns a delivery of a webhook and locks it, or errs.NotFound.
func (tx *Tx) Delivery(webhookID, id string) (models.Delivery, error) {
	var r deliveryRow
	err := tx.queryRow("SELECT "+deliveryColumns+" FROM deliveries WHERE webhook_id = ? AND id = ?"+tx.store.dialect.forUpdate,
		[]any{webhookID, id}, r.dest()...)
	if err != nil {
		return models.Delivery{}, deliveryMissing(err, webhookID, id)
	}
	return r.delivery(), nil
}

// DeliveryAttempts returns the attempts of a delivery, the first one first; it is
// empty for an unknown one.
func (s *Store) DeliveryAttempts(ctx context.Context, webhookID, id string) ([]models.DeliveryAttempt, error) {
	out := []models.DeliveryAttempt{}
	err := s.query(ctx, s.dialect.bind(`SELECT attempt, at, duration_ms, status, error, response FROM delivery_attempts
		WHERE webhook_id = ? AND delivery_id = ?
		UNION ALL SELECT attempts, last_at, last_ms, last_status, last_error, last_response FROM deliveries
		WHERE webhook_id = ? AND id = ? AND attempts > 0 ORDER BY 1`), []any{webhookID, id, webhookID, id},
		func(rows *sql.Rows) error {
			var a models.DeliveryAttempt
			var at int64
			err := rows.Scan(&a.Attempt, &at, &a.DurationMS, &a.Status, &a.Error, &a.ResponseExcerpt)
			a.At = fromMicros(at)
			out = append(out, a)
			return err
		})
	return out, err
}

func deliveryMissing(err error, webhookID, id string) error {
	if errs.Is(err, errs.NotFound) {
		return errs.New(errs.NotFound, "the webhook %q has no delivery %q", webhookID, id)
	}
	return err
}
