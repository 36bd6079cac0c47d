package store

import (
	"context"
	"encoding/json"

	"comet/models"
)

// auditRow is a row of audit.
type auditRow struct {
	ID        int64 `gorm:"primaryKey"`
	AgentID   string
	At        int64
	Actor     string
	ActorID   string
	Action    string
	RequestID string
	Version   int64
	Changes   string
	Reason    string
}

// TableName implements gorm's schema.Tabler.
func (auditRow) TableName() string { return "audit" }

// Audit writes a line of an agent's history; its id and time are the store's own.
func (tx *Tx) Audit(e models.AuditEntry) error {
	changes, err := json.Marshal(e.Changes)
	if err != nil {
		return err
	}
	_, err = tx.exec(`INSERT INTO audit (agent_id, at, actor, actor_id, action, request_id, version, changes, reason)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		e.AgentID, micros(tx.now), e.Actor, e.ActorID, string(e.Action), e.RequestID, e.Version, string(changes), e.Reason)
	return err
}

// AuditTrail returns up to limit lines of an agent's history, newest first,
// before the line with the id before (0 starts at the newest). It is empty for an
// agent without history, known or not.
func (s *Store) AuditTrail(ctx context.Context, agentID string, before int64, limit int) ([]models.AuditEntry, error) {
	q := s.cold(ctx).Where("agent_id = ?", agentID).Order("id DESC").Limit(limit)
	if before > 0 {
		q = q.Where("id < ?", before)
	}
	var rows []auditRow
	if err := q.Find(&rows).Error; err != nil {
		return nil, translate(err)
	}
	out := make([]models.AuditEntry, 0, len(rows))
	for _, r := range rows {
		e := models.AuditEntry{
			ID: r.ID, AgentID: r.AgentID, At: fromMicros(r.At), Actor: r.Actor, ActorID: r.ActorID,
			Action: models.AuditAction(r.Action), RequestID: r.RequestID, Version: r.Version, Reason: r.Reason,
		}
		if err := json.Unmarshal([]byte(r.Changes), &e.Changes); err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}
