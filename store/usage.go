package store

import (
	"time"

	"github.com/google/uuid"
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

// AddOutcome records how one piece of an agent's work ended. It returns
// errs.Conflict for an unknown agent.
func (tx *Tx) AddOutcome(agentID, sessionID string, success bool, duration time.Duration, at time.Time) error {
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	_, err = tx.exec("INSERT INTO outcomes (id, agent_id, session_id, success, duration_ms, at) VALUES (?, ?, ?, ?, ?, ?)",
		id.String(), agentID, sessionID, success, duration.Milliseconds(), micros(at))
	return err
}
