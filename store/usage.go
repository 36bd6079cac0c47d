package store

import (
	"time"

	"github.com/google/uuid"

	"comet/models"
)

// AddUsage adds tokens to the window of the hour that at lies in. path is the
// chain of ancestors from nova down to the agent, joined with "/". It returns
// errs.Conflict for an unknown agent.
func (tx *Tx) AddUsage(agentID, path string, at time.Time, tokens int64) error {
	_, err := tx.exec(`INSERT INTO usage_windows (agent_id, hour, path, tokens) VALUES (?, ?, ?, ?)
		ON CONFLICT (agent_id, hour, path) DO UPDATE SET tokens = usage_windows.tokens + excluded.tokens`,
		agentID, hour(at), path, tokens)
	return err
}

// AddOutcome is AddOutcomes of one row.
func (tx *Tx) AddOutcome(o models.OutcomeRow) error { return tx.AddOutcomes([]models.OutcomeRow{o}) }

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
