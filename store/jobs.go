package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"

	"comet/internal/errs"
	"comet/models"
)

// Enqueue writes a job that follows this transaction's commit. A job whose key
// is taken by one of its kind that is not finished is not written again; the
// result tells. RunAt is the earliest time it is run, the zero time means at once.
func (tx *Tx) Enqueue(j models.Job) (bool, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return false, err
	}
	payload := string(j.Payload)
	if payload == "" {
		payload = "null"
	}
	if j.RunAt.IsZero() {
		j.RunAt = tx.now
	}
	n, err := tx.exec("INSERT INTO jobs (id, kind, key, payload, run_at, created_at) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
		id.String(), j.Kind, j.Key, payload, micros(j.RunAt), micros(tx.now))
	tx.wroteJobs = true
	return n == 1, err
}

// ClaimJobs leases up to limit due jobs of the given kinds to the caller until
// now+lease and counts an attempt for each; they come in no particular order. No
// job is leased to two callers at once; one whose lease ran out is due again.
func (tx *Tx) ClaimJobs(kinds []string, limit int, lease time.Duration) ([]models.Job, error) {
	if len(kinds) == 0 {
		return nil, nil
	}
	var out []models.Job
	token := uuid.NewString()
	until := tx.now.Add(lease)
	list, args := inList(kinds)
	args = append(append([]any{micros(tx.now)}, args...), limit, token, micros(until))
	// Without MATERIALIZED, PostgreSQL may run the inner statement again and
	// lock more than limit.
	err := tx.query(`WITH due AS MATERIALIZED
		(SELECT id FROM jobs WHERE run_at <= ? AND kind IN `+list+` ORDER BY run_at, id LIMIT ?`+tx.store.dialect.skipLocked+`)
		UPDATE jobs SET lease = ?, run_at = ?, attempt = attempt + 1 WHERE id IN (SELECT id FROM due)
		RETURNING id, kind, key, payload, attempt`, args,
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
// out and another took the job over, or has finished it.
func (tx *Tx) FinishJob(j models.Job) error {
	n, err := tx.exec("DELETE FROM jobs WHERE id = ? AND lease = ?", j.ID, j.Lease)
	return held(n, err)
}

// RetryJob makes a claimed job due again at at and keeps why it failed, at most
// 1,000 bytes of it. It returns ErrLeaseLost like FinishJob.
func (tx *Tx) RetryJob(j models.Job, at time.Time, reason string) error {
	tx.wroteJobs = true
	n, err := tx.exec("UPDATE jobs SET run_at = ?, lease = '', last_error = ? WHERE id = ? AND lease = ?",
		micros(at), storable(reason, 1000), j.ID, j.Lease)
	return held(n, err)
}

// ReleaseJob makes a claimed job due at once and takes the attempt back, for a
// worker that was stopped. It returns ErrLeaseLost like FinishJob.
func (tx *Tx) ReleaseJob(j models.Job) error {
	tx.wroteJobs = true
	n, err := tx.exec("UPDATE jobs SET run_at = ?, lease = '', attempt = attempt - 1 WHERE id = ? AND lease = ?",
		micros(tx.now), j.ID, j.Lease)
	return held(n, err)
}

// NextJobAt returns when the next job of the given kinds is due; ok is false
// when there is none.
func (s *Store) NextJobAt(ctx context.Context, kinds []string) (at time.Time, ok bool, err error) {
	if len(kinds) == 0 {
		return time.Time{}, false, nil
	}
	var us int64
	list, args := inList(kinds)
	err = s.queryRow(ctx, s.dialect.bind("SELECT run_at FROM jobs WHERE kind IN "+list+" ORDER BY run_at, id LIMIT 1"), args, &us)
	if errs.Is(err, errs.NotFound) {
		return time.Time{}, false, nil
	}
	return fromMicros(us), err == nil, err
}

// OtherDueJob returns the kind of a due job that is of none of the given kinds;
// ok is false when there is none.
func (s *Store) OtherDueJob(ctx context.Context, kinds []string) (kind string, ok bool, err error) {
	query, args := "SELECT kind FROM jobs WHERE run_at <= ?", []any{micros(s.Now())}
	if len(kinds) > 0 {
		list, more := inList(kinds)
		query, args = query+" AND kind NOT IN "+list, append(args, more...)
	}
	err = s.queryRow(ctx, s.dialect.bind(query+" ORDER BY run_at, id LIMIT 1"), args, &kind)
	if errs.Is(err, errs.NotFound) {
		return "", false, nil
	}
	return kind, err == nil, err
}

// ErrLeaseLost means that a job was taken over by another worker.
var ErrLeaseLost = errors.New("the job's lease was lost")

func held(n int64, err error) error {
	if err == nil && n == 0 {
		return ErrLeaseLost
	}
	return err
}

// DeleteJob deletes the unfinished job of a kind with a key, if there is one. Whoever is
// running it finds its lease lost.
func (tx *Tx) DeleteJob(kind, key string) error {
	_, err := tx.exec("DELETE FROM jobs WHERE kind = ? AND key = ? AND key <> ''", kind, key)
	return err
}
