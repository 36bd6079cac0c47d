package store

import (
	"time"

	"github.com/google/uuid"

	"comet/models"
)

// Audit writes an entry of an agent's audit log; its id and time are the store's own. It is
// written by hand: every change of an agent runs it (BenchmarkREST in internal/bench).
func (tx Agents) Audit(e models.AuditEntry) error {
	e.At = tx.now
	return create(tx.reader, "", e)
}

// AuditTrail returns up to limit entries of an agent's audit log, newest first,
// before the entry with the id before (0 starts at the newest). It is empty for an
// agent without entries, known or not.
func (r agentReader) AuditTrail(agentID string, before int64, limit int) ([]models.AuditEntry, error) {
	entries, db := []models.AuditEntry{}, r.db().Where("agent_id = ?", agentID).Order("id DESC").Limit(limit)
	if before > 0 {
		db = db.Where("id < ?", before)
	}
	return entries, db.Find(&entries).Error
}

// AddOutcomes records how pieces of work ended, in few statements. It returns
// errs.Conflict for an unknown agent or status, or a negative duration.
func (tx Agents) AddOutcomes(outcomes []OutcomeRow) error {
	rows := make([]outcomeRow, len(outcomes))
	for i, o := range outcomes {
		id, err := uuid.NewV7()
		if err != nil {
			return err
		}
		rows[i] = outcomeRow{id.String(), o}
	}
	return create(tx.reader, "", rows...)
}

// outcomeRow is an outcome with its id.
type outcomeRow struct {
	ID string
	OutcomeRow
}

// OutcomeRow is the outcome of one piece of an agent's work.
type OutcomeRow struct {
	AgentID   string
	SessionID string
	Status    string // an outcome of package usage
	// DurationMS is nil if it was not measured.
	DurationMS *int64
	At         time.Time
}
