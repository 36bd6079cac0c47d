package store

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"comet/models"
)

// auditRow is models.AuditEntry as gorm reads it.
type auditRow struct {
	ID        int64
	AgentID   string
	At        time.Time `gorm:"serializer:stored"`
	Actor     string
	ActorID   string
	Action    models.AuditAction
	RequestID string
	Changes   []models.Change `gorm:"serializer:stored"`
	Reason    string
	Version   int64
}

// TableName implements gorm's schema.Tabler.
func (auditRow) TableName() string { return "audit" }

// Audit writes an entry of an agent's audit log; its id and time are the store's own. It is
// written by hand: every change of an agent runs it (BenchmarkREST in internal/bench).
func (tx Agents) Audit(e models.AuditEntry) error {
	changes, err := json.Marshal(e.Changes)
	if err != nil {
		return err
	}
	return tx.each(`INSERT INTO audit (agent_id, at, actor, actor_id, action, request_id, version, changes, reason)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		e.AgentID, Micros(tx.now), e.Actor, e.ActorID, string(e.Action), e.RequestID, e.Version, string(changes), e.Reason)
}

// AuditTrail returns up to limit entries of an agent's audit log, newest first,
// before the entry with the id before (0 starts at the newest). It is empty for an
// agent without entries, known or not.
func (r AgentReader) AuditTrail(agentID string, before int64, limit int) ([]models.AuditEntry, error) {
	db := r.from.db().Where("agent_id = ?", agentID).Order("id DESC").Limit(limit)
	if before > 0 {
		db = db.Where("id < ?", before)
	}
	var rows []auditRow
	err := db.Find(&rows).Error
	return convert(rows, func(r auditRow) models.AuditEntry { return models.AuditEntry(r) }), err
}

// AddOutcomes records how pieces of work ended, in few statements. It returns
// errs.Conflict for an unknown agent or status, or a negative duration.
func (tx Agents) AddOutcomes(outcomes []models.OutcomeRow) error {
	const width = 6
	args := make([]any, 0, width*len(outcomes))
	for _, o := range outcomes {
		id, err := uuid.NewV7()
		if err != nil {
			return err
		}
		args = append(args, id.String(), o.AgentID, o.SessionID, o.Status, nullable(o.DurationMS), Micros(o.At))
	}
	return tx.insertRows("INSERT INTO outcomes (id, agent_id, session_id, status, duration_ms, at)", "", width, args)
}
