package store

import (
	"github.com/google/uuid"

	"comet/models"
)

// AddOutcomes records how pieces of work ended, in few statements. It returns
// errs.Conflict for an unknown agent, status or a negative duration.
func (tx *Tx) AddOutcomes(outcomes []models.OutcomeRow) error {
	const width = 6
	args := make([]any, 0, width*len(outcomes))
	for _, o := range outcomes {
		id, err := uuid.NewV7()
		if err != nil {
			return err
		}
		args = append(args, id.String(), o.AgentID, o.SessionID, string(o.Status), nullable(o.DurationMS), micros(o.At))
	}
	return tx.insertRows("INSERT INTO outcomes (id, agent_id, session_id, status, duration_ms, at)", "", width, args)
}
