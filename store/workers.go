package store

import (
	"slices"
	"time"

	"gorm.io/gorm/clause"

	"comet/models"
	"comet/store/columns"
)

// BenchmarkAccept in internal/bench measures the statements on workers, which are written by hand.

// Lock returns a worker and locks it until the transaction ends, or errs.NotFound.
func (tx Workers) Lock(agentID string) (models.Worker, error) {
	return one[models.Worker](tx.reader, selectRows[models.Worker]("WHERE agent_id = ?")+tx.engine.forUpdate, agentID)
}

// LockAll locks several workers until the transaction ends, in the one order in which
// all transactions lock them. Unknown ids and "" are ignored.
func (tx Workers) LockAll(agentIDs []string) error {
	ids := slices.Compact(slices.Sorted(slices.Values(agentIDs)))
	_, err := list[string](tx.reader, "SELECT agent_id FROM workers WHERE agent_id "+tx.engine.in+" ORDER BY agent_id"+tx.engine.forUpdate, Keys(ids))
	return err
}

// Save stores a worker, a new one or one that Lock returned, and counts its
// version up. It returns errs.Conflict for an unknown agent.
func (tx Workers) Save(w *models.Worker) error {
	w.Version, w.UpdatedAt = w.Version+1, tx.now
	return create(tx.reader, replacing[models.Worker](columns.Except[models.Worker]("agent_id")...), *w)
}

// Available returns a worker that is online and active and has a closed breaker; ok is false for any
// other worker.
func (r workerReader) Available(agentID string) (w models.Worker, ok bool, err error) {
	w, err = one[models.Worker](r.reader, selectRows[models.Worker]("WHERE agent_id = ? AND state = 1 AND breaker_until = 0 AND "+
		"EXISTS (SELECT 1 FROM agents WHERE id = workers.agent_id AND is_active)"), agentID)
	return w, err == nil, exceptMissing(err)
}

// ClaimSlot adds one attempt to a worker that is online, has a free slot and a closed breaker; ok
// is false for any other worker. The worker stays locked until the transaction ends. wait says
// whether to wait for a worker that another transaction has locked; a transaction that has locked
// a worker already must not wait.
func (tx Workers) ClaimSlot(agentID string, wait bool) (w models.Worker, ok bool, err error) {
	free := "agent_id = ?"
	if !wait {
		free = "agent_id = (SELECT agent_id FROM workers WHERE agent_id = ?" + tx.engine.skipLocked + ")"
	}
	w, err = one[models.Worker](tx.reader, "UPDATE workers SET in_flight = in_flight + 1, last_assigned_at = ?, version = version + 1, updated_at = ? "+
		"WHERE "+free+" AND state = 1 AND in_flight < concurrency AND breaker_until = 0 AND "+
		"EXISTS (SELECT 1 FROM agents WHERE id = workers.agent_id AND is_active) RETURNING "+columns.List[models.Worker](), tx.now, tx.now, agentID)
	return w, err == nil, exceptMissing(err)
}

// Get returns a worker, or errs.NotFound for an agent that never joined.
func (r workerReader) Get(agentID string) (models.Worker, error) {
	return one[models.Worker](r.reader, selectRows[models.Worker]("WHERE agent_id = ?"), agentID)
}

// ChangedSince returns the workers that have changed at or after since; the zero time selects all.
func (r workerReader) ChangedSince(since time.Time) ([]models.Worker, error) {
	return list[models.Worker](r.reader, selectRows[models.Worker]("WHERE updated_at >= ?"), since)
}

// List returns up to limit workers ordered by agent, after the one with the id after, ""
// for the first.
func (r workerReader) List(after string, limit int) ([]models.Worker, error) {
	return list[models.Worker](r.reader, selectRows[models.Worker]("WHERE agent_id > ? ORDER BY agent_id LIMIT ?"), after, limit)
}

// Silent returns up to limit workers that are not offline and have sent no heartbeat since
// before.
func (r workerReader) Silent(before time.Time, limit int) ([]string, error) {
	const query = "SELECT agent_id FROM workers WHERE state > 0 AND last_seen_at < ? ORDER BY last_seen_at LIMIT ?"
	return list[string](r.reader, query, before, limit)
}

// Touch sets the time of the last heartbeat of workers to now. It returns those of them that are
// offline or have an open breaker, which need more than that.
func (tx Workers) Touch(ids []string) ([]string, error) {
	if err := tx.run("UPDATE workers SET last_seen_at = ? WHERE agent_id "+tx.engine.in, tx.now, Keys(ids)); err != nil {
		return nil, err
	}
	return list[string](tx.reader, "SELECT agent_id FROM workers WHERE agent_id "+tx.engine.in+" AND (state = 0 OR breaker_until <> 0)", Keys(ids))
}

// Audience returns up to limit active agents with ids above after whose workers use a protocol
// and are not offline, ordered by id. A sphere of 0 selects all spheres.
func (r workerReader) Audience(protocol string, sphere int, after string, limit int) ([]string, error) {
	const query = "SELECT w.agent_id FROM workers AS w JOIN agents AS a ON a.id = w.agent_id WHERE w.agent_id > ? AND w.protocol = ? AND w.state > 0 AND a.is_active" +
		" AND (? = 0 OR a.sphere_id = ?) ORDER BY w.agent_id LIMIT ?"
	return list[string](r.reader, query, after, protocol, sphere, sphere, limit)
}

// SavePushTarget stores where an agent's messages are pushed to and sets its times. It replaces the
// target before, whose time of creation stays. It returns errs.Conflict for an unknown agent.
func (tx Workers) SavePushTarget(t *models.PushTarget) error {
	t.CreatedAt, t.UpdatedAt = tx.now, tx.now
	return tx.db().Clauses(clause.OnConflict{UpdateAll: true}, clause.Returning{}).Create(t).Error
}

// DeletePushTarget deletes an agent's target and reports whether there was one. Unless
// secret is "", it must be the target's.
func (tx Workers) DeletePushTarget(agentID, secret string) (bool, error) {
	db := tx.db().Delete(&models.PushTarget{}, "agent_id = ? AND (secret = ? OR ? = '')", agentID, secret, secret)
	return db.RowsAffected > 0, db.Error
}

// PushTargets returns every target, ordered by agent.
func (r workerReader) PushTargets() ([]models.PushTarget, error) {
	targets := []models.PushTarget{}
	return targets, r.db().Order("agent_id").Find(&targets).Error
}

// PushTarget returns an agent's target, or errs.NotFound.
func (r workerReader) PushTarget(agentID string) (t models.PushTarget, err error) {
	err = r.db().Take(&t, "agent_id = ?", agentID).Error
	return t, orMissing(err, "the agent %q has no push target", agentID)
}
