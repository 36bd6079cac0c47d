package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"

	"comet/models"
)

// Enqueue writes a job that follows this transaction's commit. A job whose key
// is already waiting for its kind is not written again; the result tells.
func (tx *Tx) Enqueue(j models.Job) (bool, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return false, err
	}
	payload := string(j.Payload)
	if payload == "" {
		payload = "null"
	}
	n, err := tx.exec("INSERT INTO jobs (id, kind, key, payload, run_at, created_at) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
		id.String(), j.Kind, j.Key, payload, micros(j.RunAt), micros(tx.now))
	tx.wroteJobs = true
	return n == 1, err
}

// ClaimJobs leases up to limit due jobs to the caller until now+lease and counts
// an attempt for each. No job is leased to two callers at once; one whose lease
// ran out is due again.
func (tx *Tx) ClaimJobs(limit int, lease time.Duration) ([]models.Job, error) {
	var out []models.Job
	token := uuid.NewString()
	until := tx.now.Add(lease)
	err := tx.query(`UPDATE jobs SET lease = ?, run_at = ?, attempt = attempt + 1 WHERE id IN
		(SELECT id FROM jobs WHERE run_at <= ? ORDER BY run_at, id LIMIT ?`+tx.store.dialect.skipLocked+`)
		RETURNING id, kind, key, payload, attempt`, []any{token, micros(until), micros(tx.now), limit},
		func(rows *sql.Rows) error {
			j := models.Job{Lease: token, LeaseUntil: until}
			var payload string
			if err := rows.Scan(&j.ID, &j.Kind, &j.Key, &payload, &j.Attempt); err != nil {
				return err
			}
			j.Payload = json.RawMessage(payload)
			out = append(out, j)
			return nil
		})
	return out, err
}

// FinishJob deletes a claimed job. It returns ErrLeaseLost when the lease ran
// out and another has the job.
func (tx *Tx) FinishJob(j models.Job) error {
	n, err := tx.exec("DELETE FROM jobs WHERE id = ? AND lease = ?", j.ID, j.Lease)
	return held(n, err)
}

// RetryJob makes a claimed job due again at at and keeps why it failed, at most
// 1,000 bytes of it. It returns ErrLeaseLost like FinishJob.
func (tx *Tx) RetryJob(j models.Job, at time.Time, reason string) error {
	if len(reason) > 1000 {
		reason = reason[:1000]
	}
	n, err := tx.exec("UPDATE jobs SET run_at = ?, lease = '', last_error = ? WHERE id = ? AND lease = ?",
		micros(at), reason, j.ID, j.Lease)
	return held(n, err)
}

// NextJobAt returns when the next job is due; ok is false when there is none.
func (s *Store) NextJobAt(ctx context.Context) (at time.Time, ok bool, err error) {
	var us sql.NullInt64
	err = s.queryRow(ctx, "SELECT min(run_at) FROM jobs", nil, &us)
	return fromMicros(us.Int64), us.Valid, err
}

// ErrLeaseLost means that a job was taken over by another worker.
var ErrLeaseLost = errors.New("the job's lease was lost")

func held(n int64, err error) error {
	if err == nil && n == 0 {
		return ErrLeaseLost
	}
	return err
}
