package store

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"comet/internal/errs"
	"comet/models"
)

const workerColumns = "agent_id, state, dialect, link, line, places, in_flight, load, seen_at, used_at, failures, breaker_until, probing, version, updated_at, dialect_version, max_depth"

// workerStates are numbered by their place.
func workerStates() []models.WorkerState {
	return []models.WorkerState{models.WorkerOffline, models.WorkerOnline, models.WorkerBusy}
}

type workerRow struct {
	w                                                                                              models.Worker
	state, places, inFlight, load, seen, used, failures, breaker, probing, version, updated, depth any
}

func (r *workerRow) dest() []any {
	w := &r.w
	return []any{
		&w.AgentID, &r.state, &w.Protocol, &w.Transport, &w.ConnectionID, &r.places, &r.inFlight, &r.load, &r.seen, &r.used, &r.failures, &r.breaker, &r.probing, &r.version, &r.updated, &w.ProtocolVersion, &r.depth,
	}
}

func (r *workerRow) worker() models.Worker {
	w := r.w
	w.State, w.Concurrency, w.InFlight = workerStates()[whole(r.state)], int(whole(r.places)), int(whole(r.inFlight))
	w.Load, w.Failures, w.Probing, w.Version = int(whole(r.load)), int(whole(r.failures)), truth(r.probing), whole(r.version)
	w.LastSeenAt, w.LastAssignedAt, w.BreakerUntil = orZero(r.seen), orZero(r.used), orZero(r.breaker)
	w.UpdatedAt, w.MaxDepth = fromMicros(whole(r.updated)), int(whole(r.depth))
	return w
}

// orZero reads a time of which 0 is none.
func orZero(v any) time.Time {
	if us := whole(v); us != 0 {
		return fromMicros(us)
	}
	return time.Time{}
}

// orNone is what orZero reads.
func orNone(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return micros(t)
}

// Worker returns a worker and locks it until the transaction ends, or errs.NotFound.
func (tx *Tx) Worker(agentID string) (models.Worker, error) {
	var r workerRow
	err := tx.queryRow("SELECT "+workerColumns+" FROM workers WHERE agent_id = ?"+tx.store.dialect.forUpdate, []any{agentID}, r.dest()...)
	if err != nil {
		return models.Worker{}, err
	}
	return r.worker(), nil
}

// LockWorkers locks several workers until the transaction ends, in the one order in which
// that is done. Those that there are not, and "", are passed over.
func (tx *Tx) LockWorkers(agentIDs []string) error {
	ids := slices.Sorted(slices.Values(agentIDs))
	return eachKeys(anys(slices.Compact(ids)), 1, func(list string, args []any) error {
		return tx.query("SELECT agent_id FROM workers WHERE agent_id IN "+list+" ORDER BY agent_id"+tx.store.dialect.forUpdate, args, func(*sql.Rows) error { return nil })
	})
}

// SaveWorker writes a worker, a new one or one that Worker returned, and counts its
// version up. It returns errs.Conflict for an unknown agent.
func (tx *Tx) SaveWorker(w *models.Worker) error {
	w.Version, w.UpdatedAt = w.Version+1, tx.now
	_, err := tx.exec("INSERT INTO workers ("+workerColumns+`) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (agent_id) DO UPDATE SET state = excluded.state, dialect = excluded.dialect, link = excluded.link, line = excluded.line, places = excluded.places,
		in_flight = excluded.in_flight, load = excluded.load, seen_at = excluded.seen_at, used_at = excluded.used_at, failures = excluded.failures,
		breaker_until = excluded.breaker_until, probing = excluded.probing, version = excluded.version, updated_at = excluded.updated_at, dialect_version = excluded.dialect_version, max_depth = excluded.max_depth`,
		w.AgentID, slices.Index(workerStates(), w.State), w.Protocol, w.Transport, w.ConnectionID, w.Concurrency, w.InFlight, w.Load, orNone(w.LastSeenAt), orNone(w.LastAssignedAt),
		w.Failures, orNone(w.BreakerUntil), w.Probing, w.Version, micros(w.UpdatedAt), w.ProtocolVersion, w.MaxDepth)
	return err
}

