package store

import (
	"context"
	"database/sql"

	"comet/internal/errs"
	"comet/models"
)

const pushColumns = "agent_id, url, dialect, places, secret, owner, created_at, updated_at"

type pushRow struct {
	t                        models.PushTarget
	places, created, updated any
}

func (r *pushRow) dest() []any {
	t := &r.t
	return []any{&t.AgentID, &t.URL, &t.Dialect, &r.places, &t.Secret, &t.Owner, &r.created, &r.updated}
}

func (r *pushRow) target() models.PushTarget {
	t := r.t
	t.Places, t.CreatedAt, t.UpdatedAt = int(whole(r.places)), fromMicros(whole(r.created)), fromMicros(whole(r.updated))
	return t
}

// SavePushTarget writes where an agent's messages are pushed to, in the place of what
// was there, whose time of creation stays. It returns errs.Conflict for an unknown agent.
func (tx *Tx) SavePushTarget(t *models.PushTarget) error {
	t.CreatedAt, t.UpdatedAt = tx.now, tx.now
	var created any
	err := tx.queryRow("INSERT INTO push_targets ("+pushColumns+`) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (agent_id) DO UPDATE SET url = excluded.url, dialect = excluded.dialect, places = excluded.places, secret = excluded.secret,
		owner = excluded.owner, updated_at = excluded.updated_at RETURNING created_at`,
		[]any{t.AgentID, t.URL, t.Dialect, t.Places, t.Secret, t.Owner, micros(t.CreatedAt), micros(t.UpdatedAt)}, &created)
	if err == nil {
		t.CreatedAt = fromMicros(whole(created))
	}
	return err
}

// DeletePushTarget removes an agent's target and reports whether there was one. Unless
// secret is "", it has to be the target's.
func (tx *Tx) DeletePushTarget(agentID, secret string) (bool, error) {
	n, err := tx.exec("DELETE FROM push_targets WHERE agent_id = ? AND (secret = ? OR ? = '')", agentID, secret, secret)
	return n > 0, err
}

// PushTargets returns every target, ordered by agent.
func (s *Store) PushTargets(ctx context.Context) (out []models.PushTarget, err error) {
	err = s.pushTargets(ctx, "", nil, func(t models.PushTarget) { out = append(out, t) })
	return out, err
}

// PushTarget returns an agent's target, or errs.NotFound.
func (s *Store) PushTarget(ctx context.Context, agentID string) (out models.PushTarget, err error) {
	err = s.pushTargets(ctx, "WHERE agent_id = ?", []any{agentID}, func(t models.PushTarget) { out = t })
	if err == nil && out.AgentID == "" {
		err = errs.New(errs.NotFound, "nothing is pushed to the agent %q", agentID)
	}
	return out, err
}

func (s *Store) pushTargets(ctx context.Context, where string, args []any, each func(models.PushTarget)) error {
	return s.query(ctx, s.dialect.bind("SELECT "+pushColumns+" FROM push_targets "+where+" ORDER BY agent_id"), args, func(rows *sql.Rows) error {
		var r pushRow
		err := rows.Scan(r.dest()...)
		if err == nil {
			each(r.target())
		}
		return err
	})
}
