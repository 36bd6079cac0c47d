package store

import (
	"time"

	"gorm.io/gorm/clause"

	"comet/models"
	"comet/store/columns"
	"comet/store/filter"
)

// The statements on workers are hand-written for speed; BenchmarkAccept in internal/bench measures
// them.

// Lock returns a worker and locks it until the transaction ends, or errs.NotFound.
func (tx Workers) Lock(agentID string) (models.Worker, error) {
	return one[models.Worker](tx.reader, selectRows[models.Worker]("WHERE agent_id = ?")+tx.engine.forUpdate, agentID)
}

// Save stores a worker, a new one or one that Lock returned, and increments its version. For
// an unknown agent this call, a later statement or the commit returns errs.Conflict.
func (tx Workers) Save(w *models.Worker) error {
	w.Version, w.UpdatedAt = w.Version+1, tx.now
	return create(tx.reader, replacing[models.Worker](columns.Except[models.Worker]("agent_id")...), *w)
}

// available is the condition for a worker that is online and active and has a closed breaker.
const available = "state = 1 AND breaker_until = 0 AND EXISTS (SELECT 1 FROM agents WHERE id = workers.agent_id AND is_active)"

// Available reports whether a worker is online and active and has a closed breaker.
func (r workerReader) Available(agentID string) (bool, error) {
	return one[bool](r.reader, "SELECT EXISTS (SELECT 1 FROM workers WHERE agent_id = ? AND "+available+")", agentID)
}

// ChangeSlots locks a worker, counts attempts that have begun and ended, and resets the number of
// failures in a row if answered is set. ok is false, and nothing changes, if attempts have begun and the
// worker is not available or has not as many free slots.
func (tx Workers) ChangeSlots(agentID string, begun, ended int, answered bool) (w models.Worker, ok bool, err error) {
	w, err = one[models.Worker](tx.reader, `UPDATE workers SET in_flight = CASE WHEN in_flight > ? THEN in_flight - ? ELSE 0 END + ?,
		failures = CASE WHEN ? THEN 0 ELSE failures END, last_assigned_at = CASE WHEN ? > 0 THEN ? ELSE last_assigned_at END,
		version = version + 1, updated_at = ? WHERE agent_id = ? AND (? = 0 OR `+available+` AND in_flight - ? + ? <= concurrency)
		RETURNING `+columns.List[models.Worker](), ended, ended, begun, answered, begun, tx.now, tx.now, agentID, begun, ended, begun)
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
// for the first; only the agent root and those below it, unless root is "".
func (r workerReader) List(root, after string, limit int) ([]models.Worker, error) {
	var where filter.Clause
	if where.And("agent_id > ?", after); root != "" {
		where.And("agent_id "+InSubtree, root)
	}
	return list[models.Worker](r.reader, selectRows[models.Worker](where.SQL()+" ORDER BY agent_id LIMIT ?"), append(where.Args, limit)...)
}

// Silent returns up to limit workers that are not offline and have sent no heartbeat since before.
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
// previous target, whose creation time is kept. It returns errs.Conflict for an unknown agent.
func (tx Workers) SavePushTarget(t *models.PushTarget) error {
	t.CreatedAt, t.UpdatedAt = tx.now, tx.now
	return tx.db().Clauses(clause.OnConflict{UpdateAll: true}, clause.Returning{}).Create(t).Error
}

// DeletePushTarget deletes an agent's target and reports whether there was one. Unless
// secret is "", it must be the target's.
func (tx Workers) DeletePushTarget(agentID, secret string) (bool, error) {
	var t models.PushTarget
	err := forUpdate(tx.db()).Take(&t, "agent_id = ?", agentID).Error
	if err != nil || secret != "" && secret != t.Secret {
		return false, exceptMissing(err)
	}
	return true, tx.db().Delete(&t).Error
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
