package store

import (
	"context"
	"database/sql"
)

// AgentNumbers returns the numbers of agents, without those that have none yet.
func (s *Store) AgentNumbers(ctx context.Context, agentIDs []string) (numbers map[string]int64, err error) {
	numbers = make(map[string]int64, len(agentIDs))
	err = eachKeys(anys(agentIDs), 1, func(list string, args []any) error {
		return s.query(ctx, s.dialect.bind("SELECT agent_id, number FROM agent_numbers WHERE agent_id IN "+list), args, func(rows *sql.Rows) error {
			var id string
			var n any
			err := rows.Scan(&id, &n)
			numbers[id] = whole(n)
			return err
		})
	})
	return numbers, err
}
