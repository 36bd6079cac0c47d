package shortid

import (
	"context"

	"comet/internal/background"
	"comet/internal/errs"
	"comet/store"
)

// AgentNumber returns the number of an agent in short ids, such as 7 in W7 (PROTOCOL_V5 §2.1), and
// assigns the next number to an agent that has none. A number never changes. An unknown agent is
// errs.NotFound.
func AgentNumber(ctx context.Context, s *store.Store, agentID string) (n int64, err error) {
	if n, err = findNumber(s.Reads(ctx), agentID); !errs.Is(err, errs.NotFound) {
		return n, err
	}
	err = s.Write(background.WithPlacement(ctx, nil), func(tx *store.Tx) error {
		n, err = assignNumber(tx, agentID)
		return err
	})
	if errs.Is(err, errs.Conflict) {
		err = errs.New(errs.NotFound, "there is no agent %q", agentID)
	}
	return n, err
}

func findNumber(from store.Source, agentID string) (int64, error) {
	return store.Row[int64](from, "SELECT number FROM v5_agent_numbers WHERE agent_id = ?", agentID)
}

// assignNumber is AgentNumber in a transaction. An unknown agent is errs.Conflict.
func assignNumber(tx *store.Tx, agentID string) (n int64, err error) {
	for {
		if n, err = findNumber(tx, agentID); !errs.Is(err, errs.NotFound) {
			return n, err
		}
		// If two transactions insert the same number, one of them inserts nothing and tries again.
		_, err = tx.Exec(`INSERT INTO v5_agent_numbers (number, agent_id) SELECT COALESCE(MAX(number), 0) + 1, CAST(? AS TEXT) FROM v5_agent_numbers
			WHERE true ON CONFLICT DO NOTHING`, agentID)
		if err != nil {
			return 0, err
		}
	}
}

// AgentNumbers returns the numbers of agents, without the agents that have none yet.
func AgentNumbers(ctx context.Context, s *store.Store, agentIDs []string) (map[string]int64, error) {
	type row struct {
		AgentID string
		Number  int64
	}
	reads := s.Reads(ctx)
	rows, err := store.Rows[row](reads, "SELECT agent_id, number FROM v5_agent_numbers WHERE agent_id "+store.In(reads), store.Keys(agentIDs))
	numbers := make(map[string]int64, len(rows))
	for _, r := range rows {
		numbers[r.AgentID] = r.Number
	}
	return numbers, err
}

// AgentID returns the id of the agent with a number, or errs.NotFound.
func AgentID(ctx context.Context, s *store.Store, number int64) (string, error) {
	return store.Row[string](s.Reads(ctx), "SELECT agent_id FROM v5_agent_numbers WHERE number = ?", number)
}
