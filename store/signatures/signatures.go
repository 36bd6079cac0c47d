// Package signatures executes the statements on the marks of signed messages that were accepted.
package signatures

import (
	"time"

	"comet/store"
)

// Record marks a signed message of an agent as accepted and reports whether it had no mark since a time.
// Marks of different scopes are independent. Of two concurrent transactions the second waits for the first.
func Record(tx *store.Tx, scope, agentID string, mark []byte, since time.Time) (bool, error) {
	n, err := tx.Exec(`INSERT INTO replay_marks (scope, agent_id, mark, at) VALUES (?, ?, ?, ?)
		ON CONFLICT (scope, agent_id, mark) DO UPDATE SET at = excluded.at WHERE replay_marks.at < ?`,
		scope, agentID, mark, tx.Now(), since)
	return n == 1, err
}

// Purge deletes up to limit marks older than before and returns how many.
func Purge(tx *store.Tx, before time.Time, limit int) (int64, error) {
	return tx.Exec(`DELETE FROM replay_marks WHERE (scope, agent_id, mark) IN
		(SELECT scope, agent_id, mark FROM replay_marks WHERE at < ? ORDER BY at LIMIT ?)`, before, limit)
}
