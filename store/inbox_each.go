package store

import (
	"github.com/google/uuid"

	"comet/models"
)

// EnqueueMessages puts a message about no task into the inboxes of several agents, each under an
// id of its own.
func (tx *Tx) EnqueueMessages(agentIDs []string, m models.InboxMessage) error {
	const width = 7
	data := string(m.Data)
	if data == "" {
		data = "null"
	}
	args := make([]any, 0, width*len(agentIDs))
	for _, agentID := range agentIDs {
		id, err := uuid.NewV7()
		if err != nil {
			return err
		}
		args = append(args, agentID, id.String(), string(m.Kind), int64(m.Priority), int64(0), data, micros(tx.now))
	}
	return tx.insertRows("INSERT INTO inbox (agent_id, id, kind, priority, attempt, data, created_at)", "", width, args)
}

// KeepNotices leaves the newest messages about no task in the inboxes of several agents, up
// to most in each, and removes the others.
func (tx *Tx) KeepNotices(agentIDs []string, most int) error {
	return eachKeys(anys(agentIDs), 1, func(list string, args []any) error {
		_, err := tx.exec(`DELETE FROM inbox WHERE (agent_id, id) IN (SELECT agent_id, id FROM
			(SELECT agent_id, id, row_number() OVER (PARTITION BY agent_id ORDER BY id DESC) AS newer FROM inbox
			WHERE task_id IS NULL AND agent_id IN `+list+`) AS notices WHERE newer > ?)`, append(args, most)...)
		return err
	})
}