// ClaimSlot gives a worker one attempt more, if it is online, has a place free and its
// breaker is closed; ok tells. The worker stays locked until the transaction ends. One
// that somebody else has locked is waited for, or passed over: whoever has locked another
// one already must not wait.
func (tx *Tx) ClaimSlot(agentID string, wait bool) (w models.Worker, ok bool, err error) {
	var r workerRow
	now := micros(tx.now)
	free := "agent_id = ?"
	if !wait {
		free = "agent_id = (SELECT agent_id FROM workers WHERE agent_id = ?" + tx.store.dialect.skipLocked + ")"
	}
	err = tx.queryRow("UPDATE workers SET in_flight = in_flight + 1, used_at = ?, version = version + 1, updated_at = ? "+
		"WHERE "+free+" AND state = 1 AND in_flight < places AND breaker_until = 0 AND "+
		"EXISTS (SELECT 1 FROM agents WHERE id = workers.agent_id AND is_active) RETURNING "+workerColumns, []any{now, now, agentID}, r.dest()...)
	if errs.Is(err, errs.NotFound) {
		return w, false, nil
	}
	if err != nil {
		return w, false, err
	}
	return r.worker(), true, nil
}

// Worker returns a worker, or errs.NotFound for an agent that never joined.
func (s *Store) Worker(ctx context.Context, agentID string) (models.Worker, error) {
	var r workerRow
	err := s.queryRow(ctx, s.dialect.bind("SELECT "+workerColumns+" FROM workers WHERE agent_id = ?"), []any{agentID}, r.dest()...)
	if err != nil {
		return models.Worker{}, err
	}
	return r.worker(), nil
}

// Workers returns the workers that have changed at or after since; the zero time is all
// of them.
func (s *Store) Workers(ctx context.Context, since time.Time) (out []models.Worker, err error) {
	err = s.query(ctx, s.dialect.bind("SELECT "+workerColumns+" FROM workers WHERE updated_at >= ?"), []any{orNone(since)}, scanWorkers(&out))
	return out, err
}

// WorkersAfter returns up to limit workers in the order of their agents' ids, behind the
// one with the id after, "" for the first.
func (s *Store) WorkersAfter(ctx context.Context, after string, limit int) (out []models.Worker, err error) {
	err = s.query(ctx, s.dialect.bind("SELECT "+workerColumns+" FROM workers WHERE agent_id > ? ORDER BY agent_id LIMIT ?"), []any{after, limit}, scanWorkers(&out))
	return out, err
}

func scanWorkers(out *[]models.Worker) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		var r workerRow
		err := rows.Scan(r.dest()...)
		if err == nil {
			*out = append(*out, r.worker())
		}
		return err
	}
}

// SilentWorkers returns up to limit workers that are not offline and have shown no sign
// of life since before.
func (s *Store) SilentWorkers(ctx context.Context, before time.Time, limit int) (ids []string, err error) {
	err = s.query(ctx, s.dialect.bind("SELECT agent_id FROM workers WHERE state > 0 AND seen_at < ? ORDER BY seen_at LIMIT ?"), []any{micros(before), limit}, func(rows *sql.Rows) error {
		var id string
		err := rows.Scan(&id)
		ids = append(ids, id)
		return err
	})
	return ids, err
}

// Touch notes that workers on the line have shown a sign of life. It returns those of
// them that are offline or whose breaker waits for such a sign: they need more than that.
func (tx *Tx) Touch(ids []string) (others []string, err error) {
	err = eachKeys(anys(ids), 1, func(list string, args []any) error {
		_, err := tx.exec("UPDATE workers SET seen_at = ? WHERE agent_id IN "+list, append([]any{micros(tx.now)}, args...)...)
		if err != nil {
			return err
		}
		return tx.query("SELECT agent_id FROM workers WHERE agent_id IN "+list+" AND (state = 0 OR breaker_until <> 0)", args, func(rows *sql.Rows) error {
			var id string
			err := rows.Scan(&id)
			others = append(others, id)
			return err
		})
	})
	return others, err
}
