package store

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"gorm.io/gorm/clause"

	"comet/models"
)

// WorkerReader reads workers, on the read pool or in a transaction.
type WorkerReader struct{ from reader }

// Workers holds the operations of a transaction on workers.
type Workers struct {
	WorkerReader
	*transaction
}

// Workers returns the operations on workers.
func (tx *Tx) Workers() Workers { return Workers{WorkerReader{tx.reader}, &tx.transaction} }

// Workers returns the reads of workers.
func (s *Store) Workers(ctx context.Context) WorkerReader { return WorkerReader{s.on(ctx)} }

// BenchmarkAccept in internal/bench measures the statements on workers, which are written by hand.

const workerColumns = "agent_id, state, protocol, transport, connection_id, concurrency, in_flight, load, last_seen_at, last_assigned_at, failures, breaker_until, probing, version, updated_at, protocol_version, max_depth"

// workerStates are numbered by their index.
func workerStates() []models.WorkerState {
	return []models.WorkerState{models.WorkerOffline, models.WorkerOnline, models.WorkerBusy}
}

// workerDest returns the scan targets of workerColumns.
func workerDest(w *models.Worker) []any {
	return []any{
		&w.AgentID, enumInto(&w.State, workerStates()), &w.Protocol, &w.Transport, &w.ConnectionID, intInto(&w.Concurrency), intInto(&w.InFlight), intInto(&w.Load),
		ScanTime{&w.LastSeenAt}, ScanTime{&w.LastAssignedAt}, intInto(&w.Failures), ScanTime{&w.BreakerUntil}, &w.Probing, &w.Version, ScanTime{&w.UpdatedAt},
		&w.ProtocolVersion, intInto(&w.MaxDepth),
	}
}

const selectWorker = "SELECT " + workerColumns + " FROM workers WHERE agent_id = ?"

// Lock returns a worker and locks it until the transaction ends, or errs.NotFound.
func (tx Workers) Lock(agentID string) (models.Worker, error) {
	return one(tx.reader, selectWorker+tx.engine.forUpdate, []any{agentID}, workerDest)
}

// LockAll locks several workers until the transaction ends, in the one order in which
// all transactions lock them. Unknown ids and "" are ignored.
func (tx Workers) LockAll(agentIDs []string) error {
	ids := slices.Sorted(slices.Values(agentIDs))
	return EachKeys(anys(slices.Compact(ids)), 1, func(keys string, args []any) error {
		return tx.query("SELECT agent_id FROM workers WHERE agent_id IN "+keys+" ORDER BY agent_id"+tx.engine.forUpdate, args, func(*sql.Rows) error { return nil })
	})
}

// Save stores a worker, a new one or one that Lock returned, and counts its
// version up. It returns errs.Conflict for an unknown agent.
func (tx Workers) Save(w *models.Worker) error {
	w.Version, w.UpdatedAt = w.Version+1, tx.now
	return tx.each("INSERT INTO workers ("+workerColumns+`) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (agent_id) DO UPDATE SET state = excluded.state, protocol = excluded.protocol, transport = excluded.transport, connection_id = excluded.connection_id, concurrency = excluded.concurrency,
		in_flight = excluded.in_flight, load = excluded.load, last_seen_at = excluded.last_seen_at, last_assigned_at = excluded.last_assigned_at, failures = excluded.failures,
		breaker_until = excluded.breaker_until, probing = excluded.probing, version = excluded.version, updated_at = excluded.updated_at, protocol_version = excluded.protocol_version, max_depth = excluded.max_depth`,
		w.AgentID, slices.Index(workerStates(), w.State), w.Protocol, w.Transport, w.ConnectionID, w.Concurrency, w.InFlight, w.Load, orNone(w.LastSeenAt), orNone(w.LastAssignedAt),
		w.Failures, orNone(w.BreakerUntil), w.Probing, w.Version, Micros(w.UpdatedAt), w.ProtocolVersion, w.MaxDepth)
}

// ClaimSlot adds one attempt to a worker that is online, has a free slot and a closed breaker; ok
// is false for any other worker. The worker stays locked until the transaction ends. wait says
// whether to wait for a worker that another transaction has locked; a transaction that has locked
// a worker already must not wait.
func (tx Workers) ClaimSlot(agentID string, wait bool) (w models.Worker, ok bool, err error) {
	now := Micros(tx.now)
	free := "agent_id = ?"
	if !wait {
		free = "agent_id = (SELECT agent_id FROM workers WHERE agent_id = ?" + tx.engine.skipLocked + ")"
	}
	w, err = one(tx.reader, "UPDATE workers SET in_flight = in_flight + 1, last_assigned_at = ?, version = version + 1, updated_at = ? "+
		"WHERE "+free+" AND state = 1 AND in_flight < concurrency AND breaker_until = 0 AND "+
		"EXISTS (SELECT 1 FROM agents WHERE id = workers.agent_id AND is_active) RETURNING "+workerColumns, []any{now, now, agentID}, workerDest)
	return w, err == nil, exceptMissing(err)
}

