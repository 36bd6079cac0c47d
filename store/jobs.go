package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"

	"comet/store/columns"
	"comet/store/filter"
)

// BenchmarkAccept in internal/bench measures the statements on jobs, which are written by hand.

// Enqueue writes a job that follows this transaction's commit, and reports whether it did: not if an
// unfinished job of the kind has the same key. RunAt is the earliest time it is run, the zero time
// means at once.
func (tx Jobs) Enqueue(j Job) (bool, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return false, err
	}
	if j.RunAt.IsZero() {
		j.RunAt = tx.now
	}
	n, err := tx.exec("INSERT INTO jobs (id, kind, key, payload, run_at, created_at) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
		id.String(), j.Kind, j.Key, jsonText(j.Payload), j.RunAt, tx.now)
	tx.state.wroteJobs = true
	return n == 1, err
}

// Claim leases up to limit due jobs of the given kinds to the caller until now+lease and counts an
// attempt for each, in no particular order. A job whose lease has ended is due again.
func (tx Jobs) Claim(kinds []string, limit int, lease time.Duration) ([]Job, error) {
	if len(kinds) == 0 {
		return nil, nil
	}
	token, until := tx.store.process+"/"+uuid.NewString(), tx.now.Add(lease)
	in, args := filter.In(kinds)
	args = append(append([]any{tx.now}, args...), limit, token, until)
	// Without MATERIALIZED, PostgreSQL may run the inner statement again and lock more than limit.
	return list[Job](tx.reader, `WITH due AS MATERIALIZED
		(SELECT id FROM jobs WHERE run_at <= ? AND kind IN `+in+` ORDER BY run_at, id LIMIT ?`+tx.engine.skipLocked+`)
		UPDATE jobs SET lease = ?, run_at = ?, attempt = attempt + 1 WHERE id IN (SELECT id FROM due)
		RETURNING id, kind, key, payload, 0, attempt, lease, run_at`, args...)
}

// Finish deletes a claimed job. It returns ErrLeaseLost if the lease has expired
// and another runner has claimed or finished the job.
func (tx Jobs) Finish(j Job) error {
	return tx.execLeased("DELETE FROM jobs WHERE id = ? AND lease = ?", j.ID, j.Lease)
}

// Retry makes a claimed job due again at the time at and stores the first 1,000
// bytes of the reason. It returns ErrLeaseLost like Finish.
func (tx Jobs) Retry(j Job, at time.Time, reason string) error {
	tx.state.wroteJobs = true
	return tx.execLeased("UPDATE jobs SET run_at = ?, lease = '', last_error = ? WHERE id = ? AND lease = ?",
		at, columns.Text(reason, 1000), j.ID, j.Lease)
}

// Release makes a claimed job due at once and does not count the attempt, for a
// runner that was stopped. It returns ErrLeaseLost like Finish.
func (tx Jobs) Release(j Job) error {
	tx.state.wroteJobs = true
	return tx.execLeased("UPDATE jobs SET run_at = ?, lease = '', attempt = attempt - 1 WHERE id = ? AND lease = ?",
		tx.now, j.ID, j.Lease)
}

// NextAt returns when the next job of the given kinds is due; ok is false if there is none.
func (r jobReader) NextAt(kinds []string) (at time.Time, ok bool, err error) {
	if len(kinds) == 0 {
		return at, false, nil
	}
	in, args := filter.In(kinds)
	at, err = one[time.Time](r.reader, "SELECT run_at FROM jobs WHERE kind IN "+in+" ORDER BY run_at, id LIMIT 1", args...)
	return at, err == nil, exceptMissing(err)
}

// OtherDue returns the kind of a due job that is of none of the given kinds;
// ok is false when there is none.
func (r jobReader) OtherDue(kinds []string) (kind string, ok bool, err error) {
	query, args := "SELECT kind FROM jobs WHERE run_at <= ?", []any{r.now}
	if len(kinds) > 0 {
		in, more := filter.In(kinds)
		query, args = query+" AND kind NOT IN "+in, append(args, more...)
	}
	kind, err = one[string](r.reader, query+" ORDER BY run_at, id LIMIT 1", args...)
	return kind, err == nil, exceptMissing(err)
}

// ErrLeaseLost means that a job was taken over by another worker.
var ErrLeaseLost = errors.New("the job's lease was lost")

// execLeased runs a statement on the job that the caller has claimed.
func (tx Jobs) execLeased(query string, args ...any) error {
	n, err := tx.exec(query, args...)
	if err == nil && n == 0 {
		return ErrLeaseLost
	}
	return err
}

// Delete deletes the unfinished job of a kind with a key, if there is one. A worker that
// runs it has lost its lease.
func (tx Jobs) Delete(kind, key string) error {
	return tx.run("DELETE FROM jobs WHERE kind = ? AND key = ? AND key <> ''", kind, key)
}

// Backlog counts committed work that waits.
type Backlog struct {
	// Events have no position yet.
	Events int64
	// Jobs are due, of whatever kind, and not claimed.
	Jobs int64
	// Writes are callers of Write that have not begun.
	Writes int64
}

// Backlog counts the waiting jobs.
func (s *Store) Backlog(ctx context.Context) (Backlog, error) {
	return one[Backlog](s.on(ctx), `SELECT (SELECT count(*) FROM events WHERE position IS NULL),
		(SELECT count(*) FROM jobs WHERE run_at <= ?), CAST(? AS BIGINT)`, s.Now(), s.writes.waiting())
}

// Job is work that follows a commit: a timer, a delivery, a retry.
type Job struct {
	ID string
	// Kind selects the handler.
	Kind string
	// Key makes the job unique while it is not finished; "" for no such limit.
	Key     string
	Payload json.RawMessage
	// RunAt is the earliest time of the next attempt.
	RunAt time.Time
	// Attempt counts the attempts begun, including the current one.
	Attempt int
	// Lease proves the claim of the worker that holds the job.
	Lease string
	// LeaseUntil is when another worker may take the job over.
	LeaseUntil time.Time
}