// Get returns a worker, or errs.NotFound for an agent that never joined.
func (r WorkerReader) Get(agentID string) (models.Worker, error) {
	return one(r.from, selectWorker, []any{agentID}, workerDest)
}

// ChangedSince returns the workers that have changed at or after since; the zero time selects all.
func (r WorkerReader) ChangedSince(since time.Time) ([]models.Worker, error) {
	return list(r.from, "SELECT "+workerColumns+" FROM workers WHERE updated_at >= ?", []any{orNone(since)}, workerDest)
}

// List returns up to limit workers ordered by agent, after the one with the id after, ""
// for the first.
func (r WorkerReader) List(after string, limit int) ([]models.Worker, error) {
	return list(r.from, "SELECT "+workerColumns+" FROM workers WHERE agent_id > ? ORDER BY agent_id LIMIT ?", []any{after, limit}, workerDest)
}

// Silent returns up to limit workers that are not offline and have sent no heartbeat since
// before.
func (r WorkerReader) Silent(before time.Time, limit int) ([]string, error) {
	const query = "SELECT agent_id FROM workers WHERE state > 0 AND last_seen_at < ? ORDER BY last_seen_at LIMIT ?"
	return list(r.from, query, []any{Micros(before), limit}, column[string])
}

// Touch sets the time of the last heartbeat of workers to now. It returns those of them that are
// offline or have an open breaker, which need more than that.
func (tx Workers) Touch(ids []string) ([]string, error) {
	if _, err := tx.execIn(ids, "UPDATE workers SET last_seen_at = ? WHERE agent_id IN (keys)", Micros(tx.now)); err != nil {
		return nil, err
	}
	return listIn(tx.reader, ids, column[string],
		"SELECT agent_id FROM workers WHERE agent_id IN (keys) AND (state = 0 OR breaker_until <> 0)")
}

// Audience returns up to limit active agents with ids above after whose workers use a protocol
// and are not offline, ordered by id. A sphere of 0 selects all spheres.
func (r WorkerReader) Audience(protocol string, sphere int, after string, limit int) ([]string, error) {
	const query = "SELECT w.agent_id FROM workers AS w JOIN agents AS a ON a.id = w.agent_id WHERE w.agent_id > ? AND w.protocol = ? AND w.state > 0 AND a.is_active" +
		" AND (? = 0 OR a.sphere_id = ?) ORDER BY w.agent_id LIMIT ?"
	return list(r.from, query, []any{after, protocol, sphere, sphere, limit}, column[string])
}

// pushTargetRow is models.PushTarget as gorm stores it.
type pushTargetRow struct {
	AgentID     string `gorm:"primaryKey"`
	URL         string
	Protocol    string
	Concurrency int
	Secret      string
	Owner       string
	CreatedAt   time.Time `gorm:"serializer:stored;<-:create"`
	UpdatedAt   time.Time `gorm:"serializer:stored;autoUpdateTime:false"`
}

// TableName implements gorm's schema.Tabler.
func (pushTargetRow) TableName() string { return "push_targets" }

// SavePushTarget stores where an agent's messages are pushed to and sets its times. It replaces the
// target before, whose time of creation stays. It returns errs.Conflict for an unknown agent.
func (tx Workers) SavePushTarget(t *models.PushTarget) error {
	t.CreatedAt, t.UpdatedAt = tx.now, tx.now
	return tx.db().Clauses(clause.OnConflict{UpdateAll: true}, clause.Returning{}).Create((*pushTargetRow)(t)).Error
}

// DeletePushTarget deletes an agent's target and reports whether there was one. Unless
// secret is "", it must be the target's.
func (tx Workers) DeletePushTarget(agentID, secret string) (bool, error) {
	db := tx.db().Delete(&pushTargetRow{}, "agent_id = ? AND (secret = ? OR ? = '')", agentID, secret, secret)
	return db.RowsAffected > 0, db.Error
}

// PushTargets returns every target, ordered by agent.
func (r WorkerReader) PushTargets() ([]models.PushTarget, error) {
	var rows []pushTargetRow
	err := r.from.db().Order("agent_id").Find(&rows).Error
	return convert(rows, func(r pushTargetRow) models.PushTarget { return models.PushTarget(r) }), err
}

// PushTarget returns an agent's target, or errs.NotFound.
func (r WorkerReader) PushTarget(agentID string) (t models.PushTarget, err error) {
	err = r.from.db().Take((*pushTargetRow)(&t), "agent_id = ?", agentID).Error
	return t, orMissing(err, "the agent %q has no push target", agentID)
}
